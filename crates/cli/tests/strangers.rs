//! Peers that break the rules: each loses its own connection, and nobody else notices.

#[expect(dead_code, reason = "each test binary uses its part of what is common")]
mod common;

use common::{Peer, Place, errors};
use oxiray_wire::Message;
use oxiray_wire::frame::{HEADER_BYTES, HELLO_BYTES_LIMIT, WIRE_VERSION};
use oxiray_wire::message::{ClusterQuery, Driver, Hello, LeaseRequest};
use rustix::process::Signal;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn header(length: u32, kind: u16, descriptors: u8, version: u8) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..6].copy_from_slice(&kind.to_le_bytes());
    header[6] = descriptors;
    header[7] = version;
    header
}

/// Writes raw bytes; returns what came back before the daemon hung up.
fn write_raw(place: &Place, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(place.session().join("socket")).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    // The daemon may hang up before all is written.
    let _ = stream.write_all(bytes);
    let mut back = Vec::new();
    match stream.read_to_end(&mut back) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the daemon hangs up"),
    }
    back
}

#[test]
fn a_wrong_token_is_refused_with_words_and_in_the_log() {
    let place = Place::new();
    place.start(&[]);
    for token in ["", "wrong", &"0".repeat(64), &place.token()[..63]] {
        let mut peer = place.peer();
        peer.greet(token);
        let Some(Message::Refused(refused)) = peer.hear() else { panic!("not refused") };
        assert!(refused.text.contains("token"), "{}", refused.text);
        assert_eq!(peer.hear(), None);
    }
    place.wait_for_turned_away(4);
    assert!(place.log().contains("was refused: the token"), "{}", place.log());
    let mut peer = place.peer();
    peer.greet(&place.token());
    peer.say(ClusterQuery { request: 9 });
    assert!(matches!(peer.hear(), Some(Message::ClusterReport(report)) if report.request == 9));
}

#[test]
fn nothing_but_a_greeting_is_heard_from_a_newcomer() {
    let place = Place::new();
    place.start(&[]);
    let mut peer = place.peer();
    peer.say(ClusterQuery { request: 1 });
    assert!(matches!(peer.hear(), Some(Message::Refused(_))));
    assert_eq!(peer.hear(), None);
    let mut peer = place.peer();
    peer.greet("wrong");
    peer.say(oxiray_wire::message::Stop {});
    assert!(matches!(peer.hear(), Some(Message::Refused(_))));
    place.assert_serves();
}

#[test]
fn who_says_nothing_keeps_nobody_out() {
    let place = Place::new();
    place.start(&[]);
    // All places, and most of the kernel's queue.
    let silent: Vec<UnixStream> =
        (0..120).map(|_| UnixStream::connect(place.session().join("socket")).expect("connects")).collect();
    place.assert_serves();
    place.wait_for_line("has said nothing and gives its place");
    drop(silent);
}

