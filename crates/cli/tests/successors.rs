//! What becomes of a member that is stopped for longer than its lease, and of the process that starts another.

#[expect(dead_code, reason = "each test binary uses its part of what is common")]
mod common;

use common::{Place, errors, said, wait_for_death};
use oxiray_wire::session::logs_of;
use rustix::event::{Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longer than everything takes that is waited for.
const LIMIT: Duration = Duration::from_secs(60);

/// A head whose members have a short lease, and its port.
fn head() -> (Place, u16) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let place = Place::new();
    place.start(&["--port", &port.to_string(), "--num-cpus=1", "--node-lease=4"]);
    (place, port)
}

/// A member of another machine, which has sessions of its own; the head knows it.
fn member(head: &Place, port: u16) -> Place {
    let (alive, dead) = nodes(head);
    let place = Place::new();
    // It is known again by its certificate: a token that serves once is used up.
    let token = place.root().with_extension("token").display().to_string();
    let created = head.run(&["token", "create", "--uses", "1", "--output", &token]);
    assert!(created.status.success(), "{}", errors(&created));
    let address = format!("--address=127.0.0.1:{port}");
    let own = ["start", &address, "--token-file", &token, "--num-cpus=1", "--node-name=stopped"];
    let output = place.run(&[&own[..], &["--object-store-memory=104857600"]].concat());
    assert!(output.status.success(), "{}", errors(&output));
    until("the head knows it", || {
        let now = nodes(head);
        now.0 + now.1 > alive + dead
    });
    place
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
    }
}

/// The daemon, its supervisor and its log.
struct Member {
    daemon: u32,
    supervisor: u32,
    log: PathBuf,
}

fn member_of(place: &Place) -> Option<Member> {
    let number = |value: &serde_json::Value| value.as_u64().map(|number| number as u32);
    let mut sessions = place.sessions().into_iter().filter_map(|session| {
        let text = std::fs::read_to_string(session.join("session.json")).ok()?;
        let described: serde_json::Value = serde_json::from_str(&text).ok()?;
        let (daemon, supervisor) = (number(&described["pid"])?, number(&described["supervisor"])?);
        Some(Member { daemon, supervisor, log: logs_of(&session).join("daemon.log") })
    });
    // Of one that was killed the session is swept away by the next.
    sessions.find(|member| is_alive(member.daemon))
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, state)| !state.trim_start().starts_with(['Z', 'X']))
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).expect("a process id"), signal).expect("it lives");
}

/// How many nodes of the head are alive under that name, and how many dead.
fn nodes(head: &Place) -> (usize, usize) {
    let output = head.run(&["status", "--json"]);
    // A head that has much to do may answer too late: then no node is known for now.
    let told: serde_json::Value = serde_json::from_str(&said(&output)).unwrap_or_default();
    let nodes = told["nodes"].as_array().cloned().unwrap_or_default();
    let own: Vec<_> = nodes.iter().filter(|node| node.to_string().contains("\"stopped\"")).collect();
    let alive = own.iter().filter(|node| node["alive"] == true).count();
    (alive, own.len() - alive)
}

#[test]
fn a_member_that_is_stopped_for_too_long_says_so_and_comes_back_as_another() {
    let (head, port) = head();
    let place = member(&head, port);
    let before = member_of(&place).expect("it serves");
    signal(before.daemon, Signal::STOP);
    wait_for_death(before.daemon);
    until("another daemon serves in its place", || {
        // More than one is dead where the machine stood still for a lease.
        let (alive, dead) = nodes(&head);
        member_of(&place).is_some_and(|now| now.daemon != before.daemon) && alive == 1 && dead >= 1
    });
    let after = member_of(&place).expect("it serves");
    assert_eq!(after.supervisor, before.supervisor);
    let log = std::fs::read_to_string(&before.log).expect("its log stays");
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains("said nothing for longer than its lease of 4 s"), "{log}");
    let output = place.run(&["stop"]);
    assert!(said(&output).contains("Stopped all"), "{}", errors(&output));
    assert!(!is_alive(after.daemon) && !is_alive(after.supervisor), "nothing is left when it was stopped");
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn a_member_comes_back_where_its_supervisor_was_stopped_as_well() {
    let (head, port) = head();
    let place = member(&head, port);
    let before = member_of(&place).expect("it serves");
    signal(before.supervisor, Signal::STOP);
    signal(before.daemon, Signal::STOP);
    until("the kernel ends it", || !is_alive(before.daemon));
    signal(before.supervisor, Signal::CONT);
    until("another daemon serves in its place", || member_of(&place).is_some_and(|now| now.daemon != before.daemon));
}

#[test]
fn a_member_that_is_killed_stays_away_and_one_ends_with_its_supervisor() {
    let (head, port) = head();
    let place = member(&head, port);
    let first = member_of(&place).expect("it serves");
    signal(first.daemon, Signal::KILL);
    wait_for_death(first.supervisor);
    assert!(member_of(&place).is_none());
    let place = member(&head, port);
    let second = member_of(&place).expect("it serves");
    signal(second.supervisor, Signal::KILL);
    wait_for_death(second.daemon);
    until("the head hears of both", || matches!(nodes(&head), (0, dead) if dead >= 2));
    let place = member(&head, port);
    let third = member_of(&place).expect("it serves");
    signal(third.supervisor, Signal::TERM);
    wait_for_death(third.supervisor);
    assert!(!is_alive(third.daemon) && place.left().is_empty(), "it has ended in order");
    // One that is stopped cannot end by itself, and nothing is started in its place.
    let place = member(&head, port);
    let fourth = member_of(&place).expect("it serves");
    signal(fourth.daemon, Signal::STOP);
    let output = place.run(&["stop", "--force"]);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(!is_alive(fourth.daemon) && !is_alive(fourth.supervisor));
}
