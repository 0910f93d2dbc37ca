//! NVIDIA's Xids: the numbers under which its driver reports errors, and what each says of the device.
//!
//! The classes follow the immediate actions of NVIDIA's catalogue of Xid errors and, for what applications cause, the list
//! that Kubernetes' device plugin ignores. Where the driver itself says what it needs ([`Recovery`](crate::Recovery)), that
//! decides over this table.

use std::collections::BTreeSet;
use std::fmt;

/// What an Xid says of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum XidClass {
    /// What runs on the device caused it, or it concerns that alone. It is not held against the device.
    Application,
    /// A link to other devices failed. Its driver says whether links may be used on.
    Link,
    /// The hardware failed and contained it: what runs there may be hurt, and the device goes on.
    Contained,
    /// It is worth counting, and nothing more.
    Note,
    /// The device needs a reset before it can be relied on.
    Reset,
    /// The device does not answer any more.
    Gone,
}

impl XidClass {
    /// Whether it says something of the instance of a GPU alone in which it happened, and not of the whole GPU.
    pub fn is_of_one_instance(self) -> bool {
        matches!(self, Self::Application | Self::Contained)
    }
}

/// What a driver reports of a device as it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceFault {
    /// An Xid.
    Xid(u32),
    /// An error of two bits in a word of its memory, which cannot be corrected.
    DoubleBit,
    /// Data that an error had spoilt came to where the device cannot bear it.
    Poison,
    /// It cannot be used.
    Unavailable,
    /// What it needs before it can be relied on is another thing now.
    OtherRecovery,
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(xid) => XidText(*xid).fmt(formatter),
            Self::DoubleBit => formatter.write_str("a double-bit error of its memory"),
            Self::Poison => formatter.write_str("a fatal use of data that an error of its memory had spoilt"),
            Self::Unavailable => formatter.write_str("that it is unavailable"),
            Self::OtherRecovery => formatter.write_str("that it needs another recovery action"),
        }
    }
}

/// The Xids of each class; all others are notes.
const CLASSES: &[(XidClass, &[u32])] = &[
    (
        XidClass::Application,
        &[
            8, 11, 13, 25, 31, 32, 39, 40, 41, 43, 44, 45, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86,
            88, 89, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 109, 126, 127, 128, 129, 130, 131, 132, 133, 134,
            135, 139,
        ],
    ),
    (XidClass::Link, &[74, 144, 145, 146, 147, 148, 149, 150]),
    (XidClass::Contained, &[94]),
    (XidClass::Reset, &[46, 48, 62, 64, 95, 110, 119, 120, 136, 140, 143, 155, 156, 158]),
    (XidClass::Gone, &[54, 79, 151]),
];

/// What the commoner ones mean.
const MEANINGS: &[(u32, &str)] = &[
    (8, "the GPU stopped processing"),
    (13, "an exception of the graphics engine: an illegal address or instruction"),
    (31, "a memory page fault: an illegal address"),
    (32, "an invalid or corrupted push buffer"),
    (43, "the GPU stopped processing a channel"),
    (45, "work was removed after an earlier error, or since its process ended"),
    (46, "the GPU stopped processing"),
    (48, "a double-bit ECC error"),
    (54, "auxiliary power is not connected"),
    (62, "the internal micro-controller halted"),
    (63, "a row of memory is to be remapped"),
    (64, "a row of memory could not be remapped"),
    (69, "an error of a graphics engine class"),
    (74, "an NVLink error"),
    (79, "the GPU has fallen off the bus"),
    (92, "a high rate of single-bit ECC errors"),
    (94, "a contained ECC error of memory"),
    (95, "an uncontained ECC error of memory"),
    (109, "a context switch timed out"),
    (110, "a security fault"),
    (119, "the GPU's system processor did not answer a call"),
    (120, "an error of the GPU's system processor"),
    (121, "a corrected error of the chip-to-chip link"),
    (136, "a link could not be trained"),
    (140, "an unrecovered ECC error"),
    (143, "the GPU could not be initialised"),
    (144, "an NVLink error"),
    (145, "an NVLink error"),
    (146, "an NVLink error"),
    (147, "an NVLink error"),
    (148, "an NVLink error"),
    (149, "an NVLink error"),
    (150, "an NVLink error"),
    (151, "the key rotation of a confidential GPU failed"),
    (154, "the recovery action that the GPU needs has changed"),
    (158, "a fatal timeout of the GPU"),
];

/// How Xids are taken: NVIDIA's way, but for those that a user has said otherwise of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XidRules {
    fatal: BTreeSet<u32>,
    ignored: BTreeSet<u32>,
}

/// The variable that names Xids after which a device is out of service.
pub const XIDS_FATAL_VARIABLE: &str = "OXIRAY_XIDS_FATAL";
/// The variable that names Xids of which nothing is made.
pub const XIDS_IGNORE_VARIABLE: &str = "OXIRAY_XIDS_IGNORE";

impl XidRules {
    /// The rules with what the two variables say.
    ///
    /// # Errors
    /// Where one has something else than numbers between commas, or both name the same one.
    pub fn of(fatal: Option<&str>, ignored: Option<&str>) -> Result<Self, XidRuleError> {
        let rules = Self {
            fatal: numbers(XIDS_FATAL_VARIABLE, fatal.unwrap_or_default())?,
            ignored: numbers(XIDS_IGNORE_VARIABLE, ignored.unwrap_or_default())?,
        };
        match rules.fatal.intersection(&rules.ignored).next() {
            Some(both) => Err(XidRuleError::Both(*both)),
            None => Ok(rules),
        }
    }

