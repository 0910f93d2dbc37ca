//! The time by which certificates are valid: the head's.
//!
//! - CLOCK-1: a node takes the time from the head when it gets a certificate, and counts on from there by the kernel's
//!   clock that nobody sets. So the clocks of machines need not agree, and may be set while the cluster runs.

use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time since the machine was started, suspension included.
pub(crate) fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What time it is in the cluster (CLOCK-1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterClock {
    /// Since 1970.
    set_to: Duration,
    set_at: Duration,
}

impl ClusterClock {
    /// The machine's own: a head's.
    pub(crate) fn of_machine() -> Self {
        Self::set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// As the head has told it.
    pub(crate) fn set(set_to: Duration) -> Self {
        Self { set_to, set_at: since_boot() }
    }

    pub(crate) fn now(self) -> Duration {
        self.set_to + since_boot().saturating_sub(self.set_at)
    }
}

impl TimeProvider for ClusterClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.now()))
    }
}
