//! Orders whose environments a member of another machine makes itself.

use super::members::{HEAD, Pair};
use super::{CPU, request};
use oxiray_ids::LeaseRequestNumber;
use oxiray_wire::Message;
use oxiray_wire::message::{Environment, LeaseCancel, LeaseRequest};

fn asked(number: u64) -> LeaseRequest {
    let (fields, preparation) = ("fields".to_owned(), "made".to_owned());
    let environment = Environment { fields, preparation, setup_timeout_s: 60, eager: true, ..Environment::default() };
    LeaseRequest { environment: Some(environment), ..request(number, &[CPU]) }
}

/// A member of another machine that is asked for two workers in an environment which the head has made.
fn pair() -> (Pair, u64) {
    let mut pair = Pair::apart(0, 2);
    pair.member.core.serve_head(HEAD, "10.0.0.2:1".to_owned());
    pair.member.settle();
    pair.exchange();
    let driver = pair.head.driver();
    pair.head.say(driver, asked(1));
    pair.head.say(driver, asked(2));
    let number = pair.head.preparing[0];
    pair.head.core.prepared(number, Ok(vec!["/head/python".to_owned()]));
    pair.head.settle();
    pair.exchange();
    assert!(pair.head.grants_of(driver).is_empty(), "the member has not made it");
    assert_eq!(pair.member.preparing.len(), 1, "once for all");
    assert_eq!(pair.member.free("CPU"), 0, "HELD-1");
    (pair, driver)
}

#[test]
fn an_order_waits_for_the_environment_that_its_own_machine_makes() {
    let (mut pair, driver) = pair();
    let number = pair.member.preparing[0];
    pair.member.core.prepared(number, Ok(vec!["/member/python".to_owned()]));
    pair.member.settle();
    pair.exchange();
    assert_eq!(pair.head.grants_of(driver).len(), 2);
    assert!(pair.member.core.node().origins().any(|origin| origin.command == ["/member/python"]));
}

#[test]
fn an_environment_that_fails_there_is_told_with_the_node() {
    let (mut pair, driver) = pair();
    let number = pair.member.preparing[0];
    pair.member.core.prepared(number, Err("no such package".to_owned()));
    pair.member.settle();
    pair.exchange();
    assert_eq!((pair.head.refusals(driver), pair.member.free("CPU")), (vec![1, 2], 20_000));
    let text = pair.head.refusal(driver, 1);
    assert!(text.contains("no such package") && text.contains(&pair.member.core.node().plan().node.hex()), "{text}");
}

#[test]
fn nothing_is_kept_for_whoever_went_meanwhile() {
    let (mut pair, driver) = pair();
    pair.head.say(driver, LeaseCancel { request: LeaseRequestNumber(1) });
    pair.head.core.driver_left(driver);
    pair.head.settle();
    pair.exchange();
    let number = pair.member.preparing[0];
    pair.member.core.prepared(number, Ok(Vec::new()));
    pair.member.settle();
    pair.exchange();
    pair.bury();
    pair.exchange();
    pair.bury();
    assert_eq!(pair.member.free("CPU"), 20_000);
    assert!(!pair.head.sent.iter().any(|(_, message)| matches!(message, Message::LeaseGranted(_))));
}
