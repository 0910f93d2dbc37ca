//! Drivers on a member's machine, as the head knows them.

use super::fairness::recalled;
use super::members::Pair;
use super::{CPU, request};
use oxiray_ids::WorkerNumber;
use oxiray_machine::Key;
use oxiray_wire::Message;
use oxiray_wire::message::{DrainAsked, Driver, Goodbye, LeaseReturn, ProxiedClientJoined, ProxiedClientLeft, Welcome};
use std::time::Duration;

/// What the member calls its proxied client.
const PROXIED_CLIENT: WorkerNumber = WorkerNumber(1 << 30);

/// A driver comes by the member; what the head calls it.
fn join(pair: &mut Pair) -> Key {
    let driver = Driver { pid: 7, interpreter: "/only/there/python".into(), ..Driver::default() };
    let joined = ProxiedClientJoined { proxied_client: PROXIED_CLIENT, driver: Some(driver), returning: None };
    pair.head.core.member_said(pair.stream, joined.into());
    pair.head.settle();
    let key =
        *pair.head.core.as_head().members.by_key[&pair.stream].workers.get(&PROXIED_CLIENT).expect("it is routed");
    pair.exchange();
    key
}

#[test]
fn a_guest_is_told_of_its_own_node_and_served_like_any_driver() {
    let mut pair = Pair::new(1, 1);
    let proxied_client = join(&mut pair);
    assert_eq!(pair.head.core.route(proxied_client), Some((pair.stream, PROXIED_CLIENT)));
    let welcomed: Vec<&Welcome> = pair
        .head
        .sent
        .iter()
        .filter_map(|(to, message)| match message {
            Message::Welcome(welcome) if *to == proxied_client => Some(&**welcome),
            _ => None,
        })
        .collect();
    assert_eq!(welcomed.len(), 1);
    assert_eq!(welcomed[0].node, pair.member.core.node().plan().node);
    let is_its = |origin: &oxiray_machine::Origin| origin.command == ["/only/there/python"];
    assert!(pair.member.core.node().origins().any(is_its), "the member makes itself ready for it");
    assert!(!pair.head.core.node().origins().any(is_its), "the head may not have its interpreter");
    pair.head.say(proxied_client, request(1, &[CPU]));
    pair.exchange();
    let (_, worker) = pair.head.granted(proxied_client, 1);
    assert!(pair.is_on_member(worker), "it is near");
}

#[test]
fn a_guest_of_a_node_that_is_being_emptied_is_told_when_it_comes() {
    let mut pair = Pair::new(1, 1);
    let early = join(&mut pair);
    let node = pair.member.core.node().plan().node.hex();
    let asked = DrainAsked { node, reason: "notice".into(), deadline_ms: Some(60_000), ..DrainAsked::default() };
    pair.head.core.drain_asked(1 << 41, &asked);
    pair.head.settle();
    let late = join(&mut pair);
    for proxied_client in [early, late] {
        let told = pair.head.sent.iter().filter(|(to, message)| {
            *to == proxied_client
                && matches!(message, Message::Draining(said) if said.reason == "notice" && !said.is_over)
        });
        assert_eq!(told.count(), 1);
    }
}

#[test]
fn what_a_guest_had_is_free_when_it_or_its_member_is_gone() {
    for member_dies in [false, true] {
        let mut pair = Pair::new(1, 1);
        let proxied_client = join(&mut pair);
        pair.head.say(proxied_client, request(1, &[CPU]));
        pair.head.say(proxied_client, request(2, &[CPU]));
        pair.exchange();
        assert_eq!((pair.head.free("CPU"), pair.member.free("CPU")), (0, 0));
        if member_dies {
            pair.head.core.member_gone(pair.stream);
        } else {
            pair.head.core.member_said(pair.stream, ProxiedClientLeft { proxied_client: PROXIED_CLIENT }.into());
        }
        pair.head.settle();
        pair.exchange();
        pair.bury();
        pair.exchange();
        assert_eq!(pair.head.free("CPU"), 10_000);
        assert!(member_dies || pair.member.free("CPU") == 10_000);
        assert_eq!(pair.head.core.route(proxied_client), None);
        assert!(pair.head.core.as_head().jobs.details.is_empty() && pair.head.core.as_head().clients.by_key.is_empty());
    }
}

#[test]
fn a_guest_that_says_goodbye_is_let_go_of_when_the_last_of_its_workers_is_gone() {
    let mut pair = Pair::new(0, 1);
    let proxied_client = join(&mut pair);
    pair.head.say(proxied_client, request(1, &[CPU]));
    pair.exchange();
    pair.head.say(proxied_client, Goodbye::default());
    pair.exchange();
    assert!(!pair.head.is_closed(proxied_client));
    pair.bury();
    pair.exchange();
    assert!(pair.head.is_closed(proxied_client));
}

#[test]
fn a_guest_gives_its_lease_back_for_a_driver_at_the_head_and_the_other_way_round() {
    let mut pair = Pair::new(0, 1);
    let proxied_client = join(&mut pair);
    pair.head.say(proxied_client, request(1, &[CPU]));
    pair.exchange();
    let (lease, _) = pair.head.granted(proxied_client, 1);
    let driver = pair.head.driver();
    pair.head.say(driver, request(1, &[CPU]));
    pair.head.pass(Duration::from_secs(1));
    assert_eq!(recalled(&pair.head, proxied_client), [lease]);
    pair.head.say(proxied_client, request(2, &[CPU]));
    pair.head.say(proxied_client, LeaseReturn { lease, retiring: false });
    pair.exchange();
    let (lease, _) = pair.head.granted(driver, 1);
    pair.head.pass(Duration::from_secs(1));
    assert_eq!(recalled(&pair.head, driver), [lease]);
}
