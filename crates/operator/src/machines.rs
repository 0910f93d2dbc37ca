//! Tells pods what their machines are labelled with.
//!
//! A machine is read when the first pod on it is seen, and its labels hold for a while: pods of one machine come together.

use crate::api::{Api, Kind, code, said};
use crate::reconcile::{Asked as _, Context, LookError, REQUESTS_AT_ONCE};
use futures::StreamExt as _;
use oxiray_kubernetes::{MACHINE_LABELS_ANNOTATION, ObservedPod, RayCluster, Remark, machine_labels};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long a machine is known.
const KNOWN_PERIOD: Duration = Duration::from_secs(60);

/// What machines are labelled with, as their pods are told.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    known: Mutex<BTreeMap<String, (Instant, String)>>,
}

impl Machines {
    /// What the nodes on a machine get from it.
    async fn labels(&self, machine: &str, api: &Api) -> Result<String, kube::Error> {
        let is_fresh = |(at, _): &(Instant, String)| at.elapsed() < KNOWN_PERIOD;
        if let Some((_, labels)) = self.locked().get(machine).filter(|known| is_fresh(known)) {
            return Ok(labels.clone());
        }
        // One that is gone already has no labels, and its pods will not be there for long.
        let found = api.get(&Kind::new("v1", "nodes"), None, machine).await?;
        let labels = machine_labels(&found.unwrap_or(Value::Null));
        let mut known = self.locked();
        known.retain(|_, one| is_fresh(one));
        known.insert(machine.to_owned(), (Instant::now(), labels.clone()));
        Ok(labels)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (Instant, String)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells each pod that has a machine and was not told of it. Returns what people should read: that machines may not be read.
pub(crate) async fn tell(
    cluster: &RayCluster,
    pods: &[ObservedPod],
    context: &Context,
) -> Result<Option<Remark>, LookError> {
    let namespace = &cluster.metadata.namespace;
    let waiting = pods.iter().filter_map(|pod| Some((pod.clone(), pod.waits_for_labels_of()?.to_owned())));
    let told = waiting.map(|(pod, machine)| async move {
        let (labels, refusal) = match context.machines.labels(&machine, &context.api).await {
            Ok(labels) => (labels, None),
            // It is told that there is nothing to wait for.
            Err(error) if code(&error) == Some(403) => (machine_labels(&Value::Null), Some(said(&error))),
            Err(error) => return Err(error).asked(format!("read machine {machine}")),
        };
        let annotations = json!({MACHINE_LABELS_ANNOTATION: labels});
        let written = context.api.annotate_pod(namespace, &pod.name, &pod.uid, &annotations).await;
        written.asked(format!("write the machine of pod {} to it", pod.name))?;
        Ok(refusal)
    });
    let told = futures::stream::iter(told.collect::<Vec<_>>());
    let mut refused = None;
    for answer in told.buffer_unordered(REQUESTS_AT_ONCE).collect::<Vec<_>>().await {
        refused = refused.or(answer?);
    }
    Ok(refused.map(|why| Remark {
        is_warning: true,
        reason: "MachinesUnread",
        message: format!(
            "nodes do not get the zone, the region and the domain of GPUs of their machines, since the operator may not \
             `get` `nodes` ({why}): allow it, as in deploy/kubernetes/rbac.yaml"
        ),
    }))
}
