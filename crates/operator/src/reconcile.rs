//! One look at a cluster: what is there is listed, the plan is made, carried out, and told.
//!
//! The list is the API's own word, not a cache's, and pods have names that follow from their places: an operator that
//! was killed, that is late or that does not know what its last request came to, does nothing twice.

use crate::api::{Api, Kind, code, is_missing_kind, said};
use crate::autoscale::{Autoscalers, Sight};
use crate::machines::{self, Machines};
use crate::metrics::Metrics;
use crate::say;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::DynamicObject;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder};
use oxiray_kubernetes::{
    API_GROUP, API_VERSION, CLUSTER_LABEL, CREATED_BY, CREATED_BY_LABEL, Claims, FailuresByGroup, Metadata,
    ObservedPod, Plan, RayCluster, Refusals, Remark, Settings, Situation, StatusInputs, failures_of, hash_of, owner,
    plan, references, status,
};
use oxiray_network::Authority;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many requests of one look are under way at once.
pub(crate) const REQUESTS_AT_ONCE: usize = 16;
/// After how long a cluster is looked at though nothing was heard of it.
const LOOK_PERIOD: Duration = Duration::from_secs(300);
/// After how long it is tried again what the API refused.
const REFUSED_PERIOD: Duration = Duration::from_secs(15);
/// The first pause after an error; it doubles with each further one.
const ERROR_PAUSE: Duration = Duration::from_millis(200);
/// The longest.
const ERROR_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest note of an event.
const NOTE_BYTES_MAX: usize = 1000;

