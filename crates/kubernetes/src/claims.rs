//! Devices that pods claim (dynamic resource allocation) rather than count.

use crate::capacity::Catalogue;
use crate::devices::{MoreDevices, Unit, class_unit, unit_of};
use serde_json::Value;
use std::collections::BTreeMap;

/// The objects that claims refer to, by name.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// `ResourceClaimTemplate` objects of the cluster's namespace.
    pub templates: BTreeMap<String, Value>,
    /// `ResourceClaim` objects of the cluster's namespace.
    pub claims: BTreeMap<String, Value>,
    /// `DeviceClass` objects.
    pub classes: BTreeMap<String, Value>,
}

impl Claims {
    /// The class whose devices a container's extended resource is served with.
    pub(crate) fn class_of_extended_resource(&self, name: &str) -> Option<&String> {
        let has = |class: &&String| self.classes[*class]["spec"]["extendedResourceName"] == name;
        self.classes.keys().find(has)
    }

    fn unit(&self, class: &str, more: &MoreDevices) -> Option<Unit> {
        let extended = self.classes.get(class).and_then(|class| class["spec"]["extendedResourceName"].as_str());
        class_unit(class, more).or_else(|| unit_of(extended?, None, more))
    }
}

/// A number of devices of one class.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claimed {
    pub(crate) class: String,
    pub(crate) unit: Unit,
    pub(crate) count: f64,
}

/// The names of the claim templates, and of the claims, that a pod refers to.
pub fn references(template: &Value) -> (Vec<String>, Vec<String>) {
    let entries = template["spec"]["resourceClaims"].as_array();
    let named =
        |key: &str| entries.into_iter().flatten().filter_map(|entry| entry[key].as_str().map(str::to_owned)).collect();
    (named("resourceClaimTemplateName"), named("resourceClaimName"))
}

/// The devices that the pod's first container claims.
pub(crate) fn claimed(pod: &Value, catalogue: &Catalogue, notes: &mut Vec<String>) -> Vec<Claimed> {
    let mut found = Vec::new();
    for used in pod["containers"][0]["resources"]["claims"].as_array().into_iter().flatten() {
        let Some(name) = used["name"].as_str() else { continue };
        let entries = pod["resourceClaims"].as_array();
        let Some(entry) = entries.into_iter().flatten().find(|entry| entry["name"] == name) else {
            notes.push(format!("claim `{name}` of the container is not in the pod's resourceClaims"));
            continue;
        };
        let claims = &catalogue.claims;
        let (object, path) = if let Some(template) = entry["resourceClaimTemplateName"].as_str() {
            (claims.templates.get(template).map(|object| &object["spec"]["spec"]), template)
        } else {
            let claim = entry["resourceClaimName"].as_str().unwrap_or_default();
            (claims.claims.get(claim).map(|object| &object["spec"]), claim)
        };
        let Some(spec) = object else {
            notes.push(format!("claim `{name}` refers to `{path}`, which is not there: its devices are not counted"));
            continue;
        };
        for request in spec["devices"]["requests"].as_array().into_iter().flatten() {
            if used["request"].as_str().is_none_or(|only| request["name"] == only) {
                found.extend(requested(name, request, catalogue, notes));
            }
        }
    }
    found
}

/// What one request of a claim is sure to bring: of several alternatives, what each of them has.
fn requested(claim: &str, request: &Value, catalogue: &Catalogue, notes: &mut Vec<String>) -> Option<Claimed> {
    let one = [&request["exactly"]];
    let several: Vec<&Value> = request["firstAvailable"].as_array().into_iter().flatten().collect();
    let alternatives = if several.is_empty() { one.as_slice() } else { several.as_slice() };
    let mut least: Option<Claimed> = None;
    for alternative in alternatives {
        let class = alternative["deviceClassName"].as_str().unwrap_or_default();
        if alternative["adminAccess"] == true {
            return None;
        }
        if alternative["allocationMode"] == "All" {
            notes.push(format!("claim `{claim}` takes all devices, whose number depends on the machine: say it in the group's `resources`"));
            return None;
        }
        let Some(unit) = catalogue.claims.unit(class, &catalogue.more) else {
            notes.push(format!("claim `{claim}` is of class `{class}`, which counts as no accelerator: say what it is in the group's `resources`"));
            return None;
        };
        let count = alternative["count"].as_f64().unwrap_or(1.0);
        if least.as_ref().is_some_and(|least| least.unit.resource != unit.resource) {
            notes.push(format!("claim `{claim}` may bring devices of different kinds: say in the group's `resources` what to count with"));
            return None;
        }
        if least.as_ref().is_none_or(|least| count < least.count) {
            least = Some(Claimed { class: class.to_owned(), unit, count });
        }
    }
    least
}
