//! Devices whose links to others are not to be used for now, as their drivers say.
//!
//! - LINKS-1: an error of a link changes nothing by itself: that its driver needs the links drained does.
//! - LINKS-2: a device whose links are drained is granted by itself alone, until its driver needs nothing.
//! - LINKS-3: while a driver needs the domain of shared memory recovered that machines are in together, this one is not in it.

use crate::device_checks::DeviceSlot;
use oxiray_families::{DOMAIN_LABEL, Recovery, XidText};
use std::collections::{BTreeMap, BTreeSet};

/// Which devices' links are drained, and which have lost their domain.
#[derive(Debug, Default)]
pub(crate) struct DeviceLinks {
    /// The last error of a link of each.
    errors: BTreeMap<DeviceSlot, u32>,
    drained: BTreeSet<DeviceSlot>,
    without_domain: BTreeSet<DeviceSlot>,
}

/// Whether a device may be granted along with others, where that has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinksChange {
    /// It may not any more.
    Drained,
    /// It may again.
    Restored,
}

impl DeviceLinks {
    /// A driver reported an error of a link (LINKS-1).
    pub(crate) fn error(&mut self, device: &DeviceSlot, xid: u32) {
        self.errors.insert(device.clone(), xid);
    }

    /// What the driver of a device needs now; nothing where it does not tell.
    pub(crate) fn seen(&mut self, device: &DeviceSlot, needs: Option<Recovery>) -> Option<LinksChange> {
        match needs {
            Some(Recovery::DrainLinks) => self.drained.insert(device.clone()).then_some(LinksChange::Drained),
            Some(Recovery::RecoverDomain) => {
                self.without_domain.insert(device.clone());
                None
            }
            Some(Recovery::Nothing) => {
                self.without_domain.remove(device);
                self.drained.remove(device).then(|| {
                    self.errors.remove(device);
                    LinksChange::Restored
                })
            }
            _ => None,
        }
    }

    /// Whether a device is granted by itself alone (LINKS-2).
    pub(crate) fn are_drained(&self, device: &DeviceSlot) -> bool {
        self.drained.contains(device)
    }

    /// The labels of the machine that do not hold for now (LINKS-3).
    pub(crate) fn withdrawn_labels(&self) -> Vec<String> {
        if self.without_domain.is_empty() { Vec::new() } else { vec![DOMAIN_LABEL.to_owned()] }
    }

    /// Why a device is granted by itself alone.
    pub(crate) fn why_drained(&self, device: &DeviceSlot) -> Option<String> {
        let after = self.errors.get(device).map(|xid| format!(", after {}", XidText(*xid))).unwrap_or_default();
        let needs = Recovery::DrainLinks;
        self.are_drained(device).then(|| format!("granted only by itself: its driver needs {needs}{after}"))
    }

    /// What is to be known of a device.
    pub(crate) fn notes(&self, device: &DeviceSlot) -> impl Iterator<Item = String> {
        let without = self.without_domain.contains(device).then(|| {
            let needs = Recovery::RecoverDomain;
            format!("its driver needs {needs}: the label `{DOMAIN_LABEL}` of its node is withdrawn until then")
        });
        self.why_drained(device).into_iter().chain(without)
    }

    /// The devices of which there is something to be known.
    pub(crate) fn noted(&self) -> impl Iterator<Item = &DeviceSlot> {
        self.drained.iter().chain(&self.without_domain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(slot: u32) -> DeviceSlot {
        ("GPU".to_owned(), slot)
    }

    #[test]
    fn links_are_drained_when_the_driver_says_so_and_until_it_needs_nothing() {
        let mut links = DeviceLinks::default();
        links.error(&gpu(1), 74);
        assert!(!links.are_drained(&gpu(1)) && links.noted().next().is_none(), "LINKS-1");
        assert_eq!(links.seen(&gpu(1), Some(Recovery::DrainLinks)), Some(LinksChange::Drained));
        assert_eq!(links.seen(&gpu(1), Some(Recovery::DrainLinks)), None, "said once");
        for other in [None, Some(Recovery::Reset), Some(Recovery::RecoverDomain), Some(Recovery::Other(9))] {
            assert_eq!(links.seen(&gpu(1), other), None, "LINKS-2: it is not said that they may be used again");
        }
        let why = links.why_drained(&gpu(1)).expect("they are drained");
        assert_eq!(
            why,
            "granted only by itself: its driver needs its links to other devices drained, after Xid 74 (an NVLink error)"
        );
        assert_eq!(links.seen(&gpu(1), Some(Recovery::Nothing)), Some(LinksChange::Restored));
        assert_eq!(links.seen(&gpu(1), Some(Recovery::Nothing)), None);
        assert_eq!(links.seen(&gpu(1), Some(Recovery::DrainLinks)), Some(LinksChange::Drained), "by itself");
        assert!(!links.why_drained(&gpu(1)).expect("they are drained").contains("Xid"), "that error is over");
    }

    #[test]
    fn the_label_of_the_domain_is_withdrawn_while_one_device_is_without_it() {
        let mut links = DeviceLinks::default();
        assert_eq!(links.withdrawn_labels(), [""; 0]);
        for slot in [0, 1] {
            assert_eq!(links.seen(&gpu(slot), Some(Recovery::RecoverDomain)), None);
        }
        links.seen(&gpu(0), Some(Recovery::Nothing));
        links.seen(&gpu(1), None);
        assert_eq!(links.withdrawn_labels(), ["ray.io/gpu-domain"], "LINKS-3");
        assert_eq!(links.notes(&gpu(0)).count(), 0);
        assert!(links.notes(&gpu(1)).all(|note| note.contains("(IMEX) recovered: the label `ray.io/gpu-domain`")));
        links.seen(&gpu(1), Some(Recovery::Nothing));
        assert_eq!(links.withdrawn_labels(), [""; 0]);
    }
}
