//! How the devices of one machine are connected with each other.

use serde::{Serialize, Serializer};
use std::fmt;

/// How much nearer each link of their own brings two devices.
const LINK: u32 = 100;

/// What the way over the bus between two devices leads through, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BusWay {
    /// They are on one board.
    Board,
    /// One PCIe switch.
    Switch,
    /// Several PCIe switches, and no host bridge.
    Switches,
    /// One host bridge.
    HostBridge,
    /// Host bridges of one NUMA node.
    Numa,
    /// The link between NUMA nodes.
    System,
}

impl BusWay {
    const ALL: [Self; 6] = [Self::Board, Self::Switch, Self::Switches, Self::HostBridge, Self::Numa, Self::System];

    /// The word for it that `nvidia-smi topo` has; a board is called `BRD` here.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Board => "BRD",
            Self::Switch => "PIX",
            Self::Switches => "PXB",
            Self::HostBridge => "PHB",
            Self::Numa => "NODE",
            Self::System => "SYS",
        }
    }

    /// What the word stands for.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Board => "one board",
            Self::Switch => "one PCIe switch",
            Self::Switches => "several PCIe switches, and no host bridge",
            Self::HostBridge => "one host bridge",
            Self::Numa => "host bridges of one NUMA node",
            Self::System => "the link between NUMA nodes",
        }
    }

    /// How near that is, as NVIDIA's own allocator for Kubernetes rates it.
    const fn nearness(self) -> u32 {
        match self {
            Self::Board => 60,
            Self::Switch => 50,
            Self::Switches => 40,
            Self::HostBridge => 30,
            Self::Numa => 20,
            Self::System => 10,
        }
    }
}

/// Links that devices have between them beside the bus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkKind {
    /// NVIDIA's.
    #[default]
    NvLink,
    /// AMD's.
    Xgmi,
}

impl LinkKind {
    /// What comes before their number.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NvLink => "NV",
            Self::Xgmi => "XGMI",
        }
    }
}

/// Why two devices do not reach each other's memory though they have links between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerFault {
    /// The machine's chipset does not bear it.
    Chipset,
    /// One of the devices does not.
    Device,
    /// Where they are on the bus does not allow it.
    Bus,
    /// A setting of the driver forbids it.
    Forbidden,
    /// The driver says that it is not supported, and not why.
    Unsupported,
    /// The driver does not say more.
    Unknown,
}

impl PeerFault {
    /// What NVML's number means (`nvmlGpuP2PStatus_t`); nothing where all is well.
    pub fn of(number: u32) -> Option<Self> {
        match number {
            0 => None,
            1 => Some(Self::Chipset),
            2 => Some(Self::Device),
            3 => Some(Self::Bus),
            4 => Some(Self::Forbidden),
            5 => Some(Self::Unsupported),
            _ => Some(Self::Unknown),
        }
    }
}

impl fmt::Display for PeerFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Chipset => "the chipset does not support it",
            Self::Device => "one of the devices does not support it",
            Self::Bus => "their places on the bus do not allow it",
            Self::Forbidden => "a setting of the driver forbids it",
            Self::Unsupported => "it is not supported",
            Self::Unknown => "the driver does not say why",
        })
    }
}

/// Two devices, by their positions, and how they are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The one with the lower position.
    pub one: usize,
    /// The other.
    pub other: usize,
    /// The way over the bus.
    pub way: BusWay,
    /// How many links of their own they have between them, such as NVLinks.
    pub links: u32,
    /// What those are.
    pub kind: LinkKind,
    /// Why they are of no use, where the driver says that they are not.
    pub fault: Option<PeerFault>,
}

impl Pair {
    /// Two devices that only the bus connects.
    pub fn on_bus(one: usize, other: usize, way: BusWay) -> Self {
        Self { one, other, way, links: 0, kind: LinkKind::NvLink, fault: None }
    }

    /// How near they are: the larger the nearer. Those whose links are of no use are as far from each other as can be.
    pub fn nearness(&self) -> u32 {
        if self.fault.is_some() { BusWay::System.nearness() } else { self.way.nearness() + LINK * self.links }
    }

    /// Reads what follows `pair=` in recorded answers: `0:1:NODE` or `0:1:NODE,NV4`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (one, other, how) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
        let (way, links) = how.split_once(",NV").unwrap_or((how, "0"));
        let way = BusWay::ALL.into_iter().find(|known| known.word() == way)?;
        Some(Self { links: links.parse().ok()?, ..Self::on_bus(one, other, way) })
    }
}

/// The words for a nearness: links where there are any, and otherwise the way over the bus.
pub fn nearness_in_words(nearness: u32) -> String {
    match nearness / LINK {
        0 => {
            let way = BusWay::ALL.into_iter().find(|way| way.nearness() <= nearness);
            way.unwrap_or(BusWay::System).word().to_owned()
        }
        // Of whichever kind: a nearness does not say.
        1 => "one direct link".to_owned(),
        links => format!("{links} direct links"),
    }
}

impl fmt::Display for Pair {
    /// As `nvidia-smi topo -m` writes it: links where there are any, and the way otherwise.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.links {
            0 => formatter.write_str(self.way.word()),
            links => write!(formatter, "{}{links}", self.kind.word()),
        }
    }
}

impl Serialize for Pair {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fault = self.fault.map(|fault| fault.to_string());
        (self.one, self.other, self.way.word(), self.links, self.to_string(), self.nearness(), fault)
            .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_count_more_than_any_way_over_the_bus() {
        let pair = |text| Pair::parse(text).unwrap();
        assert_eq!(pair("0:1:SYS,NV1").nearness(), 110);
        assert!(pair("0:1:SYS,NV1").nearness() > pair("0:1:BRD").nearness());
        assert_eq!(
            ["0:1:SYS,NV4", "0:1:PXB", "0:1:SYS"].map(|text| nearness_in_words(pair(text).nearness())),
            ["4 direct links", "PXB", "SYS"]
        );
        assert!(BusWay::ALL.windows(2).all(|ways| ways[0].nearness() > ways[1].nearness()));
        assert_eq!((pair("2:3:PIX").to_string(), pair("2:3:NODE,NV12").to_string()), ("PIX".into(), "NV12".into()));
        for wrong in ["", "0:1", "0:1:NV4", "0:x:SYS", "0:1:SYS,NV"] {
            assert_eq!(Pair::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn links_that_are_of_no_use_leave_two_as_far_from_each_other_as_can_be() {
        let pair = Pair { fault: PeerFault::of(1), ..Pair::parse("0:1:PIX,NV4").unwrap() };
        assert_eq!((pair.nearness(), pair.to_string()), (10, "NV4".to_owned()));
        assert_eq!(Pair { fault: PeerFault::of(0), ..pair }.nearness(), 450);
        let words: std::collections::BTreeSet<String> =
            (1..9).filter_map(PeerFault::of).map(|fault| fault.to_string()).collect();
        assert_eq!(words.len(), 6, "{words:?}");
    }
}
