//! The lease by which a process is the head (ETCD-2).

use super::client::Client;
use crate::{Fault, Tenure};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often the lease is asked for within its length.
const ASKED: u32 = 3;

#[derive(Debug)]
pub(super) struct Held {
    lease: String,
    tenure: Tenure,
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
        let tenure = Tenure::new(asked + length);
        let (end, ended) = channel::<()>();
        let keeper = (client.clone(), lease.clone(), tenure.clone());
        let thread = oxiray_threads::spawn(oxiray_threads::ETCD_LEASE, move || {
            let (client, lease, tenure) = keeper;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_secs(seconds) / ASKED) {
                let asked = since_boot();
                let Ok(answer) = client.ask("lease/keepalive", &json!({"ID": lease})) else { continue };
                let is_held = answer["result"]["TTL"].as_str().is_some_and(|left| left != "0");
                tenure.set(if is_held { asked + length } else { Duration::ZERO });
                if !is_held {
                    return;
                }
            }
        });
        thread.map_err(|error| Fault::Etcd { store: client.address(), reason: format!("no thread: {error}") })?;
        Ok(Self { lease, tenure, _end: end })
    }

    pub(super) fn lease(&self) -> &str {
        &self.lease
    }

    pub(super) fn tenure(&self) -> Tenure {
        self.tenure.clone()
    }
}
