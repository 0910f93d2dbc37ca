//! A URL, and the client that reaches it.

use crate::trouble::Trouble;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, Error, ObjectStore, RetryConfig};
use std::sync::Arc;
use std::time::Duration;

/// The longest that one request is tried again by the client itself, after 5xx, time-outs and broken connections.
const RETRIES_FOR: Duration = Duration::from_secs(8);
/// How long a request may take: a piece of [`crate::transfer::PIECE_BYTES`] on a slow line.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// By what the storage knows who asks: any of these, or the role of the machine.
const CREDENTIALS: [&str; 4] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

/// Where files lie.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Below which they do, within the bucket.
    pub(crate) prefix: Path,
    url: String,
}

/// The bucket and the path in a URL.
fn parts(url: &str) -> Result<(&str, &str), Trouble> {
    let refuse = |why: &str| Err(Trouble::Refused(format!("`{url}` {why}; name one as s3://bucket/prefix")));
    let Some((scheme, rest)) = url.split_once("://") else { return refuse("is no URL") };
    if scheme != "s3" {
        return refuse(&format!("is of {scheme}://, and only storage that speaks S3 is known"));
    }
    let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() || path.contains('?') || path.contains('#') {
        return refuse("names no bucket and prefix");
    }
    Ok((bucket, path.trim_end_matches('/')))
}

impl Place {
    /// One of a session below a URL.
    pub(crate) fn of_session(url: &str, session: &str) -> Result<Self, Trouble> {
        let place = Self::of(url)?;
        Ok(Self { prefix: place.prefix.join("oxiray").join(session), ..place })
    }

    /// One file.
    pub(crate) fn of_file(url: &str) -> Result<Self, Trouble> {
        let place = Self::of(url)?;
        if place.prefix.as_ref().is_empty() {
            return Err(Trouble::Refused(format!("`{url}` names a bucket and no file in it")));
        }
        Ok(place)
    }

    /// All below a URL.
    pub(crate) fn of(url: &str) -> Result<Self, Trouble> {
        let (bucket, path) = parts(url)?;
        check(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .map_err(|why| Trouble::Refused(format!("`{url}` {why}")))?;
        let wrong = |error: &dyn std::fmt::Display| Trouble::Refused(format!("`{url}` cannot be used: {error}"));
        let backoff = BackoffConfig { max_backoff: Duration::from_secs(3), ..BackoffConfig::default() };
        let retries = RetryConfig { backoff, max_retries: 100, retry_timeout: RETRIES_FOR };
        let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retries);
        let allow_http = std::env::var("AWS_ALLOW_HTTP").is_ok_and(|value| is_true(&value));
        let client = ClientOptions::new()
            .with_allow_http(allow_http)
            .with_timeout(REQUEST_LIMIT)
            .with_connect_timeout(CONNECT_LIMIT);
        let store = builder.with_client_options(client).build().map_err(|error| wrong(&error))?;
        let prefix = Path::parse(path).map_err(|error| wrong(&error))?;
        Ok(Self { store: Arc::new(store), prefix, url: url.to_owned() })
    }

    /// As it was given.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What an error means: what was asked of which URL, what came back, and what to do.
    pub(crate) fn trouble(&self, asked: &str, error: &Error) -> Trouble {
        let text = |advice: &str| format!("{asked} at `{}` failed: {error}. {advice}", self.url);
        match error {
            Error::NotFound { .. } => Trouble::Gone(text("Look whether the bucket and the file are there")),
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Trouble::Refused(text(
                "Look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN in the environment of this daemon, and \
                 at what they may do in the bucket",
            )),
            _ if !has_credentials(|name| std::env::var(name).ok()) => Trouble::Away(text(
                "No credentials are set, and this machine has no role: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the \
                 environment of the daemon",
            )),
            _ => Trouble::Away(text("Look whether the endpoint answers (AWS_ENDPOINT_URL, AWS_REGION)")),
        }
    }
}

fn is_true(value: &str) -> bool {
    ["1", "true", "on", "yes", "y"].contains(&value.to_ascii_lowercase().as_str())
}

fn has_credentials(variable: impl Fn(&str) -> Option<String>) -> bool {
    CREDENTIALS.iter().any(|name| variable(name).is_some()) || variable("AWS_SKIP_SIGNATURE").is_some()
}

/// What the variables say that cannot work.
fn check(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    for name in ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"] {
        let Some(endpoint) = variable(name) else { continue };
        if endpoint.starts_with("http://") && !variable("AWS_ALLOW_HTTP").is_some_and(|value| is_true(&value)) {
            return Err(format!(
                "is reached at {endpoint} ({name}), where anybody on the way can read along; name an endpoint with https://, or \
                 set AWS_ALLOW_HTTP=true"
            ));
        }
    }
    let no_role = variable("AWS_EC2_METADATA_DISABLED").is_some_and(|value| is_true(&value));
    if no_role && !has_credentials(&variable) {
        return Err("needs credentials, and none are set: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of \
                    the daemon"
            .to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_url_names_a_bucket_and_a_prefix() {
        assert_eq!(parts("s3://bucket/a/b/"), Ok(("bucket", "a/b")));
        assert_eq!(parts("s3://bucket"), Ok(("bucket", "")));
        for wrong in ["gs://bucket/a", "bucket", "s3://", "s3:///a", "s3://bucket/a?b"] {
            let Err(Trouble::Refused(text)) = parts(wrong) else { panic!("{wrong}") };
            assert!(text.contains(wrong) && text.ends_with("name one as s3://bucket/prefix"), "{text}");
        }
    }

    #[test]
    fn what_cannot_work_is_said_before_it_is_tried() {
        let said = |given: &[(&str, &str)]| {
            let given: BTreeMap<_, _> =
                given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            check(|name| given.get(name).cloned()).err().unwrap_or_default()
        };
        assert_eq!(said(&[]), "");
        let plain = ("AWS_ENDPOINT_URL", "http://host:9000");
        assert!(said(&[plain]).ends_with("set AWS_ALLOW_HTTP=true"));
        assert_eq!(said(&[plain, ("AWS_ALLOW_HTTP", "true")]), "");
        assert_eq!(said(&[("AWS_ENDPOINT_URL", "https://host:9000")]), "");
        let disabled = ("AWS_EC2_METADATA_DISABLED", "true");
        assert!(said(&[disabled]).starts_with("needs credentials"));
        assert_eq!(said(&[disabled, ("AWS_ACCESS_KEY_ID", "key")]), "");
    }
}
