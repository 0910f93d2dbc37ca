//! One operator acts at a time: the one that holds the lease.
//!
//! - LEADER-1: whoever could not renew in time ends, before another may take the lease. It does not finish anything.

use crate::metrics::Metrics;
use crate::say;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long one request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// The lease, and who asks for it.
pub(crate) struct Election {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) identity: String,
    /// How long the lease lasts when it is not renewed.
    pub(crate) lasts: Duration,
    pub(crate) metrics: Arc<Metrics>,
}

impl Election {
    /// After which time without a renewal its holder ends: LEADER-1.
    fn give_up(&self) -> Duration {
        self.lasts * 2 / 3
    }

    /// How often it is renewed, or looked at by who waits.
    fn period(&self) -> Duration {
        self.lasts / 8
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until the lease is this one's.
    pub(crate) async fn win(&self) {
        let mut seen: Option<(Lease, Instant)> = None;
        let mut told = false;
        loop {
            let answer = tokio::time::timeout(REQUEST_LIMIT, self.attempt(&mut seen)).await;
            if matches!(answer, Ok(Ok(_))) {
                // One that waits for its turn is as ready as the one that acts.
                self.metrics.set_ready();
            }
            match answer {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) if !told => {
                    told = true;
                    say("another operator holds the lease; this one waits for it");
                }
                Ok(Ok(false)) => {}
                Ok(Err(error)) => say(&format!("the lease cannot be taken: {error}")),
                Err(_) => say("the lease cannot be taken: the API does not answer"),
            }
            tokio::time::sleep(self.period()).await;
        }
    }

    /// Returns when the lease may be another's: LEADER-1.
    pub(crate) async fn keep(&self) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < self.give_up() {
            tokio::time::sleep(self.period()).await;
            let before = Instant::now();
            match tokio::time::timeout(REQUEST_LIMIT.min(self.give_up() / 2), self.attempt(&mut None)).await {
                Ok(Ok(true)) => renewed = before,
                Ok(Ok(false)) => return,
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }

    /// Lets another have it at once.
    pub(crate) async fn leave(&self) {
        let Ok(Ok(mut lease)) = tokio::time::timeout(REQUEST_LIMIT, self.api().get(&self.name)).await else { return };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() == Some(&self.identity) {
            spec.holder_identity = None;
            let replace = self.api();
            let _ =
                tokio::time::timeout(REQUEST_LIMIT, replace.replace(&self.name, &PostParams::default(), &lease)).await;
        }
    }

    /// Takes or renews the lease, unless another's is not over. That is judged by this machine's clock alone: it is
    /// over when it was not renewed for its time since it was first seen so.
    async fn attempt(&self, seen: &mut Option<(Lease, Instant)>) -> Result<bool, kube::Error> {
        let api = self.api();
        let Some(mut lease) = api.get_opt(&self.name).await? else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.held(None)) };
            return won(api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty());
        if holder.is_some_and(|holder| holder != self.identity) {
            let same =
                seen.as_ref().filter(|(known, _)| known.metadata.resource_version == lease.metadata.resource_version);
            let since = same.map_or_else(Instant::now, |(_, since)| *since);
            let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let lasts = lasts.map_or(self.lasts, Duration::from_secs);
            if same.is_none() {
                *seen = Some((lease.clone(), since));
            }
            if since.elapsed() < lasts {
                return Ok(false);
            }
        }
        lease.spec = Some(self.held(Some(&spec)));
        won(api.replace(&self.name, &PostParams::default(), &lease).await)
    }

    fn held(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let own = before.filter(|spec| spec.holder_identity.as_deref() == Some(&self.identity));
        let transitions = before.map(|spec| spec.lease_transitions.unwrap_or(0) + i32::from(own.is_none()));
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.lasts.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: own.and_then(|spec| spec.acquire_time.clone()).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions.unwrap_or(0)),
            ..LeaseSpec::default()
        }
    }
}

/// Another may have been faster.
fn won(answer: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) if crate::api::code(&error) == Some(409) => Ok(false),
        Err(error) => Err(error),
    }
}
