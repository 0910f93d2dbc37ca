//! Strangers, and members with made-up tickets, beside members that have streams to make.

use super::*;
use crate::exchange::{BEARERS_MAX, STRANGERS_MAX};
use crate::failed_proofs::WRONG_PROOFS_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Longer than any test waits: nobody is turned away for being late.
const PATIENT: Limits = Limits { proving: Duration::from_secs(60), ticket: Duration::from_secs(60), silence: LIMIT };
/// Set in the process of its own that has no descriptors left.
const CHILD: &str = "OXIRAY_TEST_WITHOUT_DESCRIPTORS";

/// A stream from a member to the head is made, and carries bytes.
fn reaches(head: &Head, node: NodeId, gateway: &Gateway) {
    let ticket = Ticket::generate();
    let (far, local) = pair();
    head.gateway.expect(Expectation { ticket, node, local: local.into() });
    let (near, local) = pair();
    gateway.dial(head.gateway.address(), Expectation { ticket, node: head.node, local: local.into() });
    carries(near, far, 1000);
}

#[test]
fn wrong_secrets_bar_the_proofs_of_their_address_and_no_certificate() {
    let head = Head::start();
    let (node, gateway, control, far) = member(&head);
    let wrong = JoinToken { secret: [0; 32], ..head.token.clone() };
    let until = Instant::now() + LIMIT;
    let refused = || {
        let failure = head.join(&wrong, NodeId::generate(), PROTOCOL).expect_err("it is wrong");
        assert!(matches!(failure, JoinFailure::Refused | JoinFailure::Barred), "{failure:?}");
    };
    // Where they take longer than the time in which so many count, they are tried again.
    loop {
        for _ in 0..WRONG_PROOFS_MAX {
            refused();
        }
        match head.join(&head.token, NodeId::generate(), PROTOCOL) {
            Err(JoinFailure::Barred) => break,
            other => assert!(Instant::now() < until, "it is not barred: {other:?}"),
        }
    }
    let told = head.next(|event| matches!(event, Event::Told(_)));
    assert!(matches!(told, Event::Told(line) if line.contains("127.0.0.1")));
    reaches(&head, node, &gateway);
    carries(control, far, 10);
}

#[test]
fn strangers_who_say_nothing_keep_nobody_out() {
    let head = Head::start_with(PATIENT);
    let (node, gateway, ..) = member(&head);
    let silent: Vec<TcpStream> = (0..2 * STRANGERS_MAX)
        .map(|_| TcpStream::connect(head.gateway.address()).expect("the kernel accepts"))
        .collect();
    reaches(&head, node, &gateway);
    member(&head);
    drop(silent);
}

#[test]
fn tickets_that_nobody_gave_out_hold_up_their_own_node_only() {
    let head = Head::start_with(PATIENT);
    let (_, faulty, ..) = member(&head);
    let (node, gateway, ..) = member(&head);
    let held: Vec<UnixStream> = (0..BEARERS_MAX + 10)
        .map(|_| {
            let (near, local) = pair();
            let expectation = Expectation { ticket: Ticket::generate(), node: head.node, local: local.into() };
            faulty.dial(head.gateway.address(), expectation);
            near
        })
        .collect();
    // Some of them were crowded out: all places are taken.
    head.next(|event| matches!(event, Event::Told(line) if line.contains("too many wait")));
    for _ in 0..3 {
        reaches(&head, node, &gateway);
    }
    // One whose ticket becomes known later keeps its place until then.
    let ticket = Ticket::generate();
    let (near, local) = pair();
    gateway.dial(head.gateway.address(), Expectation { ticket, node: head.node, local: local.into() });
    reaches(&head, node, &gateway);
    let (far, local) = pair();
    head.gateway.expect(Expectation { ticket, node, local: local.into() });
    carries(near, far, 10);
    drop(held);
}

/// EXCHANGE-3.
#[test]
fn a_node_is_dialled_until_it_answers() {
    let head = Head::start_with(PATIENT);
    let (one, first, ..) = member(&head);
    let (other, second, ..) = member(&head);
    let vacant = std::net::TcpListener::bind(loopback()).expect("a port");
    let address = vacant.local_addr().expect("an address");
    drop(vacant);
    let ticket = Ticket::generate();
    let (near, local) = pair();
    first.dial(address, Expectation { ticket, node: other, local: local.into() });
    let (far, local) = pair();
    second.expect(Expectation { ticket, node: one, local: local.into() });
    // Now there is one who passes on what comes.
    let listener = std::net::TcpListener::bind(address).expect("it is free");
    let behind = second.address();
    std::thread::spawn(move || {
        let (from, _) = listener.accept().expect("it is dialled again");
        let to = TcpStream::connect(behind).expect("it listens");
        let (mut back, mut forth) = (from.try_clone().expect("a copy"), to.try_clone().expect("a copy"));
        std::thread::spawn(move || std::io::copy(&mut forth, &mut back));
        let _ = std::io::copy(&mut &from, &mut &to);
    });
    carries(near, far, 100_000);
}

/// It is run by the next test.
#[test]
#[ignore = "it takes all descriptors of its process"]
fn without_descriptors() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let head = Head::start();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).expect("it may be lowered");
    let mut taken: Vec<std::fs::File> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    taken.pop();
    let stranger = TcpStream::connect(head.gateway.address()).expect("the last descriptor");
    head.next(|event| matches!(event, Event::Told(line) if line.contains("cannot be accepted")));
    setrlimit(Resource::Nofile, limit).expect("it may be raised again");
    // No connection of the gateway has ended meanwhile.
    member(&head);
    drop(stranger);
    drop(taken);
}

#[test]
fn a_head_that_had_no_descriptors_listens_again() {
    let child = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "tests::crowding::without_descriptors", "--ignored"])
        .env(CHILD, "1")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&child.stderr));
}
