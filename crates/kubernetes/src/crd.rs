//! The definitions of `RayCluster` and `RayJob`, made from the types that read them, and of `RayService`, which is answered.
//!
//! What is not named here is kept: users bring objects with fields that only KubeRay knows, and pod templates are checked by
//! the API when pods are made of them.

use crate::cluster::{API_GROUP, API_VERSION, Spec};
use crate::job::JobSpec;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Any object.
pub(crate) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A quantity, which may be written as a number.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}

/// Quantities by their names.
pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}})
}

/// Fields of KubeRay's that ask for nothing.
const SILENT: &[&str] = &["rayVersion", "replicas"];

/// Fields of a cluster, of its head and of its groups that ask for something which is not done.
pub(crate) fn without_effect(spec: &Value) -> Vec<String> {
    static SPEC: LazyLock<Value> = LazyLock::new(raw_schema::<Spec>);
    let mut found = Vec::new();
    let mut check = |place: &str, given: &Value, schema: &Value| {
        let asks = |value: &Value| {
            let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty) || *value == json!([]);
            !is_empty && !value.is_null() && *value != json!(false)
        };
        for (name, value) in given.as_object().into_iter().flatten() {
            if schema["properties"].get(name).is_none() && !SILENT.contains(&name.as_str()) && asks(value) {
                found.push(format!("without effect: {place}{name}"));
            }
        }
    };
    let properties = &SPEC["properties"];
    check("", spec, &SPEC);
    check("headGroupSpec.", &spec["headGroupSpec"], &properties["headGroupSpec"]);
    for (index, group) in spec["workerGroupSpecs"].as_array().into_iter().flatten().enumerate() {
        check(&format!("workerGroupSpecs[{index}]."), group, &properties["workerGroupSpecs"]["items"]);
    }
    found
}

/// The definitions, to be applied to a cluster that has none of KubeRay's.
pub fn definitions() -> Vec<Value> {
    let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    let age = column("age", "date", ".metadata.creationTimestamp");
    let cluster = json!([
        column("desired workers", "integer", ".status.desiredWorkerReplicas"),
        column("ready workers", "integer", ".status.readyWorkerReplicas"),
        column("gpus", "string", ".status.desiredGPU"),
        column("status", "string", ".status.state"),
        age,
    ]);
    let job = json!([
        column("job status", "string", ".status.jobStatus"),
        column("deployment status", "string", ".status.jobDeploymentStatus"),
        column("cluster", "string", ".status.rayClusterName"),
        column("start time", "string", ".status.startTime"),
        column("end time", "string", ".status.endTime"),
        age,
    ]);
    let service = json!([column("supported", "string", ".status.conditions[?(@.type=='Ready')].status"), age]);
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    vec![
        definition("RayCluster", &schema::<Spec>(), &cluster),
        definition("RayJob", &schema::<JobSpec>(), &job),
        definition("RayService", &any, &service),
    ]
}

fn raw_schema<T: schemars::JsonSchema>() -> Value {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

fn schema<T: schemars::JsonSchema>() -> Value {
    let mut spec = raw_schema::<T>();
    make_structural(&mut spec);
    spec
}

fn definition(kind: &str, spec: &Value, columns: &Value) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{API_GROUP}")},
        "spec": {
            "group": API_GROUP,
            "names": {"kind": kind, "plural": plural, "singular": singular, "categories": ["all"]},
            "scope": "Namespaced",
            "versions": [{
                "name": API_VERSION,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": spec,
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
            }],
        },
    })
}

/// What the API takes of a schema, and with what it keeps fields that are not named.
fn make_structural(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    // Defaults are the reader's: one that the API fills in would be a field that somebody has to own.
    for unwanted in ["title", "default", "$schema"] {
        fields.remove(unwanted);
    }
    if fields.get("format").is_some_and(|format| format == "uint32") {
        fields.insert("format".to_owned(), json!("int32"));
        fields.insert("maximum".to_owned(), json!(i32::MAX));
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(make_structural);
        fields.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(inner) {
            make_structural(inner);
        }
    }
}
