//! The definition of `RayCluster`, made from the types that read it.
//!
//! What is not named here is kept: users bring objects with fields that only KubeRay knows, and pod templates are checked by
//! the API when pods are made of them.

use crate::cluster::{API_GROUP, API_VERSION, Spec};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

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

/// The definition, to be applied to a cluster that has none of KubeRay's.
pub fn definition() -> Value {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut spec = settings.into_generator().into_root_schema_for::<Spec>().to_value();
    make_structural(&mut spec);
    let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("rayclusters.{API_GROUP}")},
        "spec": {
            "group": API_GROUP,
            "names": {"kind": "RayCluster", "plural": "rayclusters", "singular": "raycluster", "categories": ["all"]},
            "scope": "Namespaced",
            "versions": [{
                "name": API_VERSION,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("desired workers", "integer", ".status.desiredWorkerReplicas"),
                    column("ready workers", "integer", ".status.readyWorkerReplicas"),
                    column("gpus", "string", ".status.desiredGPU"),
                    column("status", "string", ".status.state"),
                    column("age", "date", ".metadata.creationTimestamp"),
                ],
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
