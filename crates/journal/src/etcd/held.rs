//! The lease by which a process is the head (ETCD-2).

use super::client::Client;
use crate::Fault;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often the lease is asked for within its length.
const ASKED: u32 = 3;

#[derive(Debug)]
pub(super) struct Held {
    lease: String,
    /// In nanoseconds since the machine was started.
    until: Arc<AtomicU64>,
    /// The thread ends with it.
    _end: Sender<()>,
}

/// Time since the machine was started, suspension included.
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Held {
    pub(super) fn begin(client: &Client, seconds: u64) -> Result<Self, Fault> {
        let asked = since_boot();
        let answer = client.ask("lease/grant", &json!({"TTL": seconds.to_string()}))?;
        let lease = answer["ID"].as_str().unwrap_or_default().to_owned();
        // Clocks may differ by a fifth.
        let length = Duration::from_secs(seconds) * 4 / 5;
        let until = Arc::new(AtomicU64::new((asked + length).as_nanos() as u64));
        let (end, ended) = channel::<()>();
        let keeper = (client.clone(), lease.clone(), Arc::clone(&until));
        let thread = std::thread::Builder::new().name("etcd-lease".to_owned()).spawn(move || {
            let (client, lease, until) = keeper;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_secs(seconds) / ASKED) {
                let asked = since_boot();
                let Ok(answer) = client.ask("lease/keepalive", &json!({"ID": lease})) else { continue };
                let is_held = answer["result"]["TTL"].as_str().is_some_and(|left| left != "0");
                let next = if is_held { asked + length } else { Duration::ZERO };
                until.store(next.as_nanos() as u64, Ordering::Release);
                if !is_held {
                    return;
                }
            }
        });
        thread.map_err(|error| Fault::Etcd { store: client.address(), reason: format!("no thread: {error}") })?;
        Ok(Self { lease, until, _end: end })
    }

    pub(super) fn lease(&self) -> &str {
        &self.lease
    }

    pub(super) fn until(&self) -> Duration {
        Duration::from_nanos(self.until.load(Ordering::Acquire))
    }
}
