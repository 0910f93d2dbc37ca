//! The collector, and what becomes of what it is sent.

use anyhow::{Context as _, bail};
use std::time::Duration;
use ureq::http::{HeaderName, HeaderValue, Uri};

/// How long an answer may take, and how long it may be, in bytes.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// What a collector answers that can take nothing for now.
const LATER: [u16; 4] = [429, 502, 503, 504];

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The collector has it, but for what it says.
    Taken(Option<String>),
    /// It will never take this.
    Refused(String),
    /// It may take it later.
    Later(String),
}

/// What an answer means, by its status and its text.
pub(crate) type Judge = fn(u16, &str) -> Sent;

/// Where something is sent.
#[derive(Debug)]
pub(crate) struct Collector {
    agent: ureq::Agent,
    url: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    judge: Judge,
}

impl Collector {
    /// The one with this URL, which is sent these headers, `name=value` with commas between.
    pub(crate) fn new(url: String, headers: &str, judge: Judge) -> anyhow::Result<Self> {
        let config = ureq::Agent::config_builder().timeout_global(Some(ANSWER_LIMIT)).http_status_as_error(false);
        let agent = config.proxy(None).build().into();
        Ok(Self { agent, url, headers: parsed(headers)?, judge })
    }

    /// The URL with its path.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request, and waits for the answer.
    pub(crate) fn send(&self, body: &str) -> Sent {
        let mut asked = self.agent.post(&self.url).header("content-type", "application/json");
        for (name, value) in &self.headers {
            asked = asked.header(name, value);
        }
        let mut answered = match asked.send(body) {
            Ok(answered) => answered,
            Err(error) => return Sent::Later(format!("{} does not answer: {error}", self.url)),
        };
        let text = answered.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().unwrap_or_default();
        (self.judge)(answered.status().as_u16(), &text)
    }
}

/// What an answer means of which only the status counts.
pub(crate) fn judged(status: u16, text: &str) -> Sent {
    if (200..300).contains(&status) {
        return Sent::Taken(None);
    }
    let said = format!("it answers {status}: {:.300}", text.trim());
    if LATER.contains(&status) { Sent::Later(said) } else { Sent::Refused(said) }
}

/// Looks at a URL that something is sent to; `what` that is, and `example` is one that will do.
///
/// # Errors
/// Where it is none of plain HTTP, or has no host.
pub(crate) fn check_url(given: &str, what: &str, example: &str) -> anyhow::Result<()> {
    let uri: Uri = given.parse().with_context(|| format!("{given} is no URL"))?;
    if uri.scheme_str() == Some("https") {
        bail!(
            "{given}: {what} are sent by plain HTTP: name a collector of this machine, {example}, which sends them on"
        );
    }
    if uri.scheme_str() != Some("http") || uri.host().is_none_or(str::is_empty) {
        bail!("{given} is no URL of a collector: name one as {example}");
    }
    Ok(())
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
    fn a_url_is_of_plain_http_and_has_a_host() {
        assert!(check_url("http://here:4318", "spans", "http://127.0.0.1:4318").is_ok());
        for wrong in ["here:4318", "https://here", "http://", "grpc://here:4317"] {
            let said = check_url(wrong, "spans", "http://127.0.0.1:4318").expect_err("no URL").to_string();
            assert!(said.contains(wrong), "{said}");
        }
    }

    #[test]
    fn headers_are_names_and_values() {
        assert_eq!(parsed("a=b, authorization=Bearer x=").expect("two").len(), 2);
        assert!(parsed("").expect("none").is_empty() && parsed("a").is_err() && parsed("a b=c").is_err());
    }

    #[test]
    fn an_answer_says_whether_it_is_sent_again() {
        assert_eq!(judged(200, "whatever"), Sent::Taken(None));
        assert!(matches!(judged(503, "busy"), Sent::Later(said) if said.contains("busy")));
        assert!(matches!(judged(400, "what"), Sent::Refused(_)));
    }
}
