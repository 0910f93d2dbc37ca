//! `RayService` objects: read, and answered that they are not supported. Nothing is made for them.

use crate::api::Kind;
use crate::reconcile::{Asked as _, Context, LookError};
use kube::core::DynamicObject;
use kube::runtime::controller::Action;
use oxiray_kubernetes::{API_GROUP, API_VERSION, timestamp};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What there is to do instead.
const MESSAGE: &str = "Oxiray does not deploy RayServices, since Ray Serve has no HTTP API for deployments here: run \
                       `serve run` or the program in a RayJob, or in a RayCluster behind a Service of yours";

/// Says once for each version of the object that nothing comes of it.
pub(crate) async fn reconcile(object: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, LookError> {
    let metadata = &object.metadata;
    let (Some(name), Some(namespace)) = (&metadata.name, &metadata.namespace) else {
        return Ok(Action::await_change());
    };
    let known = &object.data["status"]["conditions"];
    let is_told = |one: &Value| {
        one["type"] == "Ready"
            && one["reason"] == "NotSupported"
            && one["observedGeneration"] == json!(metadata.generation)
    };
    if metadata.deletion_timestamp.is_some() || known.as_array().is_some_and(|known| known.iter().any(is_told)) {
        return Ok(Action::await_change());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let status = json!({
        "observedGeneration": metadata.generation,
        "conditions": [{
            "type": "Ready", "status": "False", "reason": "NotSupported", "message": MESSAGE,
            "lastTransitionTime": timestamp(now), "observedGeneration": metadata.generation,
        }],
    });
    let kind = Kind::new(&format!("{API_GROUP}/{API_VERSION}"), "rayservices");
    context.api.set_status(&kind, namespace, name, &status).await.asked("write the status of a RayService")?;
    Ok(Action::await_change())
}
