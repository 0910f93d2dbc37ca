//! Requests over HTTP that are put together of what matters at the porch, and changed: what it makes of them follows from their
//! bytes, and nobody is let in who has not shown the token to a host that is this one. `make fuzz-porch` has the same looked at of
//! requests that are found by what they cover (`fuzz/`).

use fastrand::Rng;
use oxiray_network::porch::{HEAD_BYTES_MAX, OpenPath, PorchRules, PorchVerdict, RequestHead, Right, parse_head};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

/// The token that opens everything, and the one that reads.
const TOKEN: &str = "a-token-of-the-fuzzer";
const READING_TOKEN: &str = "a-token-that-reads-only";
/// The name that this host has beside its addresses.
const OWN_NAME: &str = "own.example";
/// What everybody may read, answered by the porch and within.
const PAGE: OpenPath = OpenPath { path: "/", content_type: "text/html", body: b"page", packed: b"" };
const PUBLIC: &str = "/metrics";
/// Methods that change nothing.
const READING: [&str; 3] = ["GET", "HEAD", "OPTIONS"];
/// What requests are put together of.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "HEAD", "PRI"];
const TARGETS: [&str; 9] = [
    "/",
    "/api/version",
    "/api/jobs/%2e%2e",
    "*",
    "http://localhost/",
    "/ox/v1/session",
    "//evil",
    "/?token=x",
    "/metrics?x",
];
const VERSIONS: [&str; 4] = ["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.1 "];
const FIELDS: [&str; 26] = [
    "Host: localhost",
    "Host: 127.0.0.1:8265",
    "Host: evil.com",
    "Host: localhost.evil.com",
    "host: own.example",
    "Host: [::1]:8265",
    "Host:",
    "Authorization: Bearer a-token-of-the-fuzzer",
    "authorization: Bearer a-token-of-the-fuzzes",
    "Authorization: a-token-of-the-fuzzer",
    "X-Ray-Authorization: Bearer a-token-of-the-fuzzer",
    "X-Ray-Authorization: Bearer a-token-that-reads-only",
    "Origin: http://localhost",
    "Origin: http://evil.com",
    "Origin: null",
    "Sec-Fetch-Site: cross-site",
    "Sec-Fetch-Site: same-origin",
    "User-Agent: Mozilla/5.0",
    "Content-Length: 4",
    "Content-Length: 5",
    "Content-Length: +4",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity, chunked",
    "Transfer-Encoding : chunked",
    " folded: x",
    "Cookie: ray-authentication-token=a-token-of-the-fuzzer",
];
/// The field that lets in.
const SHOWN: &str = "Authorization: Bearer a-token-of-the-fuzzer";
const ENDS: [&str; 5] = ["\r\n", "\r\n", "\r\n", "\n", "\r"];

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PorchEnd {
    /// It was let in.
    Proven,
    /// It is for everybody.
    Open,
    /// It was refused for what it says.
    Refused,
    /// It is none.
    Malformed,
    /// More of it has to come.
    Partial,
}

/// What became of requests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PorchTally {
    /// Those that were let in.
    pub proven: u64,
    /// Those that are for everybody.
    pub open: u64,
    /// Those that were refused for what they say.
    pub refused: u64,
    /// Those that are no requests.
    pub malformed: u64,
    /// Those of which more has to come.
    pub partial: u64,
}

/// What the porch goes by.
///
/// # Panics
/// Where it takes no tokens.
pub fn rules() -> PorchRules {
    let (hosts, open) = (vec![OWN_NAME.to_owned()], vec![PAGE]);
    let rules = PorchRules { hosts, open, public: vec![PUBLIC], ..PorchRules::default() };
    rules.keys.add(TOKEN, Right::All).expect("the token is long enough");
    rules.keys.add(READING_TOKEN, Right::Read).expect("the token is long enough");
    rules
}