    /// What a fault says of its device; nothing where the user said that it says nothing. Whether a double-bit error takes the
    /// device out of service, the Xid says that comes with it.
    pub fn class_of_fault(&self, fault: DeviceFault) -> Option<XidClass> {
        match fault {
            DeviceFault::Xid(xid) => self.class_of(xid),
            DeviceFault::OtherRecovery => Some(XidClass::Note),
            DeviceFault::DoubleBit => Some(XidClass::Contained),
            DeviceFault::Poison | DeviceFault::Unavailable => Some(XidClass::Reset),
        }
    }

    /// What an Xid says of its device; nothing where the user said that it says nothing.
    pub fn class_of(&self, xid: u32) -> Option<XidClass> {
        if self.ignored.contains(&xid) {
            return None;
        }
        if self.fatal.contains(&xid) {
            return Some(XidClass::Reset);
        }
        let known = CLASSES.iter().find(|(_, xids)| xids.contains(&xid));
        Some(known.map_or(XidClass::Note, |(class, _)| *class))
    }
}

fn numbers(variable: &'static str, text: &str) -> Result<BTreeSet<u32>, XidRuleError> {
    let given = text.split(',').map(str::trim).filter(|number| !number.is_empty());
    let number = |number: &str| {
        number.parse().map_err(|_| XidRuleError::NoNumber { variable, value: text.to_owned(), part: number.to_owned() })
    };
    given.map(number).collect()
}

/// Why rules for Xids cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XidRuleError {
    /// Something is no number.
    #[error(
        "{variable} is `{value}`, of which `{part}` is no Xid: give numbers with commas between them, such as `48,95`"
    )]
    NoNumber {
        /// The variable.
        variable: &'static str,
        /// What it is set to.
        value: String,
        /// The part of that which is no number.
        part: String,
    },
    /// One Xid is to be both.
    #[error("Xid {0} stands in {XIDS_FATAL_VARIABLE} and in {XIDS_IGNORE_VARIABLE}: remove it from one of them")]
    Both(u32),
}

/// An Xid as people read it: its number and what it means.
#[derive(Debug, Clone, Copy)]
pub struct XidText(
    /// The number.
    pub u32,
);

impl fmt::Display for XidText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meaning = MEANINGS.iter().find(|(xid, _)| *xid == self.0);
        let meaning = meaning.map_or("see NVIDIA's catalogue of Xid errors", |(_, meaning)| meaning);
        write!(formatter, "Xid {} ({meaning})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_xid_is_of_the_class_of_the_specification() {
        let rules = XidRules::default();
        let ranges =
            |list: &[(u32, u32)]| list.iter().flat_map(|(first, last)| *first..=*last).collect::<BTreeSet<u32>>();
        let application = ranges(&[
            (8, 8),
            (11, 11),
            (13, 13),
            (25, 25),
            (31, 32),
            (39, 41),
            (43, 45),
            (60, 60),
            (68, 72),
            (75, 77),
            (80, 80),
            (82, 86),
            (88, 89),
            (96, 105),
            (109, 109),
            (126, 135),
            (139, 139),
        ]);
        let reset = ranges(&[
            (46, 46),
            (48, 48),
            (62, 62),
            (64, 64),
            (95, 95),
            (110, 110),
            (119, 120),
            (136, 136),
            (140, 140),
            (143, 143),
            (155, 156),
            (158, 158),
        ]);
        for xid in 0..=200 {
            let wanted = match xid {
                74 | 144..=150 => XidClass::Link,
                94 => XidClass::Contained,
                54 | 79 | 151 => XidClass::Gone,
                _ if application.contains(&xid) => XidClass::Application,
                _ if reset.contains(&xid) => XidClass::Reset,
                _ => XidClass::Note,
            };
            assert_eq!(rules.class_of(xid), Some(wanted), "Xid {xid}");
        }
    }

    #[test]
    fn what_an_application_caused_and_what_was_contained_is_of_one_instance() {
        let of_one: Vec<u32> = (0..200)
            .filter(|xid| XidRules::default().class_of(*xid).is_some_and(XidClass::is_of_one_instance))
            .collect();
        assert!([13, 31, 43, 94].iter().all(|xid| of_one.contains(xid)), "{of_one:?}");
        assert!([48, 63, 74, 79, 95, 119].iter().all(|xid| !of_one.contains(xid)), "{of_one:?}");
    }

    #[test]
    fn a_user_may_say_otherwise_of_some() {
        let rules = XidRules::of(Some("31, 74"), Some("95")).unwrap();
        assert_eq!(rules.class_of(31), Some(XidClass::Reset));
        assert_eq!(rules.class_of(74), Some(XidClass::Reset));
        assert_eq!(rules.class_of(95), None);
        assert_eq!(rules.class_of(48), Some(XidClass::Reset), "as NVIDIA says");
        assert_eq!(XidRules::of(None, Some("")).unwrap(), XidRules::default());
        let wrong = XidRules::of(Some("48,all"), None).unwrap_err().to_string();
        assert!(wrong.contains("OXIRAY_XIDS_FATAL") && wrong.contains("`all`"), "{wrong}");
        assert_eq!(XidRules::of(Some("48"), Some("13,48")), Err(XidRuleError::Both(48)));
    }

    #[test]
    fn an_xid_is_shown_with_its_meaning_where_that_is_known() {
        assert_eq!(XidText(79).to_string(), "Xid 79 (the GPU has fallen off the bus)");
        assert_eq!(XidText(999).to_string(), "Xid 999 (see NVIDIA's catalogue of Xid errors)");
        for (xid, _) in MEANINGS {
            assert_eq!(MEANINGS.iter().filter(|(other, _)| other == xid).count(), 1, "{xid} stands once");
        }
    }
}
