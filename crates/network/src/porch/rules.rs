//! What becomes of a request, by its head alone.

use super::head::RequestHead;
use super::keys::{KeyKind, Keys, Right};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

/// The path at which a secret that opens an exchange is exchanged.
pub const SESSION_PATH: &str = "/ox/v1/session";
/// What paths begin with that are not Ray's: their own rules keep other sites' pages away.
const OWN_PREFIX: &str = "/ox/v1/";
/// Methods that change nothing.
const READING: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// A path that is answered to everybody, with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenPath {
    /// The path, which is compared as it is.
    pub path: &'static str,
    /// What the answer is.
    pub content_type: &'static str,
    /// The answer.
    pub body: &'static [u8],
    /// The same compressed by gzip; empty where that is not worth it.
    pub packed: &'static [u8],
}

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PorchRefusal {
    /// The status of HTTP, with its name.
    pub status: (u16, &'static str),
    /// What is said to whoever asked.
    pub text: &'static str,
    /// Whether the answer keeps whoever asked waiting: it guesses.
    pub is_slow: bool,
    /// Whether a secret was shown, and it does not open this.
    pub is_of_secret: bool,
}

impl PorchRefusal {
    /// It is not a request that has one meaning.
    pub const MALFORMED: Self = Self::new((400, "Bad Request"), "this is no request that has one meaning");
    /// Its head does not end.
    pub const TOO_LONG: Self =
        Self::new((431, "Request Header Fields Too Large"), "the head of the request is too long");
    /// All places are taken.
    pub const FULL: Self = Self::new((503, "Service Unavailable"), "too many connections are open: try again later");
    const HOST: Self = Self::new((421, "Misdirected Request"), "");
    const ORIGIN: Self = Self::new((403, "Forbidden"), "Forbidden: pages of other sites are not answered");
    const NO_TOKEN: Self = Self::new((401, "Unauthorized"), "Unauthorized: Missing authentication token");
    const WRONG_TOKEN: Self = Self { is_slow: true, ..Self::of_secret("Forbidden: Invalid authentication token") };
    const ONLY_READS: Self = Self::of_secret("Forbidden: this token only reads");
    const ONLY_TRADES: Self = Self::of_secret("Forbidden: this key opens a session, and nothing else");

    const fn new(status: (u16, &'static str), text: &'static str) -> Self {
        Self { status, text, is_slow: false, is_of_secret: false }
    }

    const fn of_secret(text: &'static str) -> Self {
        Self { is_of_secret: true, ..Self::new((403, "Forbidden"), text) }
    }

    /// The methods of Ray's API that no page of a browser may use.
    const fn of_browser(text: &'static str) -> Self {
        Self::new((405, "Method Not Allowed"), text)
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PorchVerdict {
    /// It is answered to everybody.
    Open(OpenPath),
    /// Whoever asked has proven what it may.
    Proven(Right),
    /// It is refused.
    Refused(PorchRefusal),
}

/// What a porch goes by.
#[derive(Debug, Default)]
pub struct PorchRules {
    /// Names that this machine is reached by, beside its addresses and `localhost`. A `*` at the beginning stands for letters, digits
    /// and dashes.
    pub hosts: Vec<String>,
    /// What is answered to everybody.
    pub open: Vec<OpenPath>,
    /// Paths that everybody may read and whose answers are made inside.
    pub public: Vec<&'static str>,
    /// Who else is.
    pub keys: Keys,
}

impl PorchRules {
    /// What becomes of a request at this time.
    pub fn judge(&self, head: &RequestHead<'_>, now: Instant) -> PorchVerdict {
        match self.look_at(head, now) {
            Ok(verdict) => verdict,
            Err(refusal) => PorchVerdict::Refused(refusal),
        }
    }

    /// Which secret is shown, for whoever keeps account of what is done with it.
    pub fn key_of(&self, head: &RequestHead<'_>, now: Instant) -> Option<KeyKind> {
        self.keys.kind_of(token(head).ok()?, now)
    }

    fn look_at(&self, head: &RequestHead<'_>, now: Instant) -> Result<PorchVerdict, PorchRefusal> {
        has_one_meaning(head)?;
        let host = self.host(head)?;
        is_of_this_site(head, host)?;
        if matches!(head.method, "GET" | "HEAD")
            && let Some(open) = self.open.iter().find(|open| open.path == head.path())
        {
            return Ok(PorchVerdict::Open(*open));
        }
        if head.is_reading() && self.public.contains(&head.path()) {
            return Ok(PorchVerdict::Proven(Right::Read));
        }
        let right = self.keys.right_of(token(head)?, now).ok_or(PorchRefusal::WRONG_TOKEN)?;
        let is_trade = head.method == "POST" && head.target == SESSION_PATH;
        match right {
            Right::Trade if !is_trade => return Err(PorchRefusal::ONLY_TRADES),
            Right::Read if !head.is_reading() => return Err(PorchRefusal::ONLY_READS),
            Right::All | Right::Read | Right::Trade => {}
        }
        if !head.target.starts_with(OWN_PREFIX) {
            passes_browser_gate(head)?;
        }
        Ok(PorchVerdict::Proven(right))
    }

    /// The host that is asked, where it is this one. A page whose name's owner has it lead here knows no other name than that.
    fn host<'bytes>(&self, head: &RequestHead<'bytes>) -> Result<&'bytes str, PorchRefusal> {
        let mut named = head.all("host");
        let (Some(host), None) = (named.next(), named.next()) else { return Err(PorchRefusal::HOST) };
        let host = std::str::from_utf8(host.trim_ascii()).map_err(|_| PorchRefusal::HOST)?;
        let name = without_port(host).ok_or(PorchRefusal::HOST)?;
        if is_address(name) || name.eq_ignore_ascii_case("localhost") || self.hosts.iter().any(|own| matches(own, name))
        {
            return Ok(host);
        }
        Err(PorchRefusal::HOST)
    }
}

/// PORCH-2: where the body begins and ends is said once.
fn has_one_meaning(head: &RequestHead<'_>) -> Result<(), PorchRefusal> {
    let lengths = head.all("content-length").count();
    let codings: Vec<&[u8]> = head.all("transfer-encoding").collect();
    let is_chunked = match codings.as_slice() {
        [] => false,
        [one] if one.trim_ascii().eq_ignore_ascii_case(b"chunked") => true,
        _ => return Err(PorchRefusal::MALFORMED),
    };
    let is_number = |value: &[u8]| !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let has_odd_length = head.all("content-length").any(|value| !is_number(value.trim_ascii()));
    if lengths + usize::from(is_chunked) > 1 || has_odd_length || !head.target.starts_with('/') {
        return Err(PorchRefusal::MALFORMED);
    }
    Ok(())
}

/// Whoever asks from a browser asks from a page of this host. It follows from this alone only where the host is known to be this
/// one.
fn is_of_this_site(head: &RequestHead<'_>, host: &str) -> Result<(), PorchRefusal> {
    for origin in head.all("origin") {
        let site = [b"http://".as_slice(), b"https://"].iter().find_map(|scheme| origin.strip_prefix(*scheme));
        if site != Some(host.as_bytes()) {
            return Err(PorchRefusal::ORIGIN);
        }
    }
    if head.all("sec-fetch-site").any(|site| site != b"same-origin" && site != b"none") {
        return Err(PorchRefusal::ORIGIN);
    }
    Ok(())
}

/// The secret that was shown.
fn token<'bytes>(head: &RequestHead<'bytes>) -> Result<&'bytes [u8], PorchRefusal> {
    for name in ["authorization", "x-ray-authorization"] {
        let mut shown = head.all(name);
        let Some(value) = shown.next() else { continue };
        if shown.next().is_some() {
            return Err(PorchRefusal::WRONG_TOKEN);
        }
        return value.trim_ascii().strip_prefix(b"Bearer ").ok_or(PorchRefusal::WRONG_TOKEN);
    }
    Err(PorchRefusal::NO_TOKEN)
}

