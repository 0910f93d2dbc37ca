use super::*;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const TOKEN: &str = "0123456789abcdef";
const PAGE: OpenPath = OpenPath { path: "/", content_type: "text/html", body: b"page", packed: b"" };
const PACKED: OpenPath = OpenPath { path: "/packed", content_type: "text/html", body: b"long", packed: b"zip" };

fn rules() -> PorchRules {
    let hosts = vec!["own.example".to_owned(), "*-head-svc.team.svc".to_owned()];
    let rules = PorchRules { hosts, open: vec![PAGE, PACKED], public: vec!["/metrics"], ..PorchRules::default() };
    rules.keys.add(TOKEN, Right::All).expect("a key");
    rules.keys.add("only-for-reading-it", Right::Read).expect("a key");
    rules
}

fn judged(head: &str) -> PorchVerdict {
    let text = format!("{}\r\n\r\n", head.replace('\n', "\r\n"));
    let (head, length) = parse_head(text.as_bytes()).expect("a head").expect("it is whole");
    assert_eq!(length, text.len());
    rules().judge(&head, Instant::now())
}

fn status(head: &str) -> u16 {
    match judged(head) {
        PorchVerdict::Open(_) => 0,
        PorchVerdict::Proven(_) => 200,
        PorchVerdict::Refused(refusal) => refusal.status.0,
    }
}

#[test]
fn a_host_is_an_address_or_a_name_that_was_allowed() {
    let of = |host: &str| status(&format!("GET / HTTP/1.1\nHost: {host}"));
    for own in
        ["127.0.0.1", "10.0.0.1:1", "[::1]", "[::1]:8265", "localhost:9", "own.example:80", "a-head-svc.team.svc:8265"]
    {
        assert_eq!(of(own), 0, "{own}");
    }
    for other in [
        "evil.com",
        "localhost.evil.com",
        "127.0.0.1.evil.com",
        "own.example.evil.com",
        "a.b-head-svc.team.svc",
        "a-head-svc.team.svc.evil.com",
        "-head-svc.other.svc",
        "localhost:",
        "localhost:99999",
        "localhost:+1",
        "[::1]x",
        "[::1",
        "",
        "a b",
        "2130706433.evil.com",
    ] {
        assert_eq!(of(other), 421, "{other}");
    }
    assert_eq!(status("GET / HTTP/1.1"), 421);
    assert_eq!(status("GET / HTTP/1.1\nHost: localhost\nHost: localhost"), 421);
}

#[test]
fn what_a_token_opens() {
    let of = |request: &str, token: &str| {
        judged(&format!("{request} HTTP/1.1\nHost: localhost\nAuthorization: Bearer {token}"))
    };
    assert_eq!(of("POST /api/jobs/", TOKEN), PorchVerdict::Proven(Right::All));
    assert_eq!(of("GET /api/jobs/", "only-for-reading-it"), PorchVerdict::Proven(Right::Read));
    let refused = |verdict| match verdict {
        PorchVerdict::Refused(PorchRefusal { status: (code, _), is_slow, .. }) => (code, is_slow),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(of("POST /api/jobs/", "only-for-reading-it")), (403, false));
    assert_eq!(refused(of("GET /api/jobs/", "0123456789abcdeF")), (403, true), "a guess is answered late");
    assert_eq!(status("GET /api/jobs/ HTTP/1.1\nHost: localhost"), 401);
    assert_eq!(status("POST / HTTP/1.1\nHost: localhost"), 401, "only reading is open");
}

#[test]
fn what_everybody_may_read_is_read_by_this_hosts_name_alone() {
    let of = |request: &str, fields: &str| status(&format!("{request} HTTP/1.1\n{fields}"));
    assert_eq!(judged("GET /metrics HTTP/1.1\nHost: localhost"), PorchVerdict::Proven(Right::Read));
    assert_eq!(of("GET /metrics?x=1", "Host: localhost"), 200);
    assert_eq!(of("GET /metrics", "Host: evil.com"), 421);
    assert_eq!(of("GET /metrics", "Host: localhost\nOrigin: http://evil.com"), 403);
    assert_eq!(of("POST /metrics", "Host: localhost"), 401);
    assert_eq!(of("GET /metrics/", "Host: localhost"), 401);
}

