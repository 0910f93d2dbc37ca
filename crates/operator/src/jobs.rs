//! One look at a `RayJob`: its cluster is found, its head asked, and what [`job_step`] says is done and told.
//!
//! Everything here may be done twice: clusters have names that were written down before, and the head starts one job under
//! one name.

mod head;

use crate::api::{Kind, said};
use crate::reconcile::{Asked as _, Context, LookError, cluster_kind};
use crate::say;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::core::DynamicObject;
use kube::runtime::controller::Action;
use oxiray_kubernetes::{
    API_GROUP, API_VERSION, Heard, JobAction, JobCluster, JobSituation, JobStep, RayCluster, RayJob, asks_head,
    job_step,
};
use oxiray_wire::message::{Failure, FailureCode, Submission, SubmissionAction, SubmissionAsked, SubmissionSpec};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How soon it is looked again where something was just done.
const SOON: Duration = Duration::from_millis(200);
/// After how long a job is looked at though nothing was heard of it.
const LOOK_PERIOD: Duration = Duration::from_secs(300);

/// A job's cluster, and where its head is.
struct Place {
    cluster: JobCluster,
    /// Its head's address, where it has one, and the name of the secret that lets in.
    head: Option<SocketAddr>,
    secret: String,
    object: Value,
}

/// Looks at a job.
pub(crate) async fn reconcile(object: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, LookError> {
    let result = look(&object, &context).await;
    match &result {
        Ok(_) => context.went_well(object.metadata.uid.as_deref().unwrap_or_default()),
        Err(error) => say(&format!("job {}: {error}", object.metadata.name.as_deref().unwrap_or_default())),
    }
    result
}

fn job_kind() -> Kind {
    Kind::new(&format!("{API_GROUP}/{API_VERSION}"), "rayjobs")
}

async fn look(object: &DynamicObject, context: &Context) -> Result<Action, LookError> {
    // The cache may be behind what this operator wrote itself.
    let (name, namespace) = (object.metadata.name.as_deref(), object.metadata.namespace.as_deref());
    let found = context.api.get(&job_kind(), namespace, name.unwrap_or_default()).await.asked("read the job")?;
    let Some(found) = found else { return Ok(Action::await_change()) };
    let job = RayJob::read(&found)?;
    let is_others = job.spec.managed_by.as_deref().is_some_and(|by| by != "ray.io/kuberay-operator");
    if job.metadata.deletion_timestamp.is_some() || is_others {
        return Ok(Action::await_change());
    }
    let place = place(&job, context).await?;
    let mut heard = hear(&job, place.as_ref(), context).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let cluster = place.as_ref().map(|place| &place.cluster);
    let mut step = job_step(&JobSituation { job: &job, cluster, heard: &heard, now });
    if step.actions.contains(&JobAction::Submit) {
        // What the head answers decides what is next.
        heard = submit(&job, place.as_ref(), context).await;
        step = job_step(&JobSituation { job: &job, cluster, heard: &heard, now });
        step.actions.retain(|action| *action != JobAction::Submit);
    }
    for action in &step.actions {
        act(action, &job, place.as_ref(), context).await?;
    }
    let is_gone = step.actions.contains(&JobAction::DeleteItself);
    if !is_gone {
        tell(&job, &found, &step, context).await?;
    }
    remark(&job, &step, context).await;
    Ok(Action::requeue(step.again_s.map_or(LOOK_PERIOD, |seconds| Duration::from_secs(seconds).max(SOON))))
}

/// The job's cluster, as it is now.
async fn place(job: &RayJob, context: &Context) -> Result<Option<Place>, LookError> {
    let namespace = Some(job.metadata.namespace.as_str());
    let found = match &job.status.ray_cluster_name {
        Some(name) => context.api.get(&cluster_kind(), namespace, name).await.asked(format!("read cluster {name}"))?,
        None if job.is_proxied() => {
            let labels = job.spec.cluster_selector.iter().map(|(key, value)| format!("{key}={value}"));
            let labels = labels.collect::<Vec<_>>().join(",");
            let listed = context.api.list(&cluster_kind(), namespace, &labels).await;
            listed.asked("list the clusters of clusterSelector")?.into_iter().next()
        }
        None => None,
    };
    let Some(object) = found else { return Ok(None) };
    let cluster = RayCluster::read(&object)?;
    let owners = object["metadata"]["ownerReferences"].as_array();
    let status = &cluster.status;
    let ip = status["head"]["podIP"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok());
    let groups = cluster.spec.worker_group_specs.iter().filter(|group| !group.suspend).count();
    Ok(Some(Place {
        cluster: JobCluster {
            name: cluster.metadata.name.clone(),
            uid: cluster.metadata.uid.clone(),
            is_ready: status["state"] == "ready",
            is_own: owners.into_iter().flatten().any(|owner| owner["uid"] == job.metadata.uid.as_str()),
            is_ending: cluster.metadata.deletion_timestamp.is_some(),
            groups,
            reason: status["reason"].as_str().unwrap_or_default().to_owned(),
        },
        head: ip.map(|ip| SocketAddr::new(ip, cluster.head_port())),
        secret: cluster.secret(),
        object,
    }))
}

/// What the head says of the job, where it is to be asked.
async fn hear(job: &RayJob, place: Option<&Place>, context: &Context) -> Heard {
    let Some(place) = place.filter(|place| asks_head(job) && !place.cluster.is_ending) else { return Heard::Nothing };
    let id = job.status.job_id.as_deref().unwrap_or(&job.spec.job_id);
    let is_early = job.status.job_status.is_none() && !place.cluster.is_ready;
    if id.is_empty() || is_early {
        return Heard::Nothing;
    }
    heard(ask(head::about(SubmissionAction::List, id), place, job, context).await)
}

fn heard(answer: Result<Result<Submission, Failure>, String>) -> Heard {
    match answer {
        Ok(Ok(told)) => Heard::Job { state: told.state.name().to_owned(), message: told.message },
        Ok(Err(failure)) if failure.code == FailureCode::NotFound => Heard::Unknown,
        Ok(Err(failure)) => Heard::Refused(failure.text),
        Err(why) => Heard::Away(why),
    }
}

/// One question to the head: the job that it tells of, the failure with which it refused, or why it was not reached.
async fn ask(
    asked: SubmissionAsked,
    place: &Place,
    job: &RayJob,
    context: &Context,
) -> Result<Result<Submission, Failure>, String> {
    let address = place.head.ok_or("its pod has no address yet")?;
    let namespace = Some(job.metadata.namespace.as_str());
    let found = context.api.get(&Kind::new("v1", "secrets"), namespace, &place.secret).await;
    let found = found.map_err(|error| said(&error))?.ok_or_else(|| format!("there is no secret {}", place.secret))?;
    let found: Secret = serde_json::from_value(found).map_err(|error| error.to_string())?;
    let token = found.data.unwrap_or_default().remove("join-token").unwrap_or_default().0;
    let token = String::from_utf8_lossy(&token).into_owned();
    let answer = tokio::task::spawn_blocking(move || head::ask(address, &token, asked)).await;
    match answer.map_err(|error| error.to_string())?? {
        Err(failure) => Ok(Err(failure)),
        Ok(told) => told.jobs.into_iter().next().map(Ok).ok_or_else(|| "the head's answer has no job".to_owned()),
    }
}

async fn act(action: &JobAction, job: &RayJob, place: Option<&Place>, context: &Context) -> Result<(), LookError> {
    let namespace = &job.metadata.namespace;
    match (action, place) {
        (JobAction::MakeCluster(object), _) => {
            context.api.create(object).await.asked("make its cluster")?;
        }
        (JobAction::Stop, Some(place)) => {
            let id = job.status.job_id.as_deref().unwrap_or_default();
            if let Err(why) = ask(head::about(SubmissionAction::Stop, id), place, job, context).await {
                say(&format!("job {namespace}/{}: its head cannot be asked to end it: {why}", job.metadata.name));
            }
        }
        (JobAction::DeleteCluster, Some(place)) if place.cluster.is_own => {
            let JobCluster { name, uid, .. } = &place.cluster;
            context.api.delete(&cluster_kind(), namespace, name, uid).await.asked(format!("delete cluster {name}"))?;
        }
        (JobAction::DeleteWorkers, Some(place)) if place.cluster.is_own => {
            let count = place.object["spec"]["workerGroupSpecs"].as_array().map_or(0, Vec::len);
            let change =
                |index| json!({"op": "add", "path": format!("/spec/workerGroupSpecs/{index}/suspend"), "value": true});
            let operations = Value::Array((0..count).map(change).collect());
            let name = &place.cluster.name;
            context.api.change_cluster(namespace, name, &operations).await.asked("suspend its cluster's workers")?;
        }
        (JobAction::DeleteItself, _) => {
            let (name, uid) = (&job.metadata.name, &job.metadata.uid);
            context.api.delete(&job_kind(), namespace, name, uid).await.asked("delete the job")?;
        }
        _ => {}
    }
    Ok(())
}

/// Has the head run the job, unless it does; what it says of that.
async fn submit(job: &RayJob, place: Option<&Place>, context: &Context) -> Heard {
    let Some(place) = place else { return Heard::Nothing };
    let id = job.status.job_id.clone().unwrap_or_default();
    let spec = SubmissionSpec {
        entrypoint: job.spec.entrypoint.clone(),
        // Both were looked at before the job was begun.
        runtime_env: job.environment().unwrap_or_default(),
        metadata: job.spec.metadata.clone(),
        resources: job.resources().unwrap_or_default(),
        ..SubmissionSpec::default()
    };
    let asked = SubmissionAsked { spec: Some(spec), ..head::about(SubmissionAction::Submit, &id) };
    let heard = heard(ask(asked, place, job, context).await);
    say(&format!("job {}/{}: submitted as {id}: {heard:?}", job.metadata.namespace, job.metadata.name));
    heard
}

/// Writes the status where it is another than the last. A field that is gone is removed.
async fn tell(job: &RayJob, found: &Value, step: &JobStep, context: &Context) -> Result<(), LookError> {
    if step.status == job.status {
        return Ok(());
    }
    let mut status = serde_json::to_value(&step.status)?;
    for key in found["status"].as_object().into_iter().flatten().map(|(key, _)| key) {
        if status[key].is_null() {
            status[key] = Value::Null;
        }
    }
    let (namespace, name) = (&job.metadata.namespace, &job.metadata.name);
    context.api.set_status(&job_kind(), namespace, name, &status).await.asked("write its status").map(drop)
}

async fn remark(job: &RayJob, step: &JobStep, context: &Context) {
    let about = ObjectReference {
        api_version: Some(format!("{API_GROUP}/{API_VERSION}")),
        kind: Some("RayJob".to_owned()),
        name: Some(job.metadata.name.clone()),
        namespace: Some(job.metadata.namespace.clone()),
        uid: Some(job.metadata.uid.clone()),
        ..ObjectReference::default()
    };
    for remark in &step.remarks {
        context.publish(remark, &about).await;
    }
}