/// Ray's rule for its own paths: what a browser sends may read only.
fn passes_browser_gate(head: &RequestHead<'_>) -> Result<(), PorchRefusal> {
    if head.is_reading() || !is_from_browser(head) {
        return Ok(());
    }
    Err(PorchRefusal::of_browser(match head.method {
        "POST" => "'POST' method not allowed for browser traffic.",
        "PUT" => "'PUT' method not allowed for browser traffic.",
        "DELETE" => "'DELETE' method not allowed for browser traffic.",
        "PATCH" => "'PATCH' method not allowed for browser traffic.",
        _ => "This method is not allowed for browser traffic.",
    }))
}

/// Whether a browser asks, as Ray tells.
fn is_from_browser(head: &RequestHead<'_>) -> bool {
    head.all("user-agent").any(|agent| agent.starts_with(b"Mozilla"))
        || ["referer", "origin"].iter().any(|name| head.all(name).next().is_some())
        || head.has_prefixed("sec-fetch-")
        || head.has_prefixed("access-control-request-")
}

impl RequestHead<'_> {
    /// Whether the method is one that changes nothing.
    pub fn is_reading(&self) -> bool {
        READING.contains(&self.method)
    }

    /// Whether a browser asks, as Ray tells: what is secret of an environment is not shown there.
    pub fn is_from_browser(&self) -> bool {
        is_from_browser(self)
    }
}

/// A host without `:PORT`.
fn without_port(host: &str) -> Option<&str> {
    let is_port = |port: &str| port.parse::<u16>().is_ok() && port.bytes().all(|byte| byte.is_ascii_digit());
    if host.starts_with('[') {
        let end = host.find(']')? + 1;
        let rest = &host[end..];
        let fits = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        return fits.then_some(&host[..end]);
    }
    match host.split_once(':') {
        None => Some(host),
        Some((name, port)) => is_port(port).then_some(name),
    }
}

fn is_address(name: &str) -> bool {
    let inner = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.map_or_else(|| name.parse::<Ipv4Addr>().is_ok(), |inner| inner.parse::<Ipv6Addr>().is_ok())
}

/// Whether a name is one that a pattern stands for.
fn matches(pattern: &str, name: &str) -> bool {
    let is_label =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let (pattern, name) = (pattern.to_ascii_lowercase(), name.to_ascii_lowercase());
    match pattern.strip_prefix('*') {
        None => name == pattern,
        Some(end) => name.strip_suffix(end).is_some_and(is_label),
    }
}