#[test]
fn keys_end_are_used_up_and_are_bounded() {
    let (keys, begin) = (Keys::default(), Instant::now());
    assert_eq!(keys.add("short", Right::All), Err(KeyError::Short(5)));
    assert_eq!(keys.add("with a blank in it", Right::All), Err(KeyError::Unsendable));
    let lifetime = Duration::from_secs(60);
    let once = keys.lend(Right::Trade, begin, lifetime).expect("a key");
    assert_eq!(keys.right_of(once.as_bytes(), begin), Some(Right::Trade));
    assert_eq!(keys.right_of(once.as_bytes(), begin + lifetime), None);
    assert!(!keys.use_up(once.as_bytes(), begin + lifetime));
    assert!(keys.use_up(once.as_bytes(), begin));
    assert!(!keys.use_up(once.as_bytes(), begin), "it was used");
    let session = keys.lend(Right::All, begin, lifetime).expect("a key");
    assert!(!keys.use_up(session.as_bytes(), begin), "a session's key opens no other");
    for later in 1..=1000 {
        keys.lend(Right::Trade, begin + Duration::from_millis(later), lifetime).expect("a key");
    }
    assert_eq!(keys.right_of(session.as_bytes(), begin), None, "those that end first make room");
    assert_eq!(format!("{keys:?}"), "Keys(…)");
}

#[test]
fn a_head_is_read_as_far_as_it_has_come() {
    let whole = b"GET /a?b HTTP/1.1\r\nHost: x\r\n\r\nbody";
    for end in 0..whole.len() - 4 {
        assert_eq!(parse_head(&whole[..end]), Ok(None), "{end}");
    }
    let (head, length) = parse_head(whole).expect("a head").expect("it is whole");
    assert_eq!((head.method, head.target, head.path(), length), ("GET", "/a?b", "/a", whole.len() - 4));
    assert_eq!(parse_head(b"GET / HTTP/1.1\r\nX: y\n"), Err(HeadError::Malformed));
    assert_eq!(parse_head(&[b'a'; HEAD_BYTES_MAX]), Err(HeadError::TooLong));
}

/// A porch, and those that it let in.
fn porch() -> (Porch, mpsc::Receiver<ProvenPeer>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (sender, arrivals) = mpsc::channel();
    let options = PorchOptions { listener, rules: Arc::new(rules()), tls: None };
    (Porch::open(options, move |peer| drop(sender.send(peer)), drop).expect("a porch"), arrivals)
}

