//! Who is served, and in which order.

use std::collections::BTreeMap;

use oxiray_resources::{Demand, Grant};
use proptest::prelude::*;

use super::{demand, ledger};
use crate::{Claimant, Priority, PushError, Shares, WaitQueue};

/// The only job of most tests.
const JOB: u8 = 1;

fn queue(entries: &[(u32, &str)]) -> WaitQueue<u8, u32, Demand> {
    let mut queue = WaitQueue::new();
    for (ticket, asked) in entries {
        queue.push(JOB, *ticket, demand(asked)).unwrap();
    }
    queue
}

fn tickets<G>(served: Vec<(u32, G)>) -> Vec<u32> {
    served.into_iter().map(|(ticket, _)| ticket).collect()
}

fn shown(queue: &WaitQueue<u8, u32, Demand>) -> Vec<String> {
    let classes = queue.waiting();
    classes.map(|class| format!("{} ×{} from {}", class.resource_request, class.count, class.oldest)).collect()
}

#[test]
fn what_fits_is_served_in_the_order_of_arrival_and_the_rest_stays() {
    let mut machine = ledger("CPU 4, GPU 1");
    let mut queue = queue(&[(1, "GPU 1"), (2, "CPU 3"), (3, "GPU 1"), (4, "CPU 3"), (5, "CPU 1"), (6, "CPU 1")]);
    assert_eq!(shown(&queue), ["{GPU: 1} ×2 from 1", "{CPU: 3} ×2 from 2", "{CPU: 1} ×2 from 5"]);
    let served = queue.serve(&mut Shares::default(), |_, asked, _| machine.grant(asked).ok());
    assert_eq!(served.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [1, 2, 5]);
    assert_eq!(shown(&queue), ["{GPU: 1} ×1 from 3", "{CPU: 3} ×1 from 4", "{CPU: 1} ×1 from 6"]);
    for (_, grant) in served {
        machine.release(grant);
    }
    assert_eq!(tickets(queue.serve(&mut Shares::default(), |_, asked, _| machine.grant(asked).ok())), [3, 4, 6]);
    assert!(queue.is_empty() && queue.waiting().next().is_none());
}

#[test]
fn a_class_that_cannot_be_served_holds_up_no_other_and_is_tried_once() {
    let mut machine = ledger("CPU 8");
    let mut queue = queue(&[(1, "GPU 1"), (2, "GPU 1"), (3, "CPU 1"), (4, "CPU 1"), (5, "CPU 1")]);
    let mut attempts: Vec<String> = Vec::new();
    let served = queue.serve(&mut Shares::default(), |_, asked, _| {
        attempts.push(asked.to_string());
        machine.grant(asked).ok()
    });
    assert_eq!((tickets(served), attempts.iter().filter(|asked| *asked == "{GPU: 1}").count()), (vec![3, 4, 5], 1));
    let stuck = queue.waiting().next().unwrap();
    assert_eq!((stuck.oldest, stuck.count, stuck.overtaken), (&1, 2, 3));
    assert_eq!(tickets(queue.serve(&mut Shares::default(), |_, _, _| Some(()))), [1, 2]);
}

#[test]
fn overtaking_is_counted_for_the_oldest_only() {
    let mut queue = queue(&[(1, "GPU 1"), (2, "GPU 1"), (3, "CPU 1")]);
    let cpu = demand("CPU 1");
    queue.serve(&mut Shares::default(), |_, asked, _| (*asked == cpu).then_some(()));
    assert_eq!(queue.waiting().next().unwrap().overtaken, 1);
    let mut once = Some(());
    assert_eq!(tickets(queue.serve(&mut Shares::default(), |_, _, _| once.take())), [1]);
    assert_eq!(queue.waiting().next().unwrap().overtaken, 0);
}

#[test]
fn a_cancelled_entry_is_not_served() {
    let mut queue = queue(&[(1, "CPU 1"), (2, "CPU 1"), (3, "GPU 1")]);
    assert!(queue.cancel(&1) && queue.cancel(&3) && !queue.cancel(&1) && !queue.cancel(&9));
    assert_eq!(queue.len(), 1);
    assert_eq!(shown(&queue), ["{CPU: 1} ×1 from 2"]);
    queue.push(JOB, 1, demand("CPU 1")).unwrap();
    assert_eq!(
        tickets(queue.serve(&mut Shares::default(), |_, _, _| Some(()))),
        [2, 1],
        "who comes back stands at the end"
    );
}

#[test]
fn the_queue_is_bounded_and_a_ticket_waits_once() {
    let mut queue = WaitQueue::with_limit(2);
    queue.push(JOB, 1, demand("CPU 1")).unwrap();
    assert_eq!(queue.push(JOB, 1, demand("GPU 1")), Err(PushError::AlreadyWaiting));
    queue.push(JOB, 2, demand("CPU 1")).unwrap();
    assert_eq!(queue.push(JOB, 3, demand("CPU 1")), Err(PushError::Full { limit: 2 }));
    assert_eq!(tickets(queue.serve(&mut Shares::default(), |_, _, _| Some(()))), [1, 2]);
    assert_eq!(queue.push(JOB, 3, demand("CPU 1")), Ok(()));
}

