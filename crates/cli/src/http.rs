//! Requests over HTTP to the dashboard of this machine's cluster.

use anyhow::{Context as _, bail};
use rustls::crypto::ring::default_provider;
use serde_json::Value as Json;
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{TlsConfig, TlsProvider};

/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Posts nothing to a dashboard that is known to be a process of this user's, which holds its port: its certificate is not looked
/// at. Returns the JSON that it answers.
pub(crate) fn post(url: &str, token: &str) -> anyhow::Result<Json> {
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .disable_verification(true)
        .build();
    let config = ureq::Agent::config_builder().timeout_global(Some(ANSWER_LIMIT)).http_status_as_error(false);
    let agent: ureq::Agent = config.proxy(None).tls_config(tls).build().into();
    let asked = agent.post(url).header("authorization", format!("Bearer {token}"));
    let mut answered = asked.send_empty().with_context(|| format!("{url} does not answer"))?;
    let text = answered.body_mut().read_to_string().context("the answer ends too soon")?;
    if !answered.status().is_success() {
        bail!("{url} answers {}: {}", answered.status(), text.trim());
    }
    serde_json::from_str(&text).context("the answer is no JSON")
}
