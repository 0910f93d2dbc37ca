//! Peers that were let in and say more than can be heard at once: nobody else has to wait for them (DAEMON-3).

#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]

#[expect(dead_code, reason = "each test binary uses its part of what is common")]
mod common;

use common::{Peer, Place};
use oxiray_wire::Message;
use oxiray_wire::frame::WIRE_VERSION;
use oxiray_wire::message::{ClusterQuery, Driver, Goodbye, Hello, LeaseReclaim};
use rustix::process::Signal;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// How many questions a flood has: many times what is answered in one turn.
const QUESTIONS: u64 = 1000;

/// The daemon does nothing while this lives, so that all of what is said meanwhile is there at once.
struct Stopped<'place>(&'place Place);

impl<'place> Stopped<'place> {
    fn new(place: &'place Place) -> Self {
        rustix::process::kill_process(place.daemon(), Signal::STOP).expect("it is there");
        Self(place)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        rustix::process::kill_process(self.0.daemon(), Signal::CONT).expect("it is there");
    }
}

fn answered(peer: &mut Peer, request: u64) {
    let answer = peer.hear();
    assert!(matches!(&answer, Some(Message::ClusterReport(report)) if report.request == request), "{answer:?}");
}

/// A visitor that was let in.
fn visitor(place: &Place) -> Peer {
    let mut peer = place.peer();
    peer.greet(&place.token());
    peer.say(ClusterQuery { request: u64::MAX });
    answered(&mut peer, u64::MAX);
    peer
}

fn driver(place: &Place) -> Peer {
    let mut peer = place.peer();
    let told = Driver { pid: std::process::id(), interpreter: "/bin/false".into(), ..Driver::default() };
    peer.say(Hello { token: place.token(), driver: Some(told), ..Hello::default() });
    assert!(matches!(peer.hear(), Some(Message::Welcome(_))));
    peer
}

/// Asks many questions at once; the socket takes them all.
fn flood(peer: &mut Peer, questions: u64) {
    (0..questions).for_each(|request| peer.connection.send(&ClusterQuery { request }));
    assert!(peer.connection.flush().expect("the daemon is there"), "{questions} questions are too many for a socket");
}

/// What no visitor says ends it with a line in the log, which tells when it was heard.
fn line(message: &Message) -> String {
    format!("a message of kind {} is not among those of VisitorToDaemon", message.kind())
}

#[test]
fn a_bystander_is_heard_before_floods_that_came_earlier_are_over() {
    let place = Place::new();
    place.start(&[]);
    let (of_flood, of_bystander) = (Message::from(LeaseReclaim {}), Message::from(Goodbye::default()));
    let mut flooders: Vec<Peer> = (0..6).map(|_| visitor(&place)).collect();
    let (mut bystander, mut newcomer) = (visitor(&place), place.peer());
    {
        let _stopped = Stopped::new(&place);
        for flooder in &mut flooders {
            flood(flooder, QUESTIONS);
            flooder.say(of_flood.clone());
        }
        newcomer.greet(&place.token());
        for peer in [&mut bystander, &mut newcomer] {
            peer.say(of_bystander.clone());
        }
    }
    for peer in flooders.iter_mut().chain([&mut bystander, &mut newcomer]) {
        while peer.hear().is_some() {}
    }
    let (log, flood_heard, heard) = (place.log(), line(&of_flood), line(&of_bystander));
    let order: Vec<&str> = log.lines().filter(|line| line.contains(&flood_heard) || line.contains(&heard)).collect();
    assert_eq!(order.len(), 8, "{log}");
    assert!(order[..2].iter().all(|line| line.contains(&heard)), "{order:#?}");
}

#[test]
fn a_visitor_that_left_is_not_heard() {
    let place = Place::new();
    place.start(&[]);
    let mut visitors: Vec<Peer> = (0..20).map(|_| visitor(&place)).collect();
    let said = Message::from(LeaseReclaim {});
    {
        let _stopped = Stopped::new(&place);
        for mut visitor in visitors.drain(..) {
            flood(&mut visitor, QUESTIONS);
            visitor.say(said.clone());
        }
    }
    place.assert_serves();
    assert!(!place.log().contains(&line(&said)), "{}", place.log());
}

#[test]
fn one_process_that_leaves_many_drivers_unheard_does_not_take_all_descriptors() {
    let place = Place::new();
    place.start(&[]);
    let mut drivers: Vec<Peer> = (0..40).map(|_| driver(&place)).collect();
    {
        let _stopped = Stopped::new(&place);
        for mut driver in drivers.drain(..) {
            flood(&mut driver, QUESTIONS);
        }
    }
    place.assert_serves();
    place.wait_for_line("left, and so did 16 others of that process that are not heard out");
}

#[test]
fn who_does_not_read_its_answers_is_not_asked_for_more_questions() {
    let place = Place::new();
    let resources: Vec<String> = (0..300).map(|number| format!(r#""resource-{number}": 1"#)).collect();
    place.start(&["--resources", &format!("{{{}}}", resources.join(", "))]);
    let questions = 10 * QUESTIONS;
    let (mut flooder, mut bystander) = (visitor(&place), visitor(&place));
    {
        let _stopped = Stopped::new(&place);
        flood(&mut flooder, questions);
    }
    for request in 0..200 {
        bystander.say(ClusterQuery { request });
        answered(&mut bystander, request);
    }
    // It has waited for its answers to be read, and then answers everything.
    (0..questions).for_each(|request| answered(&mut flooder, request));
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", place.daemon().as_raw_nonzero())).expect("it lives");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has memory");
    let mebibytes: u64 = most.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10;
    // Of 16 MiB that wait the buffer is doubled when it is full, and the allocator keeps what was freed for a moment. All answers
    // together are far more.
    assert!(mebibytes < 128, "{mebibytes} MiB for answers that nobody read");
}

#[test]
fn a_driver_that_died_is_over_though_its_child_goes_on_writing() {
    let place = Place::new();
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let inherited = rustix::io::dup(&theirs).expect("a duplicate that is inherited");
    let descriptor = inherited.as_raw_fd().to_string();
    let mut daemon = place.command(&["daemon", "--private", "--driver-fd", &descriptor, "--config", "{}"]);
    let mut daemon = daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    drop((theirs, inherited));
    let mut child_end = ours.try_clone().expect("a second handle");
    let mut driver_process = Command::new("sleep").arg("600").spawn().expect("starts");
    let mut driver = Peer::new(ours);
    let told = Driver { pid: driver_process.id(), interpreter: "/bin/false".into(), ..Driver::default() };
    driver.say(Hello { driver: Some(told), ..Hello::default() });
    assert!(matches!(driver.hear(), Some(Message::Welcome(_))));
    child_end.set_nonblocking(false).expect("it may block");
    let writer = std::thread::spawn(move || {
        let kind = Message::from(LeaseReclaim {}).kind().to_le_bytes();
        let bytes = [0, 0, 0, 0, kind[0], kind[1], 0, WIRE_VERSION].repeat(1000);
        while child_end.write_all(&bytes).is_ok() {}
    });
    driver_process.kill().expect("it is a child");
    driver_process.wait().expect("it is a child");
    assert!(daemon.wait().expect("it ends").success());
    writer.join().expect("it ends with the daemon");
}
