//! Template process and daemon.

use super::DeviceNumber;
use oxiray_fields::Fields;

/// template → daemon: imports are done, forks are served.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct TemplateReady {
    /// Seconds since the template started, in microseconds.
    #[field(1)]
    pub started_us: u64,
    /// What the users of its workers should know: why it could not import beforehand what it was asked to.
    #[field(2)]
    pub notice: String,
}

/// daemon → template, with three descriptors: the worker's control stream, its standard output, its standard error.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Fork {
    /// Names the worker to be.
    #[field(1)]
    pub request: u64,
    /// The files by which the worker enters its control groups, before anything else.
    #[field(2)]
    pub groups: Vec<String>,
    /// Those without which it is not to begin: they keep it from devices.
    #[field(3)]
    pub fences: Vec<String>,
    /// The nodes of the machine's devices: the template is to have none of them open.
    #[field(4)]
    pub devices: Vec<DeviceNumber>,
    /// Whether the worker is forked even where the template has one of them open: no other template would have none.
    #[field(5)]
    pub even_with_devices: bool,
}

/// template → daemon: this process has a device open, so that what is forked from it is not safe. Said once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct TemplateHolds {
    /// The name under which the device was opened.
    #[field(1)]
    pub path: String,
    /// Which it is.
    #[field(2)]
    pub number: Option<DeviceNumber>,
}

/// template → daemon: the worker runs. With the three descriptors that came with the order where it was not forked for a device
/// that the template has open.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Forked {
    /// The request.
    #[field(1)]
    pub request: u64,
    /// Its process id; 0 where the fork failed.
    #[field(2)]
    pub pid: u32,
    /// Why it failed.
    #[field(3)]
    pub text: String,
    /// Whether another template may have it forked with these descriptors: this one has a device open.
    #[field(4)]
    pub is_given_back: bool,
}

/// template → daemon: a worker and every process that descends from it are dead and reaped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct Gone {
    /// The worker's process id.
    #[field(1)]
    pub pid: u32,
    /// The worker's wait status, as the kernel gave it.
    #[field(2)]
    pub status: i32,
    /// How many of its descendants had to be killed after it.
    #[field(3)]
    pub stragglers: u32,
}