fn said(porch: &Porch, request: &str) -> String {
    let mut stream = TcpStream::connect(porch.address()).expect("it listens");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    // A peer that was refused while it still sent may be told so by the end of its connection.
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn who_proves_itself_is_handed_on_with_what_it_said() {
    let (porch, arrivals) = porch();
    let request =
        format!("PUT /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 4\r\n\r\nbo");
    let mut stream = TcpStream::connect(porch.address()).expect("it listens");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut arrival = arrivals.recv_timeout(Duration::from_secs(30)).expect("it is let in");
    assert!(request.as_bytes().starts_with(&arrival.heard) && arrival.heard.len() > request.len() - 5);
    arrival.stream.write_all(b"in").expect("it takes it");
    drop(arrival);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert_eq!(answer, "in");
}

#[test]
fn strangers_are_answered_here_and_are_handed_nowhere() {
    let (porch, arrivals) = porch();
    let open = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = said(&porch, &format!("{open}{open}GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n"));
    assert_eq!(answer.matches("\r\n\r\npage").count(), 2, "{answer}");
    assert!(answer.contains("HTTP/1.1 421 Misdirected Request"));
    let body = "x".repeat(100_000);
    let refused = said(&porch, &format!("PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{body}"));
    assert!(refused.starts_with("HTTP/1.1 401 ") && refused.ends_with("Missing authentication token"), "{refused}");
    assert!(arrivals.try_recv().is_err());
}

#[test]
fn what_is_compressed_is_sent_so_to_who_understands() {
    let (porch, _arrivals) = porch();
    let asked = |method: &str, path: &str, takes: &str| {
        let accepts = if takes.is_empty() { String::new() } else { format!("Accept-Encoding: {takes}\r\n") };
        said(&porch, &format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{accepts}\r\n"))
    };
    for takes in ["gzip", "deflate, GZIP;q=0.5, br", "gzip ; q=1", "gzip;Q=0.001", "gzip;q"] {
        let answer = asked("GET", "/packed", takes);
        assert!(answer.ends_with("\r\n\r\nzip") && answer.contains("content-length: 3\r\n"), "{takes}: {answer}");
        assert!(answer.contains("content-encoding: gzip\r\nvary: accept-encoding\r\n"), "{answer}");
    }
    for takes in ["", "br", "gzip;q=0", "gzip; q=0.0", "gzip;Q=0", "gzip;q=0.", "gzip;q = 0", "xgzip", "identity"] {
        let answer = asked("GET", "/packed", takes);
        assert!(answer.ends_with("\r\n\r\nlong") && !answer.contains("content-encoding"), "{takes}: {answer}");
        assert!(answer.contains("vary: accept-encoding\r\n"), "{answer}");
    }
    let head = asked("HEAD", "/packed", "gzip");
    assert!(head.ends_with("\r\n\r\n") && head.contains("content-length: 3\r\n"), "{head}");
    let plain = asked("GET", "/", "gzip");
    assert!(plain.ends_with("\r\n\r\npage") && !plain.contains("vary"), "{plain}");
}

#[test]
fn many_pipelined_requests_are_answered_up_to_a_bound() {
    let (porch, _arrivals) = porch();
    let answer = said(&porch, &"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(300));
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 100);
}

#[test]
fn silent_peers_lose_their_places_to_those_that_come() {
    let (porch, _arrivals) = porch();
    let mut silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(porch.address()).expect("it listens")).collect();
    assert!(said(&porch, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ends_with("page"));
    assert_eq!(silent[0].read(&mut [0]).expect("its end"), 0);
}

#[test]
fn what_is_refused_is_told_without_the_secret_that_was_shown() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (sender, refused) = mpsc::channel();
    let options = PorchOptions { listener, rules: Arc::new(rules()), tls: None };
    let porch = Porch::open(options, drop, move |request| drop(sender.send(request))).expect("a porch");
    for (request, status, is_of_secret) in [
        (
            "DELETE /api/jobs/a?token=q HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-wrong-one-of-many\r\n\r\n",
            403,
            true,
        ),
        (
            "DELETE /api/jobs/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer only-for-reading-it\r\n\r\n",
            403,
            true,
        ),
        ("DELETE /api/jobs/a HTTP/1.1\r\nHost: localhost\r\n\r\n", 401, false),
        ("DELETE /api/jobs/a HTTP/1.1\r\nHost: evil.com\r\n\r\n", 421, false),
    ] {
        let mut stream = TcpStream::connect(porch.address()).expect("it listens");
        stream.write_all(request.as_bytes()).expect("sent");
        let told = refused.recv_timeout(Duration::from_secs(30)).expect("it is told");
        assert_eq!((told.method.as_str(), told.path.as_str()), ("DELETE", "/api/jobs/a"));
        assert_eq!((told.refusal.status.0, told.refusal.is_of_secret), (status, is_of_secret));
        assert_eq!((Some(told.peer), told.local), (stream.local_addr().ok(), Some(porch.address())));
        assert!(!format!("{told:?}").contains("wrong-one") && !format!("{told:?}").contains("token=q"));
    }
    said(&porch, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(refused.try_recv().is_err(), "what is answered is not refused");
}

#[test]
fn a_secret_is_known_by_its_kind() {
    let (rules, now) = (rules(), Instant::now());
    let lend = |right| rules.keys.lend(right, now, Duration::from_secs(60)).expect("a key");
    let (once, session) = (lend(Right::Trade), lend(Right::All));
    for (secret, kind) in [
        (TOKEN, Some(KeyKind::Token)),
        ("only-for-reading-it", Some(KeyKind::ReadToken)),
        (once.as_str(), Some(KeyKind::OneTimeKey)),
        (session.as_str(), Some(KeyKind::SessionKey)),
        ("0123456789abcdeF", None),
    ] {
        let text = format!("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\r\n");
        let (head, _) = parse_head(text.as_bytes()).expect("a head").expect("it is whole");
        assert_eq!(rules.key_of(&head, now), kind, "{secret}");
    }
    assert_eq!(rules.keys.kind_of(session.as_bytes(), now + Duration::from_secs(60)), None);
}

#[test]
fn a_certificate_is_replaced_while_the_porch_is_open() {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    let authority = crate::Authority::make().expect("an authority");
    let make = || authority.certify_site(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let (first, second) = (make(), make());
    let tls = PorchTls::from_pem(first.certificate.as_bytes(), first.key.as_bytes()).expect("they belong together");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let options = PorchOptions { listener, rules: Arc::new(rules()), tls: Some(tls.clone()) };
    let porch = Porch::open(options, drop, drop).expect("a porch");
    let read = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
    let mut roots = RootCertStore::empty();
    roots.add(read(&first.authority)).expect("an authority's");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = versions.expect("versions").with_root_certificates(roots).with_no_client_auth();
    // Who resumes a session is shown no certificate.
    config.resumption = rustls::client::Resumption::disabled();
    let config = Arc::new(config);
    let begun = || {
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let client = ClientConnection::new(Arc::clone(&config), name).expect("a client");
        let mut stream = rustls::StreamOwned::new(client, TcpStream::connect(porch.address()).expect("it listens"));
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with("page"), "{answer}");
        stream.conn.peer_certificates().expect("it shows one")[0].clone()
    };
    assert_eq!(begun(), read(&first.certificate));
    assert!(tls.replace(second.certificate.as_bytes(), first.key.as_bytes()).is_err(), "the key is of another");
    assert_eq!(begun(), read(&first.certificate));
    tls.replace(second.certificate.as_bytes(), second.key.as_bytes()).expect("they belong together");
    assert_eq!(begun(), read(&second.certificate));
}