/// Says so many requests.
///
/// # Panics
/// Where somebody is let in who must not be, or bytes are read as what they are not.
pub fn run(seed: u64, count: u64) -> PorchTally {
    let mut random = Rng::with_seed(seed);
    let (mut told, rules) = (PorchTally::default(), rules());
    for _ in 0..count {
        let bytes = request(&mut random);
        let counted = match look_at(&bytes, &rules, &mut random) {
            PorchEnd::Proven => &mut told.proven,
            PorchEnd::Open => &mut told.open,
            PorchEnd::Refused => &mut told.refused,
            PorchEnd::Malformed => &mut told.malformed,
            PorchEnd::Partial => &mut told.partial,
        };
        *counted += 1;
    }
    told
}

/// Has the porch hear these bytes.
///
/// # Panics
/// Where somebody is let in who must not be, or bytes are read as what they are not.
pub fn look_at(bytes: &[u8], rules: &PorchRules, random: &mut Rng) -> PorchEnd {
    comes_in_pieces(bytes, random);
    let (head, length) = match parse_head(bytes) {
        Err(_) => return PorchEnd::Malformed,
        Ok(None) => return PorchEnd::Partial,
        Ok(Some(found)) => found,
    };
    let bytes = &bytes[..length];
    has_one_reading(&head, bytes);
    match rules.judge(&head, Instant::now()) {
        PorchVerdict::Proven(right) => {
            may_be_let_in(bytes, right);
            PorchEnd::Proven
        }
        PorchVerdict::Open(open) => {
            let said = Said::new(bytes);
            said.is_for_this_host();
            assert!(open == PAGE && said.path() == PAGE.path && ["GET", "HEAD"].contains(&said.method()), "{said:?}");
            PorchEnd::Open
        }
        PorchVerdict::Refused(refusal) => {
            assert!((400..500).contains(&refusal.status.0), "{refusal:?}");
            PorchEnd::Refused
        }
    }
}

fn request(random: &mut Rng) -> Vec<u8> {
    let mut pick = |from: &'static [&'static str]| from[random.usize(..from.len())];
    let mut text = format!("{} {} {}{}", pick(&METHODS), pick(&TARGETS), pick(&VERSIONS), pick(&ENDS[..4]));
    let is_proper = random.bool();
    let mut fields_max = 7;
    if random.u8(..4) == 0 {
        // What would be let in, or is for everybody, but for what follows.
        let is_open = random.bool();
        let (target, token) = if is_open { ("/", "Accept: */*") } else { ("/api/version", SHOWN) };
        text = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{token}\r\n");
        fields_max = 3;
    }
    for _ in 0..random.usize(..fields_max) {
        let end = if is_proper { "\r\n" } else { ENDS[random.usize(..ENDS.len())] };
        text.push_str(FIELDS[random.usize(..FIELDS.len())]);
        text.push_str(end);
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    for _ in 0..random.usize(..3) {
        let at = random.usize(..bytes.len());
        match random.u8(..8) {
            0 => bytes[at] = random.u8(..),
            1 => bytes.truncate(at),
            2 => bytes.insert(at, random.u8(..)),
            3 => bytes.extend(std::iter::repeat_n(b'x', random.usize(..2 * HEAD_BYTES_MAX))),
            _ => {}
        }
        if bytes.is_empty() {
            bytes.push(b'G');
        }
    }
    bytes
}

/// What came is read as the same whether it came at once or in pieces: a part of a head is never another head.
fn comes_in_pieces(bytes: &[u8], random: &mut Rng) {
    let Ok(Some((head, length))) = parse_head(bytes) else { return };
    for _ in 0..4 {
        let end = random.usize(..length);
        assert_eq!(parse_head(&bytes[..end]), Ok(None), "{end} bytes of {head:?}");
    }
    assert_eq!(parse_head(&bytes[..length]), Ok(Some((head, length))));
}

