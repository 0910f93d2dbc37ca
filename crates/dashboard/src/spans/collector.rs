//! The collector, and what becomes of what it is sent.

use anyhow::{Context as _, bail};
use serde_json::Value as Json;
use std::time::Duration;
use ureq::http::{HeaderName, HeaderValue, Uri};

/// How long an answer may take, and how long it may be, in bytes.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Where collectors take spans.
const PATH: &str = "/v1/traces";
/// What a collector answers that can take nothing for now.
const LATER: [u16; 4] = [429, 502, 503, 504];

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The collector has it, but for what it says.
    Taken(Option<String>),
    /// It will never take this.
    Refused(String),
    /// It may take it later.
    Later(String),
}

/// Where spans are sent.
#[derive(Debug)]
pub(super) struct Collector {
    agent: ureq::Agent,
    url: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Collector {
    /// The one with this URL, which is sent these headers, `name=value` with commas between.
    pub(super) fn new(url: &str, headers: &str) -> anyhow::Result<Self> {
        let config = ureq::Agent::config_builder().timeout_global(Some(ANSWER_LIMIT)).http_status_as_error(false);
        let agent = config.proxy(None).build().into();
        Ok(Self { agent, url: full_url(url)?, headers: parsed(headers)? })
    }

    /// The URL with its path.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request, and waits for the answer.
    pub(super) fn send(&self, body: &str) -> Sent {
        let mut asked = self.agent.post(&self.url).header("content-type", "application/json");
        for (name, value) in &self.headers {
            asked = asked.header(name, value);
        }
        let mut answered = match asked.send(body) {
            Ok(answered) => answered,
            Err(error) => return Sent::Later(format!("{} does not answer: {error}", self.url)),
        };
        let text = answered.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().unwrap_or_default();
        judged(answered.status().as_u16(), &text)
    }
}

/// What an answer means.
fn judged(status: u16, text: &str) -> Sent {
    if (200..300).contains(&status) {
        let told: Json = serde_json::from_str(text).unwrap_or_default();
        let partial = &told["partialSuccess"];
        let rejected = partial["rejectedSpans"].as_u64().or_else(|| partial["rejectedSpans"].as_str()?.parse().ok());
        let said = rejected.filter(|rejected| *rejected > 0).map(|rejected| {
            format!("{rejected} spans: {}", partial["errorMessage"].as_str().unwrap_or("it does not say why"))
        });
        return Sent::Taken(said);
    }
    let said = format!("it answers {status}: {:.300}", text.trim());
    if LATER.contains(&status) { Sent::Later(said) } else { Sent::Refused(said) }
}

/// The URL that spans are posted to.
///
/// # Errors
/// Where the URL is none of plain HTTP, or has no host.
pub(crate) fn full_url(given: &str) -> anyhow::Result<String> {
    let uri: Uri = given.parse().with_context(|| format!("{given} is no URL"))?;
    if uri.scheme_str() == Some("https") {
        bail!(
            "{given}: spans are sent by plain HTTP: name a collector of this machine, http://127.0.0.1:4318, which sends them on"
        );
    }
    if uri.scheme_str() != Some("http") || uri.host().is_none_or(str::is_empty) {
        bail!("{given} is no URL of a collector: name one as http://HOST:4318");
    }
    let base = given.trim_end_matches('/');
    Ok(if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") })
}

fn parsed(headers: &str) -> anyhow::Result<Vec<(HeaderName, HeaderValue)>> {
    let pairs = headers.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let parse = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
    };
    // The value may be a secret.
    pairs.map(|pair| parse(pair).context("OTEL_EXPORTER_OTLP_HEADERS is no list of name=value")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gets_the_path_of_traces() {
        for (given, full) in [
            ("http://here:4318", "http://here:4318/v1/traces"),
            ("http://here/otlp/", "http://here/otlp/v1/traces"),
            ("http://here/v1/traces", "http://here/v1/traces"),
        ] {
            assert_eq!(full_url(given).expect("one"), full);
        }
        for wrong in ["here:4318", "https://here", "http://", "grpc://here:4317"] {
            assert!(full_url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn headers_are_names_and_values() {
        assert_eq!(parsed("a=b, authorization=Bearer x=").expect("two").len(), 2);
        assert!(parsed("").expect("none").is_empty() && parsed("a").is_err() && parsed("a b=c").is_err());
    }

    #[test]
    fn an_answer_says_whether_it_is_sent_again() {
        assert_eq!(judged(200, "{}"), Sent::Taken(None));
        assert_eq!(
            judged(200, r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"old"}}"#),
            Sent::Taken(Some("2 spans: old".into()))
        );
        assert!(matches!(judged(503, "busy"), Sent::Later(said) if said.contains("busy")));
        assert!(matches!(judged(400, "what"), Sent::Refused(_)));
    }
}
