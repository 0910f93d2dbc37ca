//! How the devices of one machine are connected with each other.

use serde::{Serialize, Serializer};
use std::fmt;

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
    const fn word(self) -> &'static str {
        match self {
            Self::Board => "BRD",
            Self::Switch => "PIX",
            Self::Switches => "PXB",
            Self::HostBridge => "PHB",
            Self::Numa => "NODE",
            Self::System => "SYS",
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
}

impl Pair {
    /// How near they are: the larger the nearer.
    pub fn nearness(&self) -> u32 {
        self.way.nearness() + 100 * self.links
    }

    /// Reads what follows `pair=` in recorded answers: `0:1:NODE` or `0:1:NODE,NV4`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (one, other, how) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
        let (way, links) = how.split_once(",NV").unwrap_or((how, "0"));
        let way = BusWay::ALL.into_iter().find(|known| known.word() == way)?;
        Some(Self { one, other, way, links: links.parse().ok()? })
    }
}

impl fmt::Display for Pair {
    /// As `nvidia-smi topo -m` writes it: links where there are any, and the way otherwise.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.links {
            0 => formatter.write_str(self.way.word()),
            links => write!(formatter, "NV{links}"),
        }
    }
}

impl Serialize for Pair {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.one, self.other, self.way.word(), self.links).serialize(serializer)
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
        assert!(BusWay::ALL.windows(2).all(|ways| ways[0].nearness() > ways[1].nearness()));
        assert_eq!((pair("2:3:PIX").to_string(), pair("2:3:NODE,NV12").to_string()), ("PIX".into(), "NV12".into()));
        for wrong in ["", "0:1", "0:1:NV4", "0:x:SYS", "0:1:SYS,NV"] {
            assert_eq!(Pair::parse(wrong), None, "{wrong}");
        }
    }
}
