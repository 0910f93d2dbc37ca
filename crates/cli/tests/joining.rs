//! Who may join a running head, and for how long.

#[expect(dead_code, reason = "each test binary uses its part of what is common")]
mod common;

use common::{Place, errors, mode, said, wait_for_death};
use oxiray_ids::NodeId;
use oxiray_network::{Credentials, JoinFailure, JoinToken, Joined, Newcomer, join};
use oxiray_wire::frame::protocol;
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// A head that listens, and its port.
fn head(options: &[&str]) -> (Place, u16) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let place = Place::new();
    start(&place, port, options);
    (place, port)
}

fn start(place: &Place, port: u16, options: &[&str]) {
    place.start(&[&["--port", &port.to_string(), "--num-cpus=1", "--node-lease=15"], options].concat());
}

fn token_in(file: &Path) -> JoinToken {
    JoinToken::parse(&std::fs::read_to_string(file).expect("the file is there")).expect("a token")
}

fn joins(port: u16, token: &JoinToken, node: NodeId, before: Option<&Credentials>) -> Result<Joined, JoinFailure> {
    let (address, protocol) = (format!("127.0.0.1:{port}"), protocol());
    let before = before.map(Credentials::last_certificate);
    join(&Newcomer {
        address: &address,
        token,
        node,
        predecessor: None,
        before: before.as_ref(),
        protocol: &protocol,
        limit: LIMIT,
    })
}

/// What the command line answers to something that it can do.
fn told(place: &Place, arguments: &[&str]) -> String {
    let output = place.run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    said(&output)
}

/// A token in a file of its own.
fn created(place: &Place, options: &[&str]) -> (JoinToken, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("token");
    let path = file.display().to_string();
    let printed = told(place, &[&["token", "create", "--output", &path], options].concat());
    let token = token_in(&file);
    assert_eq!(mode(&file), 0o600);
    assert!(printed.contains(&token.id()) && !printed.contains(&token.to_text()), "{printed}");
    (token, folder)
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn tokens_have_an_end_and_outlive_the_head() {
    let (place, port) = head(&[]);
    let (once, _folder) = created(&place, &["--uses", "1"]);
    let before = joins(port, &once, NodeId::generate(), None).expect("it holds").credentials;
    assert!(matches!(joins(port, &once, NodeId::generate(), None), Err(JoinFailure::Ended)));
    let first_file = place.session().join("join-token");
    let first = token_in(&first_file);
    joins(port, &first, NodeId::generate(), None).expect("any number joins with the first one");
    told(&place, &["token", "revoke", &first.id()]);
    assert!(!first_file.exists());
    let pid = place.description()["pid"].as_u64().expect("a number") as u32;
    let pidfd = oxiray_processes::pidfd_of(pid).expect("it lives");
    oxiray_processes::kill_by_pidfd(&pidfd).expect("it may be killed");
    wait_for_death(pid);
    start(&place, port, &[]);
    assert!(!first_file.exists());
    for token in [&once, &first] {
        assert!(matches!(joins(port, token, NodeId::generate(), None), Err(JoinFailure::Ended)));
    }
    joins(port, &once, NodeId::generate(), Some(&before)).expect("its certificate lets it in again");
    let list = told(&place, &["token", "list"]);
    let state = |token: &JoinToken| list.lines().find(|line| line.starts_with(&token.id())).expect("a row").to_owned();
    assert!(state(&once).contains("used up") && state(&first).contains("revoked"), "{list}");
    assert!([&once, &first].iter().all(|token| !list.contains(token.to_text().rsplit('.').next().expect("a secret"))));
    for wrong in [&["token", "revoke", "unknown"][..], &["token", "create", "--ttl", "soon"]] {
        assert!(!place.run(wrong).status.success());
    }
}

#[test]
fn nobody_gets_the_identity_of_another_node() {
    let (place, port) = head(&[]);
    let token = token_in(&place.session().join("join-token"));
    let own = NodeId::from_hex(place.description()["node"].as_str().expect("a text")).expect("an identifier");
    assert!(matches!(joins(port, &token, own, None), Err(JoinFailure::Taken)));
    let node = NodeId::generate();
    let joined = joins(port, &token, node, None).expect("it is let in");
    assert!(matches!(joins(port, &token, node, None), Err(JoinFailure::Taken)));
    let other = joins(port, &token, NodeId::generate(), None).expect("it is let in").credentials;
    assert!(matches!(joins(port, &token, node, Some(&other)), Err(JoinFailure::Taken)), "with another's key");
    joins(port, &token, node, Some(&joined.credentials)).expect("with its own key");
}

#[test]
fn certificates_are_renewed_and_a_node_that_is_shut_out_stays_out() {
    let (place, port) = head(&["--node-certificate", "2s"]);
    let (_, folder) = created(&place, &["--uses", "1", "--ttl", "1h"]);
    let (member, file) = (Place::new(), folder.path().join("token"));
    let address = format!("--address=127.0.0.1:{port}");
    let arguments =
        ["start", &address, "--token-file", &file.display().to_string(), "--num-cpus=1", "--node-name=guest"];
    told(&member, &arguments);
    until("its certificate is renewed twice", || member.log().matches("certificate was renewed").count() >= 2);
    told(&place, &["status"]);
    let pid = member.description()["pid"].as_u64().expect("a number") as u32;
    told(&place, &["token", "revoke", "--node", "guest"]);
    wait_for_death(pid);
    assert!(place.log().contains("its certificate was revoked"));
    let output = place.run(&["token", "revoke", "--node", "guest"]);
    assert!(!output.status.success() && errors(&output).contains("no living node"), "{}", errors(&output));
}
