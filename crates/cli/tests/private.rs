//! Daemons that belong to one driver: they tell why they cannot start, and end with it.

#[expect(dead_code, reason = "each test binary uses its part of what is common")]
mod common;

use common::{Peer, Place};
use oxiray_ids::LeaseRequestNumber;
use oxiray_wire::Message;
use oxiray_wire::message::{Driver, Goodbye, Hello, LeaseRequest};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

fn private(place: &Place, config: &str) -> (Peer, Child) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let inherited = rustix::io::dup(&theirs).expect("a duplicate that is inherited");
    let descriptor = inherited.as_raw_fd().to_string();
    let mut command = place.command(&["daemon", "--private", "--driver-fd", &descriptor, "--config", config]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    (Peer::new(ours), child)
}

fn driver() -> Hello {
    let told =
        Driver { pid: std::process::id(), interpreter: "/bin/false".into(), wants_logs: true, ..Driver::default() };
    Hello { driver: Some(told), ..Hello::default() }
}

#[test]
fn a_private_daemon_ends_with_its_driver_and_leaves_nothing() {
    let place = Place::new();
    for says_goodbye in [true, false] {
        let (mut peer, mut child) = private(&place, r#"{"machine": {"resources": {"CPU": 1}}}"#);
        peer.say(driver());
        let Some(Message::Welcome(welcome)) = peer.hear() else { panic!("not welcome") };
        assert_eq!(*welcome.job.as_bytes(), [1, 0, 0, 0]);
        assert!(std::path::Path::new(&welcome.session).join("socket").exists());
        if says_goodbye {
            peer.say(Goodbye::default());
            while peer.hear().is_some() {}
        }
        drop(peer);
        assert!(child.wait().expect("it ends").success());
        assert!(place.left().is_empty(), "{:?}", place.left());
    }
}

#[test]
fn a_driver_that_never_greets_takes_the_daemon_with_it() {
    let place = Place::new();
    let (peer, mut child) = private(&place, "{}");
    drop(peer);
    assert!(child.wait().expect("it ends").success());
    assert!(place.sessions().is_empty());
}

#[test]
fn the_driver_hears_why_its_daemon_cannot_start() {
    let place = Place::new();
    for (config, reason) in [
        (r#"{"machine": {"object_store_memory": 5}}"#, "object_store_memory is 5 bytes"),
        (r#"{"machine": {"resources": {"GPU": 1.5}}}"#, "devices are whole"),
        (r#"{"machine": {"resources": {"widgets": -1}}}"#, "`widgets`"),
    ] {
        let (mut peer, mut child) = private(&place, config);
        peer.say(driver());
        let Some(Message::Refused(refused)) = peer.hear() else { panic!("not refused") };
        assert!(refused.text.contains(reason), "{}", refused.text);
        assert_eq!(peer.hear(), None);
        assert_eq!(child.wait().expect("it ends").code(), Some(1));
        assert!(place.sessions().is_empty());
    }
}

#[test]
fn an_interpreter_that_does_not_run_is_the_verdict_of_the_lease() {
    let place = Place::new();
    for (interpreter, reason) in [("/bin/false", "exited with status 1"), ("/nonexistent", "cannot run /nonexistent")] {
        let config = format!(r#"{{"machine": {{"resources": {{"CPU": 1}}}}, "interpreter": "{interpreter}"}}"#);
        let (mut peer, mut child) = private(&place, &config);
        let Hello { driver: Some(told), .. } = driver() else { panic!("a driver") };
        let told = Driver { interpreter: interpreter.into(), ..told };
        peer.say(Hello { driver: Some(told), ..Hello::default() });
        for request in 1..3 {
            peer.say(LeaseRequest {
                request: LeaseRequestNumber(request),
                label: "f".into(),
                ..LeaseRequest::default()
            });
            let ended = std::iter::from_fn(|| peer.hear()).find_map(|message| match message {
                Message::LeaseEnded(ended) => Some(ended.text),
                _ => None,
            });
            let text = ended.expect("a verdict");
            assert!(text.contains(reason), "{text}");
        }
        drop(peer);
        assert!(child.wait().expect("it ends").success());
    }
}
