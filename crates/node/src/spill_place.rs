//! Where objects go that memory has no room for: what an option, a variable or Ray's own configuration says.

use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The place itself, as the option `--object-spilling-directory` has it.
const DIRECTORY_VARIABLE: &str = "RAY_object_spilling_directory";
/// The place in Ray's JSON, which is also what `_system_config` says.
const CONFIG_VARIABLE: &str = "RAY_object_spilling_config";

/// A directory, or storage beyond the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpillPlace {
    /// A directory of this machine.
    Directory(PathBuf),
    /// The URL of storage. Which schemes there are is the business of the program that speaks to it.
    Storage(String),
}

/// The configuration is none that can be followed.
#[derive(Debug, thiserror::Error)]
#[error(
    "{CONFIG_VARIABLE} is `{given}`: {why}; it is to be as {}",
    r#"{"type": "smart_open", "params": {"uri": "s3://bucket/prefix"}} or {"type": "filesystem", "params": {"directory_path": "/disk"}}"#
)]
pub struct SpillPlaceError {
    given: String,
    why: String,
}

/// Ray's `object_spilling_config`.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", content = "params", rename_all = "snake_case")]
enum SpillingConfig {
    Filesystem { directory_path: Value },
    SmartOpen { uri: Value },
}

impl SpillPlace {
    /// What was given, else what the variables say; nothing for the session's own folder.
    ///
    /// # Errors
    /// Where the JSON is not Ray's, or names several places.
    pub fn settle(
        given: Option<&Path>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SpillPlaceError> {
        let said = |name: &str| variable(name).filter(|value| !value.is_empty());
        match (given, said(DIRECTORY_VARIABLE), said(CONFIG_VARIABLE)) {
            (Some(path), ..) => Ok(Some(Self::of(path))),
            (None, Some(path), _) => Ok(Some(Self::of(Path::new(&path)))),
            (None, None, Some(config)) => configured(&config).map(Some),
            (None, None, None) => Ok(None),
        }
    }

    fn of(named: &Path) -> Self {
        match named.to_str() {
            Some(text) if text.starts_with("file://") => Self::Directory(text.trim_start_matches("file://").into()),
            Some(text) if text.contains("://") => Self::Storage(text.to_owned()),
            _ => Self::Directory(named.to_owned()),
        }
    }
}

fn configured(given: &str) -> Result<SpillPlace, SpillPlaceError> {
    let wrong = |why: String| SpillPlaceError { given: given.to_owned(), why };
    let config = serde_json::from_str(given).map_err(|error| wrong(error.to_string()))?;
    let (SpillingConfig::Filesystem { directory_path: place } | SpillingConfig::SmartOpen { uri: place }) = config;
    // Ray takes one, and a list of them.
    let named = match &place {
        Value::Array(places) => places.as_slice(),
        place => std::slice::from_ref(place),
    };
    match named {
        [Value::String(place)] => Ok(SpillPlace::of(Path::new(place))),
        _ => Err(wrong("it does not name one place, and objects go to one".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(given: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<SpillPlace>, SpillPlaceError> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        SpillPlace::settle(given.map(Path::new), variable)
    }

    #[test]
    fn what_is_given_comes_before_variables_and_a_url_is_storage() {
        let variables = [
            (DIRECTORY_VARIABLE, "/disk"),
            (CONFIG_VARIABLE, r#"{"type": "smart_open", "params": {"uri": ["s3://bucket/a"], "buffer_size": 1}}"#),
        ];
        let storage = |url: &str| Some(SpillPlace::Storage(url.into()));
        let directory = |path: &str| Some(SpillPlace::Directory(path.into()));
        assert_eq!(settled(Some("s3://bucket"), &variables).unwrap(), storage("s3://bucket"));
        assert_eq!(settled(Some("file:///spill"), &variables).unwrap(), directory("/spill"));
        assert_eq!(settled(None, &variables).unwrap(), directory("/disk"));
        assert_eq!(settled(None, &variables[1..]).unwrap(), storage("s3://bucket/a"));
        let config = (CONFIG_VARIABLE, r#"{"type": "filesystem", "params": {"directory_path": "/a"}}"#);
        assert_eq!(settled(None, &[config]).unwrap(), directory("/a"));
        assert_eq!(settled(None, &[]).unwrap(), None);
    }

    #[test]
    fn a_configuration_that_cannot_be_followed_is_refused_with_the_way_out() {
        for wrong in [
            "{",
            r#"{"type": "ray_storage", "params": {}}"#,
            r#"{"type": "smart_open", "params": {}}"#,
            r#"{"type": "filesystem", "params": {"directory_path": ["/a", "/b"]}}"#,
            r#"{"type": "filesystem", "params": {"directory_path": []}}"#,
        ] {
            let text = settled(None, &[(CONFIG_VARIABLE, wrong)]).unwrap_err().to_string();
            assert!(text.contains(wrong) && text.contains("s3://bucket/prefix"), "{text}");
        }
    }
}
