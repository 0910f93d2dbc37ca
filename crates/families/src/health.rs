//! What a driver says of a device's health.

use crate::xid::DeviceFault;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// The signs that a driver gives of a device's health at a moment. What it does not tell is not guessed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// What the driver needs before the device can be relied on; `None` where it does not tell.
    pub recovery: Option<Recovery>,
    /// Rows of memory are to be replaced by spare ones at the next reset. Until then the device may be used.
    pub is_remap_pending: bool,
    /// A row of memory could not be replaced by a spare one.
    pub has_remap_failed: bool,
    /// Pages of memory are to be taken out of use at the next reset, as older devices do in place of rows. Until then the
    /// device may be used.
    pub is_retirement_pending: bool,
    /// The errors of two bits in a word of its memory since its driver was loaded; `None` where it does not count them.
    pub double_bit_errors: Option<u64>,
    /// The errors of one bit in a word of its memory, which were corrected, since its driver was loaded; `None` where it does not
    /// count them.
    pub single_bit_errors: Option<u64>,
    /// Why its hardware slows it down now.
    pub slowed: Option<Slowdown>,
    /// The errors of its hardware that could not be corrected, by the part of the device that had them, since its driver was
    /// loaded; `None` where nobody counts them.
    pub uncorrected: Option<BTreeMap<String, u64>>,
    /// What its driver or its vendor's tool calls its condition; `None` where neither does.
    pub condition: Option<DriverWord>,
}

/// What a driver, or a vendor's tool, calls a device's condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverWord {
    /// It works, or is about to by itself.
    Works,
    /// It does not, in the words of whoever says so.
    Fails(String),
}

impl Health {
    /// Whether anything was said of it. Where nothing was, it is not known whether the device is well.
    pub fn is_told(&self) -> bool {
        let Self { recovery, is_remap_pending, has_remap_failed, is_retirement_pending, double_bit_errors, .. } = self;
        let is_any_flag = *is_remap_pending || *has_remap_failed || *is_retirement_pending;
        let is_counted = self.uncorrected.is_some() || double_bit_errors.is_some();
        recovery.is_some() || is_counted || self.condition.is_some() || is_any_flag
    }

    /// What is to be known of a device that may be used.
    pub fn notes(&self) -> Vec<String> {
        let reset = "needs a reset when it suits";
        let remap = || format!("{reset}: rows of its memory are to be replaced by spare ones");
        let retirement = || format!("{reset}: pages of its memory are to be taken out of use");
        let double = some(self.double_bit_errors);
        let double =
            double.map(|errors| format!("{errors} double-bit errors of its memory since its driver was loaded"));
        // The exact count would be news with each of them.
        let single = some(self.single_bit_errors).map(|errors| 10_u64.pow(errors.ilog10()));
        let single = single.map(|errors| {
            format!("{errors} or more single-bit errors of its memory, corrected, since its driver was loaded")
        });
        let remap = self.is_remap_pending.then(remap);
        let retirement = self.is_retirement_pending.then(retirement);
        remap.into_iter().chain(retirement).chain(double).chain(single).collect()
    }

    /// Whether there are such notes.
    pub fn has_notes(&self) -> bool {
        let has_errors = some(self.double_bit_errors).or(some(self.single_bit_errors)).is_some();
        self.is_remap_pending || self.is_retirement_pending || has_errors
    }

    /// How many errors could not be corrected, in all parts together.
    pub fn uncorrected_total(&self) -> u64 {
        self.uncorrected.iter().flat_map(BTreeMap::values).fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// A count, where it is not zero.
fn some(count: Option<u64>) -> Option<u64> {
    count.filter(|count| *count > 0)
}

/// Why a device's hardware slows it down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slowdown {
    /// It is too warm.
    Heat,
    /// Its power supply demands it.
    PowerBrake,
    /// The driver does not say more.
    Hardware,
}

impl fmt::Display for Slowdown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Heat => "it is too warm",
            Self::PowerBrake => "its power supply demands it",
            Self::Hardware => "it is too warm, draws too much power, or its power supply demands it",
        })
    }
}

