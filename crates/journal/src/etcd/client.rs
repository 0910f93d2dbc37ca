//! Questions to etcd over its JSON gateway.

use super::EtcdAddress;
use super::access::EtcdAccess;
use crate::Fault;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long one host of etcd may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Clone)]
pub(super) struct Client {
    agent: ureq::Agent,
    scheme: &'static str,
    address: EtcdAddress,
    /// The host that answered last.
    last: Arc<AtomicUsize>,
    user: Option<Arc<User>>,
}

/// Whom etcd knows this process as.
struct User {
    name: String,
    password: String,
    /// What etcd gave for them last. It forgets it after a while, and when it is started anew.
    token: Mutex<Option<String>>,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why a host has not answered.
enum Refusal {
    /// The token is not known any more, or there is none.
    Unknown(String),
    Other(String),
}

impl Client {
    pub(super) fn new(address: &EtcdAddress, access: &EtcdAccess) -> Self {
        let config = ureq::Agent::config_builder().timeout_global(Some(ANSWER_LIMIT)).proxy(None);
        let config = config.http_status_as_error(false);
        let (scheme, config) = match &access.tls {
            Some(tls) => ("https", config.https_only(true).tls_config(tls.clone())),
            None => ("http", config),
        };
        let user = access.user.clone().map(|(name, password)| User { name, password, token: Mutex::default() });
        Self {
            agent: config.build().into(),
            scheme,
            address: address.clone(),
            last: Arc::new(AtomicUsize::new(0)),
            user: user.map(Arc::new),
        }
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
            match self.ask_host(&hosts[place], what, question) {
                Ok(answer) => {
                    self.last.store(place, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) => reason = format!("{}: {error}", hosts[place]),
            }
        }
        Err(Fault::Etcd { store: self.address(), reason })
    }

    /// As the user, where there is one, with a token that is asked for again where it is not known any more.
    fn ask_host(&self, host: &str, what: &str, question: &Value) -> Result<Value, String> {
        let Some(user) = &self.user else {
            return self.ask_once(host, what, question, None).map_err(Refusal::in_words);
        };
        let known = user.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(token) = known {
            match self.ask_once(host, what, question, Some(&token)) {
                Err(Refusal::Unknown(_)) => {}
                answered => return answered.map_err(Refusal::in_words),
            }
        }
        let asked = json!({"name": user.name, "password": user.password});
        let told = self.ask_once(host, "auth/authenticate", &asked, None).map_err(Refusal::in_words)?;
        let token = told["token"].as_str().unwrap_or_default().to_owned();
        *user.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        self.ask_once(host, what, question, Some(&token)).map_err(Refusal::in_words)
    }

    fn ask_once(&self, host: &str, what: &str, question: &Value, token: Option<&str>) -> Result<Value, Refusal> {
        let other = |error: ureq::Error| Refusal::Other(error.to_string());
        let mut asked = self.agent.post(format!("{}://{host}/v3/{what}", self.scheme));
        if let Some(token) = token {
            asked = asked.header("Authorization", token);
        }
        let mut answered = asked.send(question.to_string()).map_err(other)?;
        let status = answered.status();
        let body = answered.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(other)?;
        // Of what comes as a stream, the first line.
        let first = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let said: Result<Value, _> = serde_json::from_slice(first);
        let fault = said.as_ref().ok().and_then(fault_in);
        if fault.is_some() || !status.is_success() {
            return Err(Refusal::of(fault.unwrap_or_else(|| format!("http status: {status}"))));
        }
        said.map_err(|error| Refusal::Other(format!("what it answers is no JSON: {error}")))
    }
}

/// What etcd refuses with: a text, or within a stream an object that has one.
fn fault_in(said: &Value) -> Option<String> {
    let fault = said.get("error")?;
    let text = fault.as_str().or_else(|| fault["message"].as_str()).unwrap_or("it does not say why");
    Some(text.to_owned())
}

impl Refusal {
    fn of(text: String) -> Self {
        let of_token = ["invalid auth token", "user name is empty", "revision of auth store is old"];
        if of_token.iter().any(|word| text.contains(word)) { Self::Unknown(text) } else { Self::Other(text) }
    }

    fn in_words(self) -> String {
        let (Self::Unknown(text) | Self::Other(text)) = self;
        text
    }
}
