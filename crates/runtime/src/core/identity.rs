//! Who a process is in its cluster.

use oxiray_ids::{JobId, NodeId, WorkerId};

/// Who this process is in its cluster.
#[derive(Debug, Clone)]
pub struct Identity {
    /// This machine.
    pub node: NodeId,
    /// This process.
    pub worker: WorkerId,
    /// The job it works for.
    pub job: JobId,
    /// Where names live.
    pub namespace: String,
    /// The session's directory.
    pub session: String,
    /// What `init(address=…)` takes to come here.
    pub address: String,
    /// Counts the heads of this cluster when the process came; 0 where the end of this one is final.
    pub epoch: u64,
}