/// What a driver needs before a device can be relied on (`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recovery {
    /// Nothing: it is healthy.
    Nothing,
    /// A reset of the device.
    Reset,
    /// A restart of the machine.
    Reboot,
    /// Nothing that uses its links to other devices may run until those have been drained.
    DrainLinks,
    /// No new work, and then a reset of the device.
    DrainAndReset,
    /// Recovery of the domain of machines that share its memory.
    RecoverDomain,
    /// Something that this version does not know.
    Other(u32),
}

impl Recovery {
    /// What NVML's number means.
    pub fn of(number: u32) -> Self {
        match number {
            0 => Self::Nothing,
            1 | 6 => Self::Reset,
            2 | 7 => Self::Reboot,
            3 => Self::DrainLinks,
            4 => Self::DrainAndReset,
            5 => Self::RecoverDomain,
            other => Self::Other(other),
        }
    }

    /// The same, where it is not nothing.
    pub fn needed(self) -> Option<Self> {
        Some(self).filter(|recovery| *recovery != Self::Nothing)
    }

    /// Whether nobody may be given the device before that was done.
    pub fn keeps_out_of_service(self) -> bool {
        matches!(self, Self::Reset | Self::Reboot | Self::DrainAndReset)
    }
}

impl Serialize for Recovery {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => formatter.write_str("nothing"),
            Self::Reset => formatter.write_str("a reset of the device"),
            Self::Reboot => formatter.write_str("a restart of the machine"),
            Self::DrainLinks => formatter.write_str("its links to other devices drained"),
            Self::DrainAndReset => formatter.write_str("no new work and then a reset of the device"),
            Self::RecoverDomain => formatter.write_str("its domain of shared memory (IMEX) recovered"),
            Self::Other(number) => write!(formatter, "recovery action {number}"),
        }
    }
}

/// An error that a driver reported of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceError {
    /// The device's place among those that were asked about.
    pub place: usize,
    /// What it is.
    pub fault: DeviceFault,
    /// Whether it happened in another instance of the same GPU, as far as the driver tells where.
    pub is_elsewhere: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_is_said_of_is_not_called_well() {
        assert!(!Health::default().is_told());
        let counted = |errors: &[(&str, u64)]| Health {
            uncorrected: Some(errors.iter().map(|(part, count)| ((*part).to_owned(), *count)).collect()),
            ..Health::default()
        };
        assert!(counted(&[("umc", 0)]).is_told());
        assert_eq!(counted(&[("umc", 2), ("sdma", u64::MAX)]).uncorrected_total(), u64::MAX);
        assert!(Health { condition: Some(DriverWord::Works), ..Health::default() }.is_told());
        assert!(Health { double_bit_errors: Some(0), ..Health::default() }.is_told());
        assert!(!Health { slowed: Some(Slowdown::Heat), ..Health::default() }.is_told(), "a hot device may be well");
    }

    #[test]
    fn a_device_has_notes_where_there_is_something_to_be_known() {
        let quiet = Health { double_bit_errors: Some(0), single_bit_errors: Some(0), ..Health::default() };
        for health in [
            Health { is_remap_pending: true, ..quiet.clone() },
            Health { is_retirement_pending: true, ..quiet.clone() },
            Health { double_bit_errors: Some(1), ..quiet.clone() },
            Health { single_bit_errors: Some(1), ..quiet.clone() },
        ] {
            assert!(health.has_notes() && health.notes().len() == 1, "{health:?}");
        }
        assert!(!quiet.has_notes() && quiet.notes().is_empty());
        let of = |errors| Health { single_bit_errors: Some(errors), ..Health::default() }.notes();
        assert_eq!(of(10), ["10 or more single-bit errors of its memory, corrected, since its driver was loaded"]);
        assert_eq!(of(99), of(10), "not each of them is news");
    }

    #[test]
    fn a_reset_and_a_restart_keep_a_device_out_of_service_and_its_links_do_not() {
        let kept: Vec<u32> = (0..10).filter(|number| Recovery::of(*number).keeps_out_of_service()).collect();
        assert_eq!(kept, [1, 2, 4, 6, 7]);
        assert_eq!(Recovery::of(9), Recovery::Other(9));
    }
}