#[test]
fn broken_frames_end_their_connection_and_nothing_else() {
    let place = Place::new();
    place.start(&[]);
    let oversized = header(HELLO_BYTES_LIMIT as u32 + 1, 1, 0, WIRE_VERSION);
    let huge = header(u32::MAX, 1, 0, WIRE_VERSION);
    let other_version = header(0, 1, 0, WIRE_VERSION + 1);
    let phantom_descriptors = header(0, 1, 3, WIRE_VERSION);
    let many_descriptors = header(0, 1, 255, WIRE_VERSION);
    let mut garbage_body = header(5, 1, 0, WIRE_VERSION).to_vec();
    garbage_body.extend([0xff; 5]);
    let noise: Vec<u8> = (0..1_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    // What a later version says is skipped, but not by a newcomer.
    let unknown_kind = header(0, 9999, 0, WIRE_VERSION);
    let broken: [&[u8]; 9] = [
        &unknown_kind,
        &oversized,
        &huge,
        &other_version,
        &phantom_descriptors,
        &many_descriptors,
        &garbage_body,
        &noise,
        b"GET / HTTP/1.1\r\n\r\n",
    ];
    for bytes in broken {
        assert_eq!(write_raw(&place, bytes), b"", "{:?}", &bytes[..8]);
    }
    place.wait_for_turned_away(broken.len());
    assert!(place.log().contains("the connection of client"), "{}", place.log());
    place.assert_serves();
}

#[test]
fn a_proven_driver_that_breaks_the_format_loses_only_its_job() {
    let place = Place::new();
    place.start(&["--num-cpus=1"]);
    let mut stream = UnixStream::connect(place.session().join("socket")).expect("connects");
    let mut driver = Peer::new(stream.try_clone().expect("a second handle"));
    let told = Driver { pid: std::process::id(), interpreter: "/bin/false".into(), ..Driver::default() };
    driver.say(Hello { token: place.token(), driver: Some(told), ..Hello::default() });
    assert!(
        matches!(driver.hear(), Some(Message::Welcome(welcome)) if welcome.totals.iter().any(|total| total.resource == "CPU"))
    );
    // Larger than a newcomer may, and garbage.
    driver.say(LeaseRequest { label: "x".repeat(HELLO_BYTES_LIMIT * 2), ..LeaseRequest::default() });
    stream.write_all(&header(u32::MAX, 10, 0, WIRE_VERSION)).expect("written");
    while driver.hear().is_some() {}
    place.assert_serves();
}

#[test]
fn a_driver_that_lies_about_its_process_is_refused() {
    let place = Place::new();
    place.start(&[]);
    let mut peer = place.peer();
    peer.say(Hello { token: place.token(), driver: Some(Driver { pid: 1, ..Driver::default() }), ..Hello::default() });
    let Some(Message::Refused(refused)) = peer.hear() else { panic!("not refused") };
    assert!(refused.text.contains("says that it is process 1"), "{}", refused.text);
}

#[test]
fn a_peer_that_says_nothing_is_dropped_and_does_not_keep_others_out() {
    let place = Place::new();
    place.start(&[]);
    let began = Instant::now();
    // Nearly as many as may be newcomers at once, one of them dripping a byte.
    let mut silent: Vec<Peer> = (0..60).map(|_| place.peer()).collect();
    let mut dripping = UnixStream::connect(place.session().join("socket")).expect("connects");
    dripping.write_all(&header(100, 1, 0, WIRE_VERSION)[..3]).expect("written");
    place.assert_serves();
    assert_eq!(silent[0].hear(), None);
    assert!(began.elapsed() >= Duration::from_secs(4), "it is given five seconds");
    assert!(place.log().contains("did not greet within 5 s"));
}

#[test]
fn a_crowd_of_newcomers_that_leaves_keeps_nobody_out() {
    let place = Place::new();
    place.start(&[]);
    let daemon = place.daemon();
    let crowd = |greeting: Option<&str>| {
        // All of them are there before the daemon looks, and as many as there may be at once, or more.
        rustix::process::kill_process(daemon, Signal::STOP).expect("it is there");
        let mut peers: Vec<Peer> = (0..200).map(|_| place.peer()).collect();
        if let Some(token) = greeting {
            for peer in &mut peers {
                peer.greet(token);
            }
        }
        peers
    };
    for greeting in [None, Some("wrong")] {
        drop(crowd(greeting));
        rustix::process::kill_process(daemon, Signal::CONT).expect("it is there");
        place.assert_serves();
    }
    let peers = crowd(Some("wrong"));
    rustix::process::kill_process(daemon, Signal::CONT).expect("it is there");
    for mut peer in peers {
        assert!(matches!(peer.hear(), Some(Message::Refused(_))));
        assert_eq!(peer.hear(), None);
    }
    place.assert_serves();
    assert!(place.log().lines().count() < 100, "one line for many: {}", place.log());
}

#[test]
fn without_descriptors_newcomers_wait_and_the_log_is_not_flooded() {
    let place = Place::new();
    let output = place.limited(128, &["start", "--head", "--num-cpus=1"]).output().expect("the shell runs");
    assert!(output.status.success(), "{output:?}");
    let token = place.token();
    let served = |peer: &mut Peer| {
        peer.say(ClusterQuery { request: 7 });
        matches!(peer.hear(), Some(Message::ClusterReport(report)) if report.request == 7)
    };
    let begun = Instant::now();
    // More than the daemon may have open.
    let greeted = || {
        let mut peer = place.peer();
        peer.greet(&token);
        peer
    };
    let mut peers: Vec<Peer> = (0..150).map(|_| greeted()).collect();
    place.wait_for_line("newcomers have to wait");
    let waiting = peers.split_off(60);
    for mut peer in peers {
        assert!(served(&mut peer), "who was let in is served");
    }
    // They have gone; those who waited come in, and nobody was lost.
    for mut peer in waiting {
        assert!(served(&mut peer), "who waited is served");
    }
    place.assert_serves();
    let lines = place.log().matches("newcomers").count() as u64;
    assert!(lines <= begun.elapsed().as_secs() + 2, "{lines} lines: {}", place.log());
}

#[test]
fn a_process_of_another_pid_namespace_is_refused_with_words() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let arguments = ["--pid", "--fork", "--mount-proc", "--kill-child", env!("CARGO_BIN_EXE_oxiray")];
    let mut daemon = Command::new("unshare");
    daemon.args(arguments).args(["start", "--head", "--num-cpus=1", "--block"]).env("OXIRAY_TMPDIR", place.folder());
    let Ok(mut daemon) = daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else { return };
    place.wait_for_session();
    let mut peer = place.peer();
    peer.greet(&place.token());
    let Some(Message::Refused(refused)) = peer.hear() else { panic!("not refused") };
    assert!(refused.text.contains("PID namespace"), "{}", refused.text);
    // The number of its process means another one here, which is left alone.
    let stop = place.run(&["stop", "--force"]);
    assert!(!stop.status.success() && errors(&stop).contains("another PID namespace"), "{}", errors(&stop));
    daemon.kill().expect("it is a child");
    daemon.wait().expect("it is a child");
}
