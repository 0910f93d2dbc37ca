//! Who reads large objects is placed where those lie.

use super::members::Pair;
use super::{CPU, request};
use oxiray_ids::ObjectId;
use oxiray_wire::message::{HoldingsQuery, LargeArgument, LeaseRequest, LeaseReturn};

pub(super) fn object(number: u8) -> ObjectId {
    ObjectId::new([number; 28])
}

pub(super) fn reading(number: u64, objects: &[(u8, u64)]) -> LeaseRequest {
    let named = |(of, mib): &(u8, u64)| LargeArgument { object: object(*of), bytes: mib << 20 };
    LeaseRequest { arguments: objects.iter().map(named).collect(), ..request(number, &[CPU]) }
}

#[test]
fn a_request_goes_where_most_of_its_bytes_lie_and_elsewhere_where_there_is_no_room() {
    let mut pair = Pair::new(4, 1);
    let driver = pair.head.driver();
    assert!(pair.head.core.stored_here(driver, object(1)));
    assert!(pair.head.core.stored(driver, object(2)));
    pair.head.core.copied(pair.stream, object(2));
    for (number, objects, is_there) in
        [(1, &[(1, 5), (2, 9)][..], true), (2, &[(1, 9), (2, 5)], false), (3, &[], false), (4, &[(2, 9)], true)]
    {
        pair.head.say(driver, reading(number, objects));
        pair.exchange();
        let (lease, worker) = pair.head.granted(driver, number);
        assert_eq!(pair.is_on_member(worker), is_there, "{objects:?}");
        if number < 4 {
            pair.head.say(driver, LeaseReturn { lease, retiring: false });
            pair.exchange();
        }
    }
    pair.head.say(driver, reading(5, &[(2, 9)]));
    pair.exchange();
    assert!(!pair.is_on_member(pair.head.granted(driver, 5).1), "the member has no room");
}

#[test]
fn what_was_deleted_or_never_known_draws_nobody() {
    let mut pair = Pair::new(4, 4);
    let driver = pair.head.driver();
    assert!(pair.head.core.stored(driver, object(2)));
    pair.head.core.copied(pair.stream, object(2));
    pair.head.core.as_head_mut().delete_everywhere(object(2));
    pair.head.say(driver, reading(1, &[(2, 9), (3, 100)]));
    pair.exchange();
    assert!(!pair.is_on_member(pair.head.granted(driver, 1).1));
}

#[test]
fn room_that_was_lent_ahead_is_not_listed_and_nothing_is_left_of_it() {
    let mut pair = Pair::new(4, 1);
    let driver = pair.head.driver();
    assert!(pair.head.core.stored_here(driver, object(1)));
    let listed = |place: &'static str| {
        let told =
            pair.head.core.holdings(&HoldingsQuery { request: 1, ..HoldingsQuery::default() }, |_| Some((1, place)));
        told.objects.iter().any(|held| held.object == object(1))
    };
    assert!(listed("being written") && !listed(crate::LENT));
    pair.head.core.unstored_here(driver, object(1));
    assert!(!pair.head.core.is_stored(object(1)));
    assert!(pair.head.core.as_head().bytes_by_node(&[(object(1), 1)]).is_empty());
}