#[test]
fn a_hundred_thousand_waiting_cost_a_round_one_attempt_per_class() {
    let mut queue = WaitQueue::new();
    let classes: Vec<_> = (1..=20).map(|cpus| demand(&format!("CPU {cpus}"))).collect();
    for ticket in 0..100_000_u32 {
        queue.push(JOB, ticket, classes[ticket as usize % classes.len()].clone()).unwrap();
    }
    for _ in 0..1_000 {
        let mut attempts = 0;
        let served: Vec<(u32, ())> = queue.serve(&mut Shares::default(), |_, _, _| {
            attempts += 1;
            None
        });
        assert_eq!((served.len(), attempts), (0, classes.len()));
    }
    (0..50_000).for_each(|ticket| assert!(queue.cancel(&ticket)));
    let served = tickets(queue.serve(&mut Shares::default(), |_, _, _| Some(())));
    assert!(served.iter().copied().eq(50_000..100_000), "all are served in the order of arrival");
}

#[derive(Clone, Debug)]
enum Event {
    Push(usize),
    Cancel(u32),
    Release(prop::sample::Index),
}

const CLASSES: [&str; 5] = ["CPU 1", "CPU 3", "GPU 0.4", "GPU 1", "CPU 2, GPU 2"];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..CLASSES.len()).prop_map(Event::Push),
        1 => (0..60_u32).prop_map(Event::Cancel),
        3 => any::<prop::sample::Index>().prop_map(Event::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// The model: one list in the order of arrival, searched from the front again after each grant.
    #[test]
    fn any_order_of_events_is_served_as_one_list_would_be(events in prop::collection::vec(event(), 1..60)) {
        let (mut real, mut model) = (ledger("CPU 4, GPU 2"), ledger("CPU 4, GPU 2"));
        let mut queue = WaitQueue::new();
        let mut list: BTreeMap<u32, &str> = BTreeMap::new();
        let mut held: Vec<(Grant, Grant)> = Vec::new();
        for (ticket, event) in (0..).zip(events) {
            match event {
                Event::Push(class) => {
                    queue.push(JOB, ticket, demand(CLASSES[class])).unwrap();
                    list.insert(ticket, CLASSES[class]);
                }
                Event::Cancel(other) => prop_assert_eq!(queue.cancel(&other), list.remove(&other).is_some()),
                Event::Release(index) if !held.is_empty() => {
                    let (first, second) = held.swap_remove(index.index(held.len()));
                    real.release(first);
                    model.release(second);
                }
                Event::Release(_) => {}
            }
            let served = queue.serve(&mut Shares::default(), |_, asked, _| real.grant(asked).ok());
            let mut expected = Vec::new();
            while let Some((ticket, grant)) =
                list.iter().find_map(|(ticket, asked)| Some((*ticket, model.grant(&demand(asked)).ok()?)))
            {
                list.remove(&ticket);
                expected.push((ticket, grant));
            }
            prop_assert_eq!(&served, &expected);
            prop_assert_eq!(queue.len(), list.len());
            held.extend(served.into_iter().zip(expected).map(|((_, real), (_, model))| (real, model)));
        }
    }
}

#[test]
fn what_comes_from_deeper_goes_first_and_among_equals_the_older() {
    let mut queue: WaitQueue<u8, u32, Demand> = WaitQueue::new();
    for (ticket, depth) in [(1, 0), (2, 1), (3, 0), (4, 2), (5, 1), (6, u32::MAX), (7, u32::MAX)] {
        queue.push_from(depth, JOB, ticket, demand("CPU 1")).unwrap();
    }
    queue.push_from(1, JOB, 8, demand("GPU 1")).unwrap();
    assert_eq!(queue.waiting().map(|class| (*class.oldest, class.count)).collect::<Vec<_>>(), [(6, 7), (8, 1)]);
    assert!(queue.cancel(&4));
    assert_eq!(tickets(queue.serve(&mut Shares::default(), |_, _, _| Some(()))), [6, 7, 2, 5, 8, 1, 3]);
    assert!(queue.is_empty() && queue.waiting().next().is_none());
}

#[test]
fn the_more_urgent_goes_first_and_holds_up_nobody() {
    let mut queue: WaitQueue<u8, u64, Demand> = WaitQueue::new();
    let of = |priority: i32| Claimant { job: JOB, priority: Priority(priority) };
    for (ticket, priority, asked) in
        [(1, 0, "CPU 1"), (2, -5, "CPU 1"), (3, 7, "CPU 1"), (4, 9, "GPU 1"), (5, 7, "CPU 1")]
    {
        queue.push(of(priority), ticket, demand(asked)).unwrap();
    }
    assert_eq!(queue.claimants().count(), 4);
    let mut left = 4;
    let served = queue.serve(&mut Shares::default(), |claimant, asked, _| {
        let fits = !asked.get("CPU").is_zero() && left > 0;
        left -= usize::from(fits);
        fits.then_some(claimant.priority.0)
    });
    assert_eq!(served, [(3, 7), (5, 7), (1, 0), (2, -5)]);
    let waits: Vec<(u64, u64)> = queue.waiting().map(|waiting| (*waiting.oldest, waiting.overtaken)).collect();
    assert_eq!(waits, [(4, 4)]);
}
