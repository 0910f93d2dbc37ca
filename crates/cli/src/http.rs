//! Requests over HTTP: to the dashboard of this machine's cluster, and to those of others.

use anyhow::{Context as _, bail};
use rustls::crypto::ring::default_provider;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Where systems keep the certificates of the authorities that they trust.
const SYSTEM_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// How the certificate of whoever answers is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verify {
    /// It is to lead to an authority that the system trusts.
    System,
    /// It is to lead to one in this file.
    File(PathBuf),
    /// It is not: whoever answers is known otherwise.
    Off,
}

/// One site that is asked.
#[derive(Debug)]
pub(crate) struct Site {
    agent: ureq::Agent,
    base: String,
    fields: Vec<(String, String)>,
}

/// What a site answered.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Told {
    /// The answer as JSON, where the site did what it was asked.
    pub(crate) fn json(self) -> anyhow::Result<Json> {
        if !(200..300).contains(&self.status) {
            bail!("Request failed with status code {}: {}", self.status, self.text.trim());
        }
        serde_json::from_str(&self.text).context("the answer is no JSON")
    }
}

impl Site {
    /// The site at `base`, such as `http://127.0.0.1:8265`, asked with these fields.
    pub(crate) fn new(base: &str, fields: Vec<(String, String)>, verify: &Verify) -> anyhow::Result<Self> {
        let config = ureq::Agent::config_builder().timeout_global(Some(ANSWER_LIMIT)).http_status_as_error(false);
        let config = if base.starts_with("https://") { config.tls_config(tls(verify)?) } else { config };
        Ok(Self { agent: config.build().into(), base: base.trim_end_matches('/').to_owned(), fields })
    }

    /// Asks with a method that has no body.
    pub(crate) fn ask(&self, method: &str, path: &str) -> anyhow::Result<Told> {
        self.send(method, path, None)
    }

    /// Sends JSON.
    pub(crate) fn post(&self, path: &str, body: &Json) -> anyhow::Result<Told> {
        self.send("POST", path, Some(body))
    }

    fn send(&self, method: &str, path: &str, body: Option<&Json>) -> anyhow::Result<Told> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in &self.fields {
            request = request.header(name, value);
        }
        let text = body.map(ToString::to_string);
        if text.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(text.unwrap_or_default()).context("the request has a field that cannot be sent")?;
        let answered = self.agent.run(request).with_context(|| format!("{} does not answer", self.base))?;
        let status = answered.status().as_u16();
        let mut body = answered.into_body();
        let text = body.with_config().limit(u64::MAX).read_to_string().context("the answer ends too soon")?;
        Ok(Told { status, text })
    }
}

fn tls(verify: &Verify) -> anyhow::Result<TlsConfig> {
    let config = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()));
    let path = match verify {
        Verify::Off => return Ok(config.disable_verification(true).build()),
        Verify::File(path) => path.clone(),
        Verify::System => system_authorities()?,
    };
    let text = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    let roots: Vec<_> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if roots.is_empty() {
        bail!("{} has no certificate: name a file with those of the authority, as PEM", path.display());
    }
    Ok(config.root_certs(RootCerts::Specific(Arc::new(roots))).build())
}

fn system_authorities() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let known = SYSTEM_AUTHORITIES.iter().map(PathBuf::from).find(|path| Path::exists(path));
    named.or(known).context("this system's authorities are not found: name a file with certificates with --verify")
}
