//! Device nodes as the kernel knows them, by number, and lists of those that a fence refuses.

use crate::FenceError;
use rustix::fs::{FileType, Stat, major, minor, stat};
use rustix::io::Errno;
use std::fmt;
use std::path::Path;

/// The most rules of one list. A program then has at most 4,006 instructions, where every kernel takes 4,096.
pub(crate) const RULES_MAX: usize = 800;

/// Whether a node is of a character device or of a block device; each kind has numbers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeKind {
    /// Read and written as a stream, as GPUs are.
    Char,
    /// Read and written in blocks, as disks are.
    Block,
}

/// A device by the numbers that its nodes have, whatever their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// Which of the two sets of numbers.
    pub kind: NodeKind,
    /// The driver's number.
    pub major: u32,
    /// The driver's number for the device.
    pub minor: u32,
}

impl Node {
    /// The device of the node at a path, symbolic links followed; `None` where something else is there.
    pub fn at(path: &Path) -> Result<Option<Self>, Errno> {
        stat(path).map(|found| Self::of(&found))
    }

    pub(crate) fn of(found: &Stat) -> Option<Self> {
        let kind = match FileType::from_raw_mode(found.st_mode) {
            FileType::CharacterDevice => NodeKind::Char,
            FileType::BlockDevice => NodeKind::Block,
            _ => return None,
        };
        Some(Self { kind, major: major(found.st_rdev), minor: minor(found.st_rdev) })
    }
}

/// One device, or all devices of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DenyRule {
    /// Which of the two sets of numbers.
    pub kind: NodeKind,
    /// The driver's number.
    pub major: u32,
    /// The driver's number for the device; `None` for all.
    pub minor: Option<u32>,
}

impl DenyRule {
    /// Whether the rule is about this device.
    pub fn covers(self, node: Node) -> bool {
        self.kind == node.kind && self.major == node.major && self.minor.is_none_or(|minor| minor == node.minor)
    }
}

impl From<Node> for DenyRule {
    fn from(node: Node) -> Self {
        Self { kind: node.kind, major: node.major, minor: Some(node.minor) }
    }
}

impl fmt::Display for NodeKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if *self == Self::Char { "c" } else { "b" })
    }
}

impl fmt::Display for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}:{}", self.kind, self.major, self.minor)
    }
}

impl fmt::Display for DenyRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}:", self.kind, self.major)?;
        match self.minor {
            Some(minor) => write!(formatter, "{minor}"),
            None => formatter.write_str("*"),
        }
    }
}

/// What a fence refuses: rules in order, each once. Two lists that say the same are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DenyList(Vec<DenyRule>);

impl DenyList {
    /// A list of these rules; an error where they are too many.
    pub fn new(rules: impl IntoIterator<Item = DenyRule>) -> Result<Self, FenceError> {
        let mut rules: Vec<DenyRule> = rules.into_iter().collect();
        rules.sort_unstable();
        rules.dedup();
        if rules.len() > RULES_MAX {
            return Err(FenceError::TooManyRules { given: rules.len(), limit: RULES_MAX });
        }
        Ok(Self(rules))
    }

    /// Everything but a realm: those of `all` devices that are not in it.
    pub fn all_but(realm: &[Node], all: &[Node]) -> Result<Self, FenceError> {
        Self::new(all.iter().filter(|node| !realm.contains(node)).map(|node| DenyRule::from(*node)))
    }

    /// Its rules, in order.
    pub fn rules(&self) -> &[DenyRule] {
        &self.0
    }

    /// Whether the list refuses this device.
    pub fn refuses(&self, node: Node) -> bool {
        self.0.iter().any(|rule| rule.covers(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(minor: u32) -> Node {
        Node { kind: NodeKind::Char, major: 195, minor }
    }

    #[test]
    fn a_list_has_each_rule_once_and_in_order() {
        let rules = [node(2), node(0), node(2)].map(DenyRule::from);
        let list = DenyList::new(rules).expect("three rules");
        assert_eq!(list.rules(), [node(0), node(2)].map(DenyRule::from));
        let all = [node(0), node(1), node(2)];
        assert_eq!(DenyList::all_but(&[node(1)], &all).expect("two rules"), list);
        assert_eq!(DenyList::all_but(&all, &all).expect("no rule"), DenyList::default());
    }

    #[test]
    fn a_list_is_bounded() {
        let of = |count: u32| DenyList::new((0..count).map(|minor| DenyRule::from(node(minor))));
        assert_eq!(of(RULES_MAX as u32).expect("as many as there may be").rules().len(), RULES_MAX);
        let said = of(RULES_MAX as u32 + 1).expect_err("one too many").to_string();
        assert_eq!(said, "801 device nodes are to be refused at once, where 800 is the limit");
    }

    #[test]
    fn rules_read_as_the_kernel_writes_them() {
        let all = DenyRule { kind: NodeKind::Block, major: 7, minor: None };
        assert_eq!([DenyRule::from(node(3)).to_string(), all.to_string()], ["c 195:3", "b 7:*"]);
    }

    #[test]
    fn nodes_are_read_from_the_file_system() {
        assert_eq!(Node::at(Path::new("/dev/null")), Ok(Some(Node { kind: NodeKind::Char, major: 1, minor: 3 })));
        assert_eq!(Node::at(Path::new("/proc/self/status")), Ok(None));
        assert_eq!(Node::at(Path::new("/no/such/node")), Err(Errno::NOENT));
    }
}
