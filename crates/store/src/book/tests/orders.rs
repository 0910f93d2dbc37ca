//! Every order of events, drawn at random.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Create { client: u64, object: u64, size: u64 },
    Ahead { client: u64, object: u64, size: u64 },
    Seal { client: u64, object: u64 },
    Abort { client: u64, object: u64 },
    Pin { client: u64, object: u64 },
    Unpin { client: u64, object: u64 },
    Delete { object: u64 },
    Gone { client: u64 },
    Hurry { back: u64 },
    Expire { back: u64 },
    Job { outcome: JobResult },
    Give { client: u64, file: u64 },
    Trim { keep: u64 },
    Bound { bytes: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let pair = || (0..4_u64, 0..10_u64);
    prop_oneof![
        8 => (pair(), 1..3 * MIB).prop_map(|((client, object), size)| Step::Create { client, object, size }),
        1 => (pair(), 6 * MIB..8 * MIB).prop_map(|((client, object), size)| Step::Create { client, object, size }),
        4 => (pair(), 1..2 * MIB).prop_map(|((client, object), size)| Step::Ahead { client, object, size }),
        8 => pair().prop_map(|(client, object)| Step::Seal { client, object }),
        1 => pair().prop_map(|(client, object)| Step::Abort { client, object }),
        6 => pair().prop_map(|(client, object)| Step::Pin { client, object }),
        6 => pair().prop_map(|(client, object)| Step::Unpin { client, object }),
        2 => (0..10_u64).prop_map(|object| Step::Delete { object }),
        1 => (0..4_u64).prop_map(|client| Step::Gone { client }),
        3 => (1..8_u64).prop_map(|back| Step::Hurry { back }),
        2 => (1..8_u64).prop_map(|back| Step::Expire { back }),
        8 => (0..11).prop_map(|chance| Step::Job { outcome: outcome(chance) }),
        2 => (0..4_u64, 0..30_u64).prop_map(|(client, file)| Step::Give { client, file }),
        1 => (0..4 * MIB).prop_map(|keep| Step::Trim { keep }),
        2 => (0..8 * MIB).prop_map(|bytes| Step::Bound { bytes }),
    ]
}

fn outcome(chance: i32) -> JobResult {
    match chance {
        0 => Err(Failure::Gone("input/output error".to_owned())),
        1 => Err(Failure::Away("connection refused".to_owned())),
        _ => Ok(()),
    }
}

impl World {
    fn step(&mut self, step: &Step, ticket: u64) {
        match *step {
            Step::Job { ref outcome } => drop(self.end_job(outcome.clone())),
            Step::Create { client, object: id, size } => {
                self.book.create(Ticket(ticket), ClientId(client), object(id), size);
            }
            Step::Ahead { client, object: id, size } => {
                self.book.create_ahead(Ticket(ticket), ClientId(client), object(id), size);
            }
            // Most of these name an object that the client does not write or pin: refused, and nothing changes.
            Step::Seal { client, object: id } => drop(self.book.seal(ClientId(client), object(id))),
            Step::Abort { client, object: id } => drop(self.book.abort(ClientId(client), object(id))),
            Step::Unpin { client, object: id } => drop(self.book.unpin(ClientId(client), object(id))),
            Step::Pin { client, object: id } => self.book.pin(Ticket(ticket), ClientId(client), object(id)),
            Step::Delete { object: id } => self.book.delete(object(id)),
            Step::Gone { client } => {
                self.book.client_gone(ClientId(client));
                begin(self);
            }
            Step::Hurry { back } => self.book.hurry(Ticket(ticket.saturating_sub(back))),
            Step::Expire { back } => drop(self.book.expire(Ticket(ticket.saturating_sub(back)))),
            Step::Give { client, file } => {
                self.book.give(FileId(file), ClientId(client), Access::ReadWrite);
            }
            Step::Trim { keep } => self.book.trim(keep),
            Step::Bound { bytes } => self.book.set_bound(bytes),
        }
        self.apply();
    }
}

/// Two clients of the objects' own job, one of another, and the daemon.
fn begin(world: &mut World) {
    for (client, job) in [(1, 0), (2, 0), (3, 7)] {
        world.client_of(client, job);
    }
}

fn answered(event: &Event) -> Option<Ticket> {
    match *event {
        Event::Created { ticket, .. } | Event::Pinned { ticket, .. } | Event::Refused { ticket, .. } => Some(ticket),
        Event::Retired { .. } | Event::Spilled { .. } => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// `check` holds after every event, every ticket has at most one answer, and when all clients are gone and all
    /// objects deleted, nothing is held.
    #[test]
    fn every_order_of_events_keeps_the_invariants(
        steps in prop::collection::vec(step(), 1..200), is_storage in any::<bool>(),
    ) {
        let mut world = World::with(6 * MIB, 8 * MIB, is_storage);
        begin(&mut world);
        for (ticket, step) in steps.iter().enumerate() {
            world.step(step, ticket as u64);
        }
        while world.finish_job(Ok(())) {}
        let mut tickets: Vec<Ticket> = world.events.iter().filter_map(answered).collect();
        tickets.sort_unstable();
        let count = tickets.len();
        tickets.dedup();
        prop_assert_eq!(tickets.len(), count, "STORE-4");

        (0..4).for_each(|client| world.gone(client));
        prop_assert_eq!(world.book.waiting.len(), 0);
        (0..10).for_each(|number| world.delete(number));
        while world.finish_job(Ok(())) {}
        let stats = world.book.stats();
        prop_assert_eq!((stats.used, stats.objects, stats.spilled_bytes), (0, 0, 0));
        prop_assert!(world.files.is_empty());
    }
}
