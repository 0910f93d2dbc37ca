//! Labels and resources as they are written on the command line.

use anyhow::{Context as _, bail};
use std::collections::BTreeMap;
use std::path::Path;

/// The label that each node has of itself.
const OWN_LABEL: &str = "ray.io/node-id";

/// The labels of `--labels-file`, and those of `--labels`, which win.
pub(crate) fn of_node(text: Option<&str>, file: Option<&Path>) -> anyhow::Result<BTreeMap<String, String>> {
    let mut all = file.map(labels_in).transpose()?.unwrap_or_default();
    all.extend(text.map(labels).transpose()?.unwrap_or_default());
    if all.contains_key(OWN_LABEL) {
        bail!("{NO_PAIR} The key `{OWN_LABEL}` is each node's own: leave it out");
    }
    Ok(all)
}

/// How the message begins where a label is none; scripts look for it.
const NO_PAIR: &str = "Label string is not a key-value pair.";

/// A YAML map of texts.
fn labels_in(file: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("--labels-file {} cannot be read", file.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("--labels-file {} is no YAML map of texts", file.display()))
}

/// `{"zone": "a"}` or `zone=a,rack=7`.
pub(crate) fn labels(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text)
            .with_context(|| format!("{NO_PAIR} --labels must be a JSON object of texts, but `{text}` is not"));
    }
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| match pair.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => bail!("{NO_PAIR} --labels must be key=value,key=value or a JSON object, but `{pair}` is neither"),
    });
    pairs.collect()
}

/// `{"widgets": 2}`.
pub(crate) fn resources(text: &str) -> anyhow::Result<BTreeMap<String, f64>> {
    let resources: BTreeMap<String, f64> = serde_json::from_str(text).with_context(|| {
        format!("--resources must be a JSON object of numbers such as '{{\"widgets\": 2}}', but `{text}` is not")
    })?;
    for (taken, option) in [
        ("CPU", "--num-cpus"),
        ("GPU", "--num-gpus"),
        ("memory", "--memory"),
        ("object_store_memory", "--object-store-memory"),
    ] {
        if resources.contains_key(taken) {
            bail!("--resources must not name {taken}: use {option}");
        }
    }
    Ok(resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_as_json_or_as_pairs() {
        let expected = BTreeMap::from([("rack".to_owned(), "7".to_owned()), ("zone".to_owned(), "a".to_owned())]);
        assert_eq!(labels(r#"{"zone": "a", "rack": "7"}"#).expect("labels"), expected);
        assert_eq!(labels("zone=a, rack=7,").expect("labels"), expected);
        assert!(labels("zone").is_err() && labels("=a").is_err() && labels("{").is_err());
    }

    #[test]
    fn a_file_has_labels_too_and_a_node_keeps_its_own() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("labels.yaml");
        std::fs::write(&file, "zone: b\nrack: '7'\n").expect("written");
        let expected = BTreeMap::from([("rack".to_owned(), "7".to_owned()), ("zone".to_owned(), "a".to_owned())]);
        assert_eq!(of_node(Some("zone=a"), Some(&file)).expect("labels"), expected);
        let error = of_node(Some("ray.io/node-id=a"), None).expect_err("it is the node's own");
        assert!(error.to_string().starts_with("Label string is not a key-value pair."));
        std::fs::write(&file, "- zone\n").expect("written");
        assert!(of_node(None, Some(&file)).is_err());
    }

    #[test]
    fn resources_with_options_of_their_own_are_refused() {
        let expected = BTreeMap::from([("widgets".to_owned(), 2.5)]);
        assert_eq!(resources(r#"{"widgets": 2.5}"#).expect("resources"), expected);
        let error = resources(r#"{"GPU": 1}"#).expect_err("GPU has its own option");
        assert_eq!(error.to_string(), "--resources must not name GPU: use --num-gpus");
        assert!(resources(r#"{"a": "b"}"#).is_err());
    }
}