/// Lines end in one way, and the first one and the fields are what anybody reads there.
fn has_one_reading(head: &RequestHead<'_>, bytes: &[u8]) {
    assert!(bytes.len() <= HEAD_BYTES_MAX && bytes.ends_with(b"\r\n\r\n"), "{head:?}");
    let text = String::from_utf8_lossy(&bytes[..bytes.len() - 4]).into_owned();
    // Empty lines before a request are none of it.
    let mut lines = text.trim_start_matches("\r\n").split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    assert_eq!((words.len(), words[0], words[1]), (3, head.method, head.target), "{head:?}");
    assert!(!text.replace("\r\n", "").contains(['\n', '\r']), "{text:?}");
    let named: Vec<&str> = lines.map(|line| line.split_once(':').expect("a field has a colon").0).collect();
    assert_eq!(named, head.fields.iter().map(|(name, _)| *name).collect::<Vec<_>>(), "{text:?}");
}

/// A request as text: looked at in another way than the porch does.
#[derive(Debug)]
struct Said(String);

impl Said {
    fn new(bytes: &[u8]) -> Self {
        Self(String::from_utf8_lossy(bytes).trim_start_matches("\r\n").to_owned())
    }

    fn method(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }

    fn path(&self) -> &str {
        self.0.split([' ', '?']).nth(1).unwrap_or_default()
    }

    /// The values of a field.
    fn of(&self, name: &str) -> Vec<&str> {
        let named = |line: &&str| line.split(':').next().is_some_and(|begin| begin.eq_ignore_ascii_case(name));
        let values = self.0.split("\r\n").skip(1).filter(named);
        values.map(|line| line.split_once(':').map_or("", |(_, value)| value.trim_ascii())).collect()
    }

    /// It names this host, and comes from no page of another.
    fn is_for_this_host(&self) {
        let hosts = self.of("host");
        assert!(hosts.len() == 1 && is_own(hosts[0]), "{self:?}");
        let own = [format!("http://{}", hosts[0]), format!("https://{}", hosts[0])];
        assert!(self.of("origin").iter().all(|origin| own.contains(&(*origin).to_owned())), "{self:?}");
        let sites = self.of("sec-fetch-site");
        assert!(sites.iter().all(|site| ["same-origin", "none"].contains(site)), "{self:?}");
        let (lengths, codings) = (self.of("content-length"), self.of("transfer-encoding"));
        assert!(lengths.len() + codings.len() <= 1, "{self:?}");
        assert!(lengths.iter().all(|length| length.bytes().all(|byte| byte.is_ascii_digit())), "{self:?}");
        assert!(codings.iter().all(|coding| coding.eq_ignore_ascii_case("chunked")), "{self:?}");
    }
}

fn is_own(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    let within = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_name = ["localhost", OWN_NAME].iter().any(|own| own.eq_ignore_ascii_case(name));
    is_name || name.parse::<Ipv4Addr>().is_ok() || within.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
}

fn may_be_let_in(bytes: &[u8], right: Right) {
    let said = Said::new(bytes);
    said.is_for_this_host();
    let is_reading = READING.contains(&said.method());
    if is_reading && said.path() == PUBLIC && right == Right::Read {
        return;
    }
    let shown: Vec<&str> = [said.of("authorization"), said.of("x-ray-authorization")].concat();
    let is_shown = |token: &str| shown.iter().any(|value| value.strip_prefix("Bearer ") == Some(token));
    match right {
        Right::All => assert!(is_shown(TOKEN), "{said:?}"),
        Right::Read => assert!(is_shown(READING_TOKEN) && is_reading, "{said:?}"),
        Right::Trade => panic!("no key of that kind was lent: {said:?}"),
    }
    let is_from_browser = said.of("user-agent").iter().any(|agent| agent.starts_with("Mozilla"))
        || ["referer", "origin", "sec-fetch-site"].iter().any(|name| !said.of(name).is_empty());
    assert!(is_reading || !is_from_browser || said.path().starts_with("/ox/v1/"), "{said:?}");
}
