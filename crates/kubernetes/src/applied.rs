//! What server-side apply asks of an object, and older servers in earnest: quantities that are texts, every key on every
//! entry of a list whose entries have keys, and no key twice. Where pods are made another way all that is made up for,
//! and so templates leave it to others.

use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Fields whose values are quantities, wherever in a pod they are.
const QUANTITIES: [&str; 3] = ["limits", "requests", "overhead"];
/// Fields that are quantities.
const QUANTITY: [&str; 2] = ["sizeLimit", "divisor"];

/// Makes a pod's `spec` one that can be applied, of the same pod: a port is TCP's where nothing is said, and of variables
/// with one name the last holds.
pub(crate) fn make_applicable(spec: &mut Value) {
    match spec {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    (name, Value::Object(amounts)) if QUANTITIES.contains(&name) => {
                        amounts.values_mut().for_each(to_text);
                    }
                    (name, value @ Value::Number(_)) if QUANTITY.contains(&name) => to_text(value),
                    ("ports", Value::Array(ports)) => ports.iter_mut().for_each(name_protocol),
                    ("env", Value::Array(variables)) => {
                        keep_last(variables);
                        variables.iter_mut().for_each(make_applicable);
                    }
                    (_, value) => make_applicable(value),
                }
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(make_applicable),
        _ => {}
    }
}

/// Writes a quantity as a text.
pub(crate) fn to_text(quantity: &mut Value) {
    if quantity.is_number() {
        *quantity = json!(quantity.to_string());
    }
}

fn name_protocol(port: &mut Value) {
    if port["protocol"].is_null() {
        port["protocol"] = json!("TCP");
    }
}

fn keep_last(variables: &mut Vec<Value>) {
    let mut seen = BTreeSet::new();
    variables.reverse();
    variables.retain(|variable| seen.insert(variable["name"].to_string()));
    variables.reverse();
}
