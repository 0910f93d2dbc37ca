//! Coming and going: clients, the command line, and the daemon.

use super::{Amount, Environment, Newcomer, Returning};
use bytes::Bytes;
use oxiray_fields::Fields;
use oxiray_ids::{JobId, NodeId, WorkerId};
use std::collections::BTreeMap;

/// client → daemon, the first message on a connection.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Hello {
    /// The session's secret, from its 0600 file or the environment of a child.
    #[field(1)]
    pub token: String,
    /// What the client is; absent on connections that only query or stop (the command line).
    #[field(2)]
    pub driver: Option<Driver>,
    /// The node that wants to be part of the cluster.
    #[field(3)]
    pub node: Option<Newcomer>,
    /// Who the driver is, where a head that is gone had let it in.
    #[field(4)]
    pub returning: Option<Returning>,
    /// Whether a visitor gives no orders: those that it gives all the same are refused.
    #[field(5)]
    pub reads_only: bool,
}

/// What a driver tells of itself.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Driver {
    /// Its process id; checked against the socket's.
    #[field(1)]
    pub pid: u32,
    /// The Python interpreter that runs it: its workers run the same.
    #[field(2)]
    pub interpreter: String,
    /// `sys.path` and the like, opaque to the daemon, handed to each worker in [`Assign`].
    #[field(3)]
    pub setup: Bytes,
    /// Where its actors' names live; empty for one of its own.
    #[field(4)]
    pub namespace: String,
    /// Whether it wants its workers' output.
    #[field(5)]
    pub wants_logs: bool,
    /// The job's runtime environment.
    #[field(6)]
    pub environment: Option<Environment>,
    /// The command that started it.
    #[field(9)]
    pub entrypoint: String,
    /// When it joined, in milliseconds since 1970, by its own clock.
    #[field(10)]
    pub started_ms: u64,
    /// What its user notes of the job, for listings. `job_submission_id` names the submitted job that it belongs to.
    #[field(12)]
    pub metadata: BTreeMap<String, String>,
    /// The job's runtime environment as its user wrote it, for listings: JSON; empty for none.
    #[field(13)]
    pub runtime_env: String,
}

/// daemon → client: let in.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Welcome {
    /// `NodeId` of the daemon.
    #[field(1)]
    pub node: NodeId,
    /// `WorkerId` of the client.
    #[field(2)]
    pub worker: WorkerId,
    /// `JobId` of the driver.
    #[field(3)]
    pub job: JobId,
    /// The job's namespace.
    #[field(4)]
    pub namespace: String,
    /// The session's directory.
    #[field(5)]
    pub session: String,
    /// Address that `init(address=…)` takes, such as `127.0.0.1:6379`.
    #[field(6)]
    pub address: String,
    /// What the machine offers, in whole.
    #[field(7)]
    pub totals: Vec<Amount>,
    /// Counts the heads of this cluster; 0 where the end of this one is final.
    #[field(8)]
    pub epoch: u64,
    /// Whether the daemon itself comes back, at the same socket, should it be killed.
    #[field(9)]
    pub comes_back: bool,
}

/// daemon → client: not let in, or not any more; the connection ends.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Refused {
    /// Why, and what to do.
    #[field(1)]
    pub text: String,
}

/// driver → daemon: the job is over. The daemon ends the job's work, sends its last [`LogLines`] and closes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Goodbye {
    /// The exception that ended the driver's program, for listings; empty where it ended without one.
    #[field(1)]
    pub error: String,
}

/// command line → daemon: end the session and everything in it. The daemon closes once all is gone.
/// daemon → worker: leave when what was sent so far is done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Stop {}
