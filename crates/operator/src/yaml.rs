//! JSON values as YAML for people: blocks, one field a line, texts quoted wherever they could be read as something else.

use serde_json::Value;
use std::fmt::Write as _;

/// The whole text.
pub(crate) fn text(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

/// Writes the lines of a map or a list, from a line's beginning on.
fn block(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                text.push_str(&"  ".repeat(depth));
                text.push_str(key);
                text.push(':');
                after(value, depth + 1, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let mut lines = String::new();
                block(item, depth + 1, &mut lines);
                // The first line of an entry stands behind its dash.
                let indent = "  ".repeat(depth);
                let _ = write!(text, "{indent}- {}", lines.trim_start());
            }
        }
        other => {
            let _ = writeln!(text, "{}{}", "  ".repeat(depth), scalar(other));
        }
    }
}

/// Writes what stands behind a key.
fn after(value: &Value, depth: usize, text: &mut String) {
    let is_block = value.as_object().is_some_and(|fields| !fields.is_empty())
        || value.as_array().is_some_and(|items| !items.is_empty());
    if is_block {
        text.push('\n');
        block(value, depth, text);
    } else {
        let _ = writeln!(text, " {}", scalar(value));
    }
}

fn scalar(value: &Value) -> String {
    let is_plain = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./".contains(letter))
            && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_lowercase().as_str())
    };
    match value.as_str() {
        Some(text) if is_plain(text) => text.to_owned(),
        // JSON's texts are YAML's, and so are its numbers, `{}` and `[]`.
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_back() {
        let value = json!({
            "a": {"b": [1, "two", {"c": "yes", "d": []}, ["nested", {"e": {}}]]},
            "text": "colon: and \"quotes\"\n", "number": "12", "nothing": null, "truth": true,
        });
        let read: Value = serde_saphyr::from_str(&text(&value)).expect("YAML");
        assert_eq!(read, value);
    }

    #[test]
    fn the_definitions_in_deploy_are_those_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kubernetes/crd.yaml");
        let kept = std::fs::read_to_string(path).expect("deploy/kubernetes/crd.yaml");
        let made: Vec<String> = oxiray_kubernetes::definitions().iter().map(text).collect();
        let made = made.join("---\n");
        assert!(kept == made, "deploy/kubernetes/crd.yaml is old: oxiray-operator crd > deploy/kubernetes/crd.yaml");
    }
}
