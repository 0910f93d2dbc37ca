//! How a driver is let in again by a daemon that was gone and comes back.

use oxiray_wire::message::Driver;
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

/// How a driver is let in again.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The session's secret.
    pub token: String,
    /// What it told of itself when it came.
    pub driver: Driver,
}

/// Starts the search for the daemon, which ends where the sender of this channel is gone.
type Search = Box<dyn Fn(Receiver<()>) -> io::Result<()> + Send>;

/// How a driver finds its daemon again.
pub(crate) struct DaemonReconnect {
    search: Search,
    /// With the sender goes the thread that looks for the daemon.
    searching: Option<Sender<()>>,
}

impl DaemonReconnect {
    /// `search` starts a thread that looks for the daemon.
    pub(crate) fn new(search: impl Fn(Receiver<()>) -> io::Result<()> + Send + 'static) -> Self {
        Self { search: Box::new(search), searching: None }
    }

    /// Starts the thread that looks for the daemon; `false` where that cannot be done.
    pub(crate) fn begin_to_look(&mut self) -> bool {
        let (sender, given_up) = channel();
        self.searching = Some(sender);
        (self.search)(given_up).is_ok()
    }

    /// The daemon is found; whether it was looked for.
    pub(crate) fn found(&mut self) -> bool {
        self.searching.take().is_some()
    }
}

impl fmt::Debug for DaemonReconnect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DaemonReconnect")
            .field("is_searching", &self.searching.is_some())
            .finish_non_exhaustive()
    }
}
