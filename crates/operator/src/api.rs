//! Objects of the API as JSON: what is not named in this program passes through it unchanged.

use crate::metrics::Metrics;
use crate::reconcile::cluster_kind;
use kube::Client;
use kube::core::Request;
use kube::core::params::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::Value;
use std::sync::Arc;

/// Whose fields those are that the operator applies.
pub(crate) const FIELD_MANAGER: &str = "oxiray-operator";
/// How many objects one answer lists.
const PAGE: u32 = 500;

/// A kind of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    /// `v1`, or a group and its version.
    version: String,
    plural: String,
}

impl Kind {
    pub(crate) fn new(version: &str, plural: &str) -> Self {
        Self { version: version.to_owned(), plural: plural.to_owned() }
    }

    /// The kind that an object says it is of. Those that are made here have their plurals by the plainest rule.
    fn of(object: &Value) -> Self {
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        Self::new(text("apiVersion"), &format!("{}s", text("kind").to_lowercase()))
    }

    fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.version.contains('/') { "apis" } else { "api" };
        let within = namespace.map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
        format!("/{root}/{}{within}/{}", self.version, self.plural)
    }
}

/// The API, with every request counted.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
    metrics: Arc<Metrics>,
}

/// A request with its body.
type Whole = http::Request<Vec<u8>>;
type Answer<T> = Result<T, kube::Error>;

impl Api {
    pub(crate) fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Self { client, metrics }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    async fn ask(&self, verb: &'static str, request: Result<Whole, kube::core::request::Error>) -> Answer<Value> {
        self.metrics.count_request(verb);
        let answer = self.client.request(request.map_err(kube::Error::BuildRequest)?).await;
        if answer.is_err() {
            self.metrics.count_refusal(verb);
        }
        if answer.as_ref().map_or_else(|error| code(error).is_some(), |_| true) {
            self.metrics.set_ready();
        }
        answer
    }

    pub(crate) async fn get(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Answer<Option<Value>> {
        let request = Request::new(kind.path(namespace)).get(name, &GetParams::default());
        match self.ask("get", request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if code(&error) == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn list(&self, kind: &Kind, namespace: Option<&str>, labels: &str) -> Answer<Vec<Value>> {
        let (mut found, mut next) = (Vec::new(), None::<String>);
        loop {
            let mut params = ListParams::default().labels(labels).limit(PAGE);
            params.continue_token = next;
            let mut page = self.ask("list", Request::new(kind.path(namespace)).list(&params)).await?;
            if let Value::Array(items) = page["items"].take() {
                found.extend(items);
            }
            next = page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned);
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// Makes an object unless there is one of its name.
    pub(crate) async fn create(&self, object: &Value) -> Answer<bool> {
        let request = Request::new(Kind::of(object).path(object["metadata"]["namespace"].as_str()))
            .create(&PostParams::default(), object.to_string().into_bytes());
        match self.ask("create", request).await {
            Ok(_) => Ok(true),
            Err(error) if code(&error) == Some(409) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes an object, or gives it the fields that are set here.
    pub(crate) async fn apply(&self, object: &Value) -> Answer<()> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let path = Kind::of(object).path(object["metadata"]["namespace"].as_str());
        self.ask("apply", Request::new(path).patch(name, &params, &Patch::Apply(object))).await.map(drop)
    }

    /// Gives a pod annotations, unless another has its name by now. One that is gone is no error.
    pub(crate) async fn annotate_pod(&self, namespace: &str, name: &str, uid: &str, annotations: &Value) -> Answer<()> {
        let body = serde_json::json!({"metadata": {"uid": uid, "annotations": annotations}});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let path = Kind::new("v1", "pods").path(Some(namespace));
        match self.ask("annotate", Request::new(path).patch(name, &params, &Patch::Merge(body))).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the fields of an object's status that are set here; the object as it is then.
    pub(crate) async fn set_status(&self, kind: &Kind, namespace: &str, name: &str, status: &Value) -> Answer<Value> {
        let body = serde_json::json!({"status": status});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let request =
            Request::new(kind.path(Some(namespace))).patch_subresource("status", name, &params, &Patch::Merge(body));
        self.ask("status", request).await
    }

    /// Changes a cluster by a JSON patch; the cluster as it is then.
    pub(crate) async fn change_cluster(&self, namespace: &str, name: &str, operations: &Value) -> Answer<Value> {
        let operations = serde_json::from_value(operations.clone()).map_err(kube::Error::SerdeError)?;
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let path = cluster_kind().path(Some(namespace));
        self.ask("scale", Request::new(path).patch(name, &params, &Patch::<()>::Json(operations))).await
    }

    /// Deletes an object, unless another has its name by now. One that is gone is no error.
    pub(crate) async fn delete(&self, kind: &Kind, namespace: &str, name: &str, uid: &str) -> Answer<()> {
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let request = Request::new(kind.path(Some(namespace))).delete(name, &params);
        match self.ask("delete", request).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The code that the API answered with, where it did.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Whether the API has no such kind: it names the object where it is the object that is missing.
pub(crate) fn is_missing_kind(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty())
}

/// What the API said, where it did.
pub(crate) fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
