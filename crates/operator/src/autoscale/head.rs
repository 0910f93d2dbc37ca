//! The head in its pod, as an autoscaler elsewhere reaches it: over TLS, with the cluster's join token.

use super::Work;
use crate::api::Kind;
use crate::head::dial;
use crate::reconcile::cluster_kind;
use k8s_openapi::api::core::v1::Secret;
use oxiray_autoscaler::{Contact, Head};
use oxiray_network::{Gateway, JoinToken};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The pause after the first visit that failed; it doubles with each further one.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// After how many visits in a row that failed it is asked whether there is a cluster at all, and people are told.
const FAILURES_NOTED: u32 = 5;

/// The head of a cluster.
pub(super) struct PodHead<'work> {
    work: &'work Work,
    token: Option<JoinToken>,
    /// Carries the stream as long as it is kept.
    gateway: Option<Gateway>,
    failures: u32,
    next: Instant,
}

impl<'work> PodHead<'work> {
    pub(super) fn new(work: &'work Work) -> Self {
        Self { work, token: None, gateway: None, failures: 0, next: Instant::now() }
    }

    fn visit(&mut self, address: SocketAddr) -> Result<OwnedFd, String> {
        let token = match &self.token {
            Some(token) => token.clone(),
            None => self.token.insert(self.read_token()?).clone(),
        };
        let (gateway, stream) = dial(address, &token)?;
        self.gateway = Some(gateway);
        Ok(stream)
    }

    /// What lets into the cluster, from the secret that was made with it.
    fn read_token(&self) -> Result<JoinToken, String> {
        let Work { line, namespace, secret, .. } = self.work;
        let answer = line.wait(line.api.get(&Kind::new("v1", "secrets"), Some(namespace), secret));
        let found = answer.and_then(Result::ok).flatten().ok_or(format!("secret {secret} cannot be read"))?;
        let found: Secret = serde_json::from_value(found).map_err(|error| error.to_string())?;
        let text = found.data.unwrap_or_default().remove("join-token").unwrap_or_default().0;
        JoinToken::parse(&String::from_utf8_lossy(&text)).map_err(|error| format!("secret {secret}: {error}"))
    }

    /// Whether the API says that there is no such cluster any more.
    fn is_over(&self) -> bool {
        let Work { line, namespace, name, uid, .. } = self.work;
        match line.wait(line.api.get(&cluster_kind(), Some(namespace), name)) {
            Some(Ok(Some(found))) => found["metadata"]["uid"] != uid.as_str(),
            Some(Ok(None)) => true,
            Some(Err(_)) | None => false,
        }
    }
}

impl Head for PodHead<'_> {
    fn connect(&mut self) -> Contact {
        self.gateway = None;
        if Instant::now() < self.next {
            return Contact::Away;
        }
        let address = {
            let view = self.work.shared.view();
            if view.sight.is_none() {
                // Without groups it would have the head refuse what waits.
                return Contact::Away;
            }
            view.head
        };
        let why = match address.map(|address| self.visit(address)) {
            Some(Ok(stream)) => {
                self.failures = 0;
                self.work.shared.view().lonely = None;
                // Its secret was proven already.
                return Contact::There(stream, String::new());
            }
            Some(Err(why)) => why,
            None => "the head's pod has no address yet".to_owned(),
        };
        self.failures = self.failures.saturating_add(1);
        let pause = PAUSE.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        self.next = Instant::now() + pause;
        if self.failures < FAILURES_NOTED {
            return Contact::Away;
        }
        if self.is_over() {
            return Contact::Over;
        }
        if self.failures == FAILURES_NOTED {
            self.work.say(&why);
        }
        self.work.shared.view().lonely = Some(why);
        Contact::Away
    }
}
