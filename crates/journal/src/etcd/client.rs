//! Questions to etcd over its JSON gateway.

use super::EtcdAddress;
use crate::Fault;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long one host of etcd may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Clone)]
pub(super) struct Client {
    agent: ureq::Agent,
    address: EtcdAddress,
    /// The host that answered last.
    last: Arc<AtomicUsize>,
}

impl Client {
    pub(super) fn new(address: &EtcdAddress) -> Self {
        let config = ureq::Agent::config_builder().timeout_global(Some(ANSWER_LIMIT)).proxy(None).build();
        Self { agent: config.into(), address: address.clone(), last: Arc::new(AtomicUsize::new(0)) }
    }

    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Asks the host that answered last, and then the others.
    pub(super) fn ask(&self, what: &str, question: &Value) -> Result<Value, Fault> {
        let hosts = &self.address.hosts;
        let first = self.last.load(Ordering::Relaxed);
        let mut reason = String::new();
        for place in (0..hosts.len()).map(|step| (first + step) % hosts.len()) {
            match self.ask_one(&hosts[place], what, question) {
                Ok(answer) => {
                    self.last.store(place, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) => reason = format!("{}: {error}", hosts[place]),
            }
        }
        Err(Fault::Etcd { store: self.address(), reason })
    }

    fn ask_one(&self, host: &str, what: &str, question: &Value) -> Result<Value, String> {
        let asked = self.agent.post(format!("http://{host}/v3/{what}"));
        let mut answered = asked.send(question.to_string()).map_err(|error| error.to_string())?;
        let body = answered.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| error.to_string())?;
        // Of what comes as a stream, the first line.
        let first = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
        serde_json::from_slice(first).map_err(|error| format!("what it answers is no JSON: {error}"))
    }
}
