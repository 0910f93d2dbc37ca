//! Labels and resources as they are written on the command line.

use anyhow::{Context as _, bail};
use std::collections::BTreeMap;

/// `{"zone": "a"}` or `zone=a,rack=7`.
pub(crate) fn labels(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text)
            .with_context(|| format!("--labels must be a JSON object of texts, but `{text}` is not"));
    }
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| match pair.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => bail!("--labels must be key=value,key=value or a JSON object, but `{pair}` is neither"),
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
    fn resources_with_options_of_their_own_are_refused() {
        let expected = BTreeMap::from([("widgets".to_owned(), 2.5)]);
        assert_eq!(resources(r#"{"widgets": 2.5}"#).expect("resources"), expected);
        let error = resources(r#"{"GPU": 1}"#).expect_err("GPU has its own option");
        assert_eq!(error.to_string(), "--resources must not name GPU: use --num-gpus");
        assert!(resources(r#"{"a": "b"}"#).is_err());
    }
}