/// Why a look came to nothing. It is taken again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    /// The API did not do what it was asked for.
    #[error("{what}: {}", said(error))]
    Api {
        /// What it was asked for.
        what: String,
        /// What it answered.
        #[source]
        error: kube::Error,
    },
    /// The object cannot be read.
    #[error("the object cannot be read: {0}")]
    Form(#[from] serde_json::Error),
    /// No secret can be made.
    #[error("no certificates can be made for the cluster: {0}")]
    Authority(#[from] oxiray_network::AuthorityError),
}

/// Says what the API was asked for.
pub(crate) trait Asked<T> {
    fn asked(self, what: impl Into<String>) -> Result<T, LookError>;
}

impl<T> Asked<T> for Result<T, kube::Error> {
    fn asked(self, what: impl Into<String>) -> Result<T, LookError> {
        self.map_err(|error| LookError::Api { what: what.into(), error })
    }
}

/// What is remembered of a cluster from one look to the next. All of it may be forgotten.
#[derive(Debug, Default)]
struct Known {
    /// The hashes of what was applied beside pods, and when.
    applied: BTreeMap<String, (String, Option<Instant>)>,
    /// What was remarked in the last look.
    remarked: BTreeSet<(&'static str, String)>,
    /// The kinds of what it should have beside pods, and the API has not.
    missing: BTreeSet<String>,
    failures: Option<FailuresByGroup>,
    has_secret: bool,
    /// How many looks in a row came to nothing.
    errors: u32,
}

/// What all looks share.
pub(crate) struct Context {
    pub(crate) api: Api,
    pub(crate) settings: Settings,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) autoscalers: Arc<Autoscalers>,
    pub(crate) machines: Machines,
    known: Mutex<BTreeMap<String, Known>>,
}

impl Context {
    pub(crate) fn new(
        api: Api,
        settings: Settings,
        recorder: Recorder,
        metrics: Arc<Metrics>,
        autoscalers: Arc<Autoscalers>,
    ) -> Self {
        Self { api, settings, recorder, metrics, autoscalers, machines: Machines::default(), known: Mutex::default() }
    }

    /// A look at the object with this identity came to something.
    pub(crate) fn went_well(&self, uid: &str) {
        self.with(uid, |known| known.errors = 0);
    }

    /// The object with this identity is not looked after any more.
    pub(crate) fn forget(&self, uid: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// Publishes what people should read of an object. That it fails is no reason to fail.
    pub(crate) async fn publish(&self, remark: &Remark, about: &ObjectReference) {
        let event = Event {
            type_: if remark.is_warning { EventType::Warning } else { EventType::Normal },
            reason: remark.reason.to_owned(),
            note: Some(remark.message.chars().take(NOTE_BYTES_MAX / 4).collect()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, about).await {
            say(&format!("an event is not published: {}", said(&error)));
        }
    }

    /// Works on what is known of the cluster with this identity.
    fn with<R>(&self, uid: &str, work: impl FnOnce(&mut Known) -> R) -> R {
        work(self.known.lock().unwrap_or_else(PoisonError::into_inner).entry(uid.to_owned()).or_default())
    }
}

/// Looks at a cluster.
pub(crate) async fn reconcile(object: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, LookError> {
    let began = Instant::now();
    let result = look(&object, &context).await;
    context.metrics.count_reconcile(began.elapsed(), result.is_ok());
    let uid = object.metadata.uid.clone().unwrap_or_default();
    match &result {
        Ok(_) => context.went_well(&uid),
        Err(error) => {
            say(&format!("cluster {}: {error}", object.metadata.name.as_deref().unwrap_or_default()));
            context.autoscalers.blind(&uid, &error.to_string());
        }
    }
    result
}

/// When a look that came to nothing is taken again.
#[expect(clippy::needless_pass_by_value, reason = "the controller passes them so")]
pub(crate) fn after_error(object: Arc<DynamicObject>, error: &LookError, context: Arc<Context>) -> Action {
    if let LookError::Api { error, .. } = error
        && code(error) == Some(409)
    {
        return Action::requeue(ERROR_PAUSE);
    }
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let errors = context.with(&uid, |known| {
        known.errors = known.errors.saturating_add(1);
        known.errors
    });
    Action::requeue(ERROR_PAUSE.saturating_mul(1 << errors.min(16)).min(ERROR_PAUSE_MAX))
}

/// The kind of the objects that are looked at.
pub(crate) fn cluster_kind() -> Kind {
    Kind::new(&format!("{API_GROUP}/{API_VERSION}"), "rayclusters")
}

fn pods() -> Kind {
    Kind::new("v1", "pods")
}

async fn look(object: &DynamicObject, context: &Context) -> Result<Action, LookError> {
    let mut cluster = RayCluster::read(&serde_json::to_value(object)?)?;
    let uid = &cluster.metadata.uid.clone();
    if cluster.metadata.deletion_timestamp.is_some() {
        context.forget(uid);
        context.autoscalers.forget(uid);
        return Ok(Action::await_change());
    }
    if cluster.spec.managed_by.as_deref().is_some_and(|by| by != "ray.io/kuberay-operator") {
        return Ok(Action::await_change());
    }
    let settings = settings_for(&cluster, context).await?;
    let seen = own_pods(&cluster, &context.api).await?;
    let (unread, untold) = match machines::tell(&cluster, &seen, context).await {
        Ok(unread) => (unread, None),
        Err(error) => (None, Some(error)),
    };
    let failures = context.with(uid, |known| known.failures.clone()).unwrap_or_else(|| failures_of(&cluster));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut plan = plan(&Situation { cluster: &cluster, pods: &seen, settings: &settings, failures: &failures, now });
    plan.remarks.extend(unread);
    context.autoscalers.attend(&cluster, &seen);
    plan.remarks.extend(context.autoscalers.lonely(uid).map(|message| Remark {
        is_warning: true,
        reason: "AutoscalerAway",
        message,
    }));
    let Done { refusals, failed, made } = carry_out(&plan, &cluster, context).await;
    let missing = context.with(uid, |known| known.missing.clone());
    plan.remarks.extend(missing.into_iter().map(|kind| Remark {
        is_warning: true,
        reason: "MissingKind",
        message: format!("the API has no {kind}: the cluster does without"),
    }));
    let told = status(&StatusInputs {
        cluster: &cluster,
        pods: &seen,
        settings: &settings,
        failures: &plan.failures,
        refusals: &refusals,
        now,
    });
    let written = tell(&cluster, &told, context).await?;
    if let Some(version) = written.filter(|written| written.generation == cluster.metadata.generation) {
        // What is wanted is what was seen: only the status is another.
        cluster.metadata.resource_version = version.resource_version;
    }
    remark(&cluster, &plan, &refusals, context).await;
    if let Some(error) = failed.or(untold) {
        return Err(error);
    }
    context.with(uid, |known| known.failures = Some(plan.failures.clone()));
    let is_refused = !refusals.is_empty();
    if made == 0 {
        // What was made a moment ago is in the next look, which its events bring.
        context.autoscalers.show(Sight { cluster, pods: seen, settings, refusals });
    }
    let refused = is_refused.then_some(REFUSED_PERIOD);
    let again = plan.again_s.map(Duration::from_secs).into_iter().chain(refused).min();
    Ok(Action::requeue(again.unwrap_or(LOOK_PERIOD)))
}

/// The pods of this very cluster, and of no other that had its name.
async fn own_pods(cluster: &RayCluster, api: &Api) -> Result<Vec<ObservedPod>, LookError> {
    let labels = format!("{CLUSTER_LABEL}={},{CREATED_BY_LABEL}={CREATED_BY}", cluster.metadata.name);
    let listed = api.list(&pods(), Some(&cluster.metadata.namespace), &labels).await.asked("list its pods")?;
    let is_own = |pod: &&Value| {
        let owners = pod["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(|owner| owner["uid"] == cluster.metadata.uid.as_str())
    };
    Ok(listed.iter().filter(is_own).map(ObservedPod::of).collect())
}

/// With what the cluster's claims refer to, where it has some.
async fn settings_for(cluster: &RayCluster, context: &Context) -> Result<Settings, LookError> {
    let mut settings = context.settings.clone();
    let groups = cluster.spec.worker_group_specs.iter().map(|group| &group.template);
    let templates = groups.chain([&cluster.spec.head_group_spec.template]);
    let (mut of_templates, mut of_claims) = (BTreeSet::new(), BTreeSet::new());
    for template in templates {
        let (templates, claims) = references(template);
        of_templates.extend(templates);
        of_claims.extend(claims);
    }
    if of_templates.is_empty() && of_claims.is_empty() {
        return Ok(settings);
    }
    let namespace = Some(cluster.metadata.namespace.as_str());
    let kind = |plural| Kind::new("resource.k8s.io/v1", plural);
    let mut claims = Claims::default();
    for name in of_templates {
        let found = context.api.get(&kind("resourceclaimtemplates"), namespace, &name).await;
        claims.templates.extend(found.asked(format!("read claim template {name}"))?.map(|object| (name, object)));
    }
    for name in of_claims {
        let found = context.api.get(&kind("resourceclaims"), namespace, &name).await;
        claims.claims.extend(found.asked(format!("read claim {name}"))?.map(|object| (name, object)));
    }
    let classes = match context.api.list(&kind("deviceclasses"), None, "").await {
        Err(error) if is_missing_kind(&error) => Vec::new(),
        listed => listed.asked("list device classes")?,
    };
    let named = |class: Value| Some((class["metadata"]["name"].as_str()?.to_owned(), class));
    claims.classes = classes.into_iter().filter_map(named).collect();
    settings.catalogue.claims = claims;
    Ok(settings)
}

/// What came of a plan.
struct Done {
    refusals: Refusals,
    failed: Option<LookError>,
    /// How many pods were made.
    made: usize,
}

/// Does what the plan says, as much of it as the API lets: what is refused for one group keeps no other back.
async fn carry_out(plan: &Plan, cluster: &RayCluster, context: &Context) -> Done {
    let (namespace, uid) = (&cluster.metadata.namespace, &cluster.metadata.uid);
    let mut failed = None;
    // The requests are listed before they are a stream: closures over borrows in a stream are not general enough for the
    // controller's tasks.
    let deleted = plan.deletions.iter().cloned().map(|gone| async move {
        let answer = context.api.delete(&pods(), namespace, &gone.name, &gone.uid).await;
        answer.asked(format!("delete pod {} ({})", gone.name, gone.reason))
    });
    let deleted = futures::stream::iter(deleted.collect::<Vec<_>>());
    for result in deleted.buffer_unordered(REQUESTS_AT_ONCE).collect::<Vec<_>>().await {
        failed = failed.or(result.err());
    }
    if let Err(error) = prepare(plan, cluster, context).await {
        return Done { refusals: Refusals::new(), failed: Some(failed.unwrap_or(error)), made: 0 };
    }
    let applied = plan.pods.iter().cloned().map(|pod| async move {
        let name = pod.object["metadata"]["name"].as_str().unwrap_or_default();
        (pod.group.clone(), name.to_owned(), context.api.apply(&pod.object).await)
    });
    let applied = futures::stream::iter(applied.collect::<Vec<_>>());
    let (mut refusals, mut made) = (Refusals::new(), 0);
    for (group, name, answer) in applied.buffered(REQUESTS_AT_ONCE).collect::<Vec<_>>().await {
        match answer {
            Ok(()) => made += 1,
            // A quota that is used up, an admission rule, or a field that this API cannot read: it is for people to change,
            // and for the autoscaler to know.
            Err(error) if matches!(code(&error), Some(400 | 403 | 422)) => {
                refusals.entry(group).or_insert_with(|| said(&error));
            }
            Err(error) => {
                failed.get_or_insert(LookError::Api { what: format!("make pod {name}"), error });
            }
        }
    }
    context.metrics.count_pods(made, plan.deletions.len());
    if !plan.pods.is_empty() || !plan.deletions.is_empty() {
        say(&format!(
            "cluster {namespace}/{} ({uid}): {made} pods made, {} deleted",
            cluster.metadata.name,
            plan.deletions.len()
        ));
    }
    Done { refusals, failed, made }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Makes what pods need before they start. What was applied a moment ago is not applied again; what the API has no kind
/// for is left out.
async fn prepare(plan: &Plan, cluster: &RayCluster, context: &Context) -> Result<(), LookError> {
    let uid = &cluster.metadata.uid;
    if !plan.pods.is_empty() && !context.with(uid, |known| known.has_secret) {
        let made = context.api.create(&join_secret(cluster)?).await;
        made.asked("make the secret that lets its pods in")?;
        context.with(uid, |known| known.has_secret = true);
    }
    for object in &plan.objects {
        let name = format!("{} {}", text(&object["kind"]), object["metadata"]["name"]);
        let hash = hash_of(object);
        let is_applied = context.with(uid, |known| {
            let fresh = |at: &Option<Instant>| at.is_some_and(|at| at.elapsed() < LOOK_PERIOD);
            known.applied.get(&name).is_some_and(|(known, at)| *known == hash && fresh(at))
        });
        if is_applied {
            continue;
        }
        let kind = format!("{} of {}", text(&object["kind"]), text(&object["apiVersion"]));
        let answer = context.api.apply(object).await;
        let is_missing = answer.as_ref().is_err_and(is_missing_kind);
        if !is_missing {
            answer.asked(format!("apply {name}"))?;
        }
        context.with(uid, |known| {
            if is_missing {
                known.missing.insert(kind)
            } else {
                known.missing.remove(&kind)
            };
            known.applied.insert(name, (hash, Some(Instant::now())));
        });
    }
    Ok(())
}

/// A new authority and its token. Where the secret is there already, this one is thrown away.
fn join_secret(cluster: &RayCluster) -> Result<Value, LookError> {
    let authority = Authority::make()?;
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": cluster.secret(),
            "namespace": cluster.metadata.namespace,
            "labels": {CLUSTER_LABEL: cluster.metadata.name, CREATED_BY_LABEL: CREATED_BY},
            "ownerReferences": [owner(cluster)],
        },
        "type": "Opaque",
        "stringData": {"authority": authority.to_parts().to_text(), "join-token": authority.token().to_text()},
    }))
}

/// Writes the status where it is another than the last; what the cluster is known by then.
async fn tell(cluster: &RayCluster, told: &Value, context: &Context) -> Result<Option<Metadata>, LookError> {
    let same = |field: (&String, &Value)| {
        let before = &cluster.status[field.0];
        if field.1.is_null() { before.is_null() } else { without_nulls(field.1) == *before }
    };
    if told.as_object().is_some_and(|fields| fields.iter().all(same)) {
        return Ok(None);
    }
    let Value::Object(mut fields) = told.clone() else { return Ok(None) };
    for (_, value) in &mut fields {
        if !value.is_null() {
            *value = without_nulls(value);
        }
    }
    let name = &cluster.metadata.name;
    let answer =
        context.api.set_status(&cluster_kind(), &cluster.metadata.namespace, name, &Value::Object(fields)).await;
    let written = RayCluster::read(&answer.asked("write its status")?)?;
    Ok(Some(written.metadata))
}

/// As the API keeps it: a field without a value is none.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// Publishes what people should read, each once as long as it lasts.
async fn remark(cluster: &RayCluster, plan: &Plan, refusals: &Refusals, context: &Context) {
    let refused = refusals.iter().map(|(group, why)| Remark {
        is_warning: true,
        reason: if why.contains("quota") { "QuotaExceeded" } else { "PodRefused" },
        message: format!("group {group}: {why}"),
    });
    let remarks: Vec<Remark> = plan.remarks.iter().cloned().chain(refused).collect();
    let now: BTreeSet<_> = remarks.iter().map(|remark| (remark.reason, remark.message.clone())).collect();
    let before = context.with(&cluster.metadata.uid, |known| std::mem::replace(&mut known.remarked, now));
    let about = ObjectReference {
        api_version: Some(format!("{API_GROUP}/{API_VERSION}")),
        kind: Some("RayCluster".to_owned()),
        name: Some(cluster.metadata.name.clone()),
        namespace: Some(cluster.metadata.namespace.clone()),
        uid: Some(cluster.metadata.uid.clone()),
        ..ObjectReference::default()
    };
    for remark in remarks {
        if !before.contains(&(remark.reason, remark.message.clone())) {
            context.publish(&remark, &about).await;
        }
    }
}
