//! Why a daemon does not start.

use crate::authority_file::AuthorityFault;
use crate::config::PlanError;
use crate::join::JoinError;
use oxiray_processes::ReaperError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long what a killed head started may take to end.
pub(crate) const LEFTOVERS_LIMIT: Duration = Duration::from_secs(10);

/// Why a daemon did not start, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What was asked for does not fit the machine.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A variable about errors of devices makes no sense.
    #[error(transparent)]
    Xids(#[from] oxiray_families::XidRuleError),
    /// Child processes cannot be watched.
    #[error(transparent)]
    ChildReaper(#[from] ReaperError),
    /// The cluster to join does not let this node in.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Another session has the port.
    #[error("a session of this user has port {port} already ({}): stop it with `oxiray stop`, or choose another --port", directory.display())]
    PortTaken {
        /// The port.
        port: u16,
        /// The session that has it.
        directory: PathBuf,
    },
    /// Nodes of other machines could not come.
    #[error(
        "this node cannot listen at {address} for nodes of other machines: {source}. Choose another --port, or name one of this machine's addresses with --node-ip-address"
    )]
    Listen {
        /// Where it was to listen.
        address: SocketAddr,
        /// What happened.
        source: io::Error,
    },
    /// The head's journal cannot be used.
    #[error(transparent)]
    Journal(#[from] oxiray_journal::Fault),
    /// What the head that was killed had started may hold devices.
    #[error(
        "processes that the killed head started have not ended {} s after they were killed, and may hold devices: {pids:?}. Start it again when they are gone, or begin anew with `oxiray start --head --fresh`", LEFTOVERS_LIMIT.as_secs()
    )]
    Leftovers {
        /// The processes.
        pids: Vec<u32>,
    },
    /// What is to be the store is none.
    #[error("{0}")]
    Store(String),
    /// etcd cannot know this head.
    #[error(transparent)]
    Access(#[from] oxiray_journal::AccessFault),
    /// Another head has the store.
    #[error("the cluster in {store} has a head: {holder}. Start this one with --standby, to go on where that one ends")]
    HeadElsewhere {
        /// The store.
        store: String,
        /// Who has it.
        holder: String,
    },
    /// A standby waited for a cluster that was ended.
    #[error(
        "the cluster in {store} was ended with `oxiray stop`, and so is its standby: start it anew without --standby"
    )]
    Over {
        /// The store.
        store: String,
    },
    /// It was asked to end while it waited.
    #[error("it was asked to end while it waited")]
    Stopped,
    /// What the head's journal holds cannot be read.
    #[error(transparent)]
    Rows(#[from] oxiray_head::NotRestored),
    /// The authority that was given is none.
    #[error(transparent)]
    AuthorityFile(#[from] AuthorityFault),
    /// No certificates can be made.
    #[error(transparent)]
    Authority(#[from] oxiray_network::AuthorityError),
    /// The operating system refused.
    #[error("the daemon cannot {step}: {source}")]
    System {
        /// What for.
        step: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// What the daemon was doing when the operating system refused.
pub(crate) trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, StartError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, StartError> {
        self.map_err(|error| StartError::System { step, source: error.into() })
    }
}
