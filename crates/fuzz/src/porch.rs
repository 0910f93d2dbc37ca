//! Requests over HTTP that are put together of what matters at the porch, and changed: what it makes of them follows from their
//! bytes, and nobody is let in who has not shown the token to a host that is this one.

use fastrand::Rng;
use oxiray_network::porch::{HEAD_BYTES_MAX, PorchRules, PorchVerdict, RequestHead, Right, parse_head};
use std::time::Instant;

/// The token that opens everything.
const TOKEN: &str = "a-token-of-the-fuzzer";
/// What requests are put together of.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "DELETE", "HEAD", "PRI"];
const TARGETS: [&str; 8] =
    ["/", "/api/version", "/api/jobs/%2e%2e", "*", "http://localhost/", "/ox/v1/session", "//evil", "/?token=x"];
const VERSIONS: [&str; 4] = ["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.1 "];
const FIELDS: [&str; 24] = [
    "Host: localhost",
    "Host: 127.0.0.1:8265",
    "Host: evil.com",
    "Host: localhost.evil.com",
    "host: own.example",
    "Host:",
    "Authorization: Bearer a-token-of-the-fuzzer",
    "authorization: Bearer a-token-of-the-fuzzes",
    "Authorization: a-token-of-the-fuzzer",
    "X-Ray-Authorization: Bearer a-token-of-the-fuzzer",
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
const ENDS: [&str; 5] = ["\r\n", "\r\n", "\r\n", "\n", "\r"];

/// What became of requests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PorchTally {
    /// Those that were let in.
    pub proven: u64,
    /// Those that were refused for what they say.
    pub refused: u64,
    /// Those that are no requests.
    pub malformed: u64,
    /// Those of which more has to come.
    pub partial: u64,
}

/// Says so many requests.
///
/// # Panics
/// Where somebody is let in who must not be, or bytes are read as what they are not.
pub fn run(seed: u64, count: u64) -> PorchTally {
    let mut random = Rng::with_seed(seed);
    let rules = PorchRules { hosts: vec!["own.example".to_owned()], ..PorchRules::default() };
    rules.keys.add(TOKEN, Right::All).expect("the token is long enough");
    let (mut told, now) = (PorchTally::default(), Instant::now());
    for _ in 0..count {
        let bytes = request(&mut random);
        let whole = parse_head(&bytes);
        comes_in_pieces(&bytes, &mut random);
        match whole {
            Err(_) => told.malformed += 1,
            Ok(None) => told.partial += 1,
            Ok(Some((head, length))) => {
                has_one_reading(&head, &bytes[..length], seed);
                match rules.judge(&head, now) {
                    PorchVerdict::Proven(_) => {
                        may_be_let_in(&bytes[..length], seed);
                        told.proven += 1;
                    }
                    PorchVerdict::Refused(_) => told.refused += 1,
                    PorchVerdict::Open(open) => panic!("seed {seed}: nothing is open, and {} is answered", open.path),
                }
            }
        }
    }
    told
}

fn request(random: &mut Rng) -> Vec<u8> {
    let mut pick = |from: &'static [&'static str]| from[random.usize(..from.len())];
    let mut text = format!("{} {} {}{}", pick(&METHODS), pick(&TARGETS), pick(&VERSIONS), pick(&ENDS[..4]));
    let is_proper = random.bool();
    if random.u8(..4) == 0 {
        // What would be let in, but for what follows.
        text = format!("GET /api/version HTTP/1.1\r\n{}\r\n{}\r\n", FIELDS[0], FIELDS[6]);
    }
    for _ in 0..random.usize(..7) {
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
fn has_one_reading(head: &RequestHead<'_>, bytes: &[u8], seed: u64) {
    assert!(bytes.len() <= HEAD_BYTES_MAX && bytes.ends_with(b"\r\n\r\n"), "seed {seed}");
    let text = String::from_utf8_lossy(&bytes[..bytes.len() - 4]).into_owned();
    let mut lines = text.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    assert_eq!((words[0], words[1]), (head.method, head.target), "seed {seed}");
    assert!(!text.replace("\r\n", "").contains(['\n', '\r']), "seed {seed}: {text:?}");
    assert_eq!(lines.count(), head.fields.len(), "seed {seed}: {text:?}");
}

/// Asked of the bytes, in another way than the porch asks.
fn may_be_let_in(bytes: &[u8], seed: u64) {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let of = |name: &str| -> Vec<String> {
        let begin = format!("{name}:");
        text.split("\r\n").filter_map(|line| line.strip_prefix(&begin)).map(|value| value.trim().to_owned()).collect()
    };
    let own = ["localhost", "127.0.0.1:8265", "own.example"];
    let hosts = of("host");
    let is_number = |host: &str| host.bytes().all(|byte| byte.is_ascii_digit() || b".:".contains(&byte));
    let is_own = |host: &String| own.contains(&host.as_str()) || host.starts_with("localhost:") || is_number(host);
    assert!(hosts.len() == 1 && hosts.iter().all(is_own), "seed {seed}: {text}");
    let shown: Vec<String> = [of("authorization"), of("x-ray-authorization")].concat();
    assert!(shown.iter().any(|value| value == &format!("bearer {TOKEN}")), "seed {seed}: {text}");
    assert!(of("origin").iter().all(|origin| *origin == format!("http://{}", hosts[0])), "seed {seed}: {text}");
    assert!(!of("sec-fetch-site").contains(&"cross-site".to_owned()), "seed {seed}: {text}");
    assert!(of("content-length").len() + of("transfer-encoding").len() <= 1, "seed {seed}: {text}");
}
