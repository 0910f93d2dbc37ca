//! Where a request comes from, and where what it reads lies.

use oxiray_ids::NodeId;

/// Arguments of fewer bytes than this on a machine draw nothing there: to fetch them takes no longer than to start.
pub const LARGE_BYTES_MIN: u64 = 1 << 20;

/// The machines that are better than others for one request, for what it would have to fetch elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Near<'request> {
    /// The machine that it comes from.
    pub home: Option<NodeId>,
    /// How many bytes of its arguments lie on which machine.
    pub arguments: &'request [(NodeId, u64)],
}

impl<'request> Near<'request> {
    /// A request from `home` that reads nothing large.
    pub fn home(home: NodeId) -> Self {
        Self { home: Some(home), arguments: &[] }
    }

    /// The machines with a large part of the arguments, those with most first; equals in the order given.
    pub(crate) fn with_arguments(&self) -> Vec<NodeId> {
        let mut large: Vec<&'request (NodeId, u64)> =
            self.arguments.iter().filter(|(_, bytes)| *bytes >= LARGE_BYTES_MIN).collect();
        large.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        large.into_iter().map(|(node, _)| *node).collect()
    }
}
