//! Template process and daemon.

/// template → daemon: imports are done, forks are served.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TemplateReady {
    /// Seconds since the template started, in microseconds.
    #[prost(uint64, tag = "1")]
    pub started_us: u64,
    /// What the users of its workers should know: why it could not import beforehand what it was asked to.
    #[prost(string, tag = "2")]
    pub notice: String,
}

/// daemon → template, with three descriptors: the worker's control stream, its standard output, its standard error.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Fork {
    /// Names the worker to be.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// The files by which the worker enters its control groups, before anything else.
    #[prost(string, repeated, tag = "2")]
    pub groups: Vec<String>,
}

/// template → daemon: the worker runs.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Forked {
    /// The request.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Its process id; 0 where the fork failed.
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// Why it failed.
    #[prost(string, tag = "3")]
    pub text: String,
}

/// template → daemon: a worker and every process that descends from it are dead and reaped.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Gone {
    /// The worker's process id.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    /// The worker's wait status, as the kernel gave it.
    #[prost(int32, tag = "2")]
    pub status: i32,
    /// How many of its descendants had to be killed after it.
    #[prost(uint32, tag = "3")]
    pub stragglers: u32,
}
