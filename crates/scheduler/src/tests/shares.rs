//! Shares, the order that follows from them, and what is recalled.

use std::collections::BTreeMap;

use oxiray_resources::{Demand, Grant, Inventory, Ledger, ResourceName};
use proptest::prelude::*;

use super::{amounts, demand, ledger, node};
use crate::{
    Claimant, HeldLease, JobShare, NodeView, Otherwise, Place, Priority, Rank, Recall, ResourceRequest, Shares,
    Standing, Strategy, WaitQueue, Waiter, recalls,
};

type Job = u8;

fn shares(total: &str, held: &[(Job, &str)]) -> Shares<Job> {
    let mut shares = Shares::default();
    shares.add_machine(&Inventory::new(amounts(total)).unwrap());
    for (job, text) in held {
        shares.take(*job, &demand(text));
    }
    shares
}

fn share(shares: &Shares<Job>, job: Job, asked: &str) -> JobShare {
    let asked = demand(asked);
    shares.share(job, std::iter::once(&asked))
}

/// Machines, and the leases of each job there in the order of age: the machine, the job, what it holds.
fn looked_at(machines: &[&str], held: &[(u8, Job, &str)], waiting: &[(Job, &str, usize)]) -> Vec<Recall<usize>> {
    let resource_requests: Vec<(Job, ResourceRequest, usize)> =
        waiting.iter().map(|(job, asked, count)| (*job, demand(asked).into(), *count)).collect();
    look(machines, held, &[], &resource_requests)
}

/// The same with leases that are coming already, and with any requests.
fn look(
    machines: &[&str],
    held: &[(u8, Job, &str)],
    coming: &[(u8, Job, &str)],
    waiting: &[(Job, ResourceRequest, usize)],
) -> Vec<Recall<usize>> {
    let mut ledgers: Vec<Ledger> = machines.iter().map(|text| ledger(text)).collect();
    let mut shares = Shares::default();
    for ledger in &ledgers {
        shares.add_machine(ledger.inventory());
    }
    let mut lease = |number: usize, (machine, job, text): &(u8, Job, &str)| {
        let demand = demand(text);
        let _held = ledgers[*machine as usize].grant(&demand).unwrap();
        shares.take(*job, &demand);
        HeldLease { lease: number, claimant: (*job).into(), node: node(*machine), demand }
    };
    let over: Vec<_> = held.iter().enumerate().map(|(number, one)| lease(number, one)).collect();
    let coming: Vec<_> = coming.iter().enumerate().map(|(number, one)| lease(1000 + number, one)).collect();
    let views = (0..)
        .zip(&ledgers)
        .map(|(number, ledger)| (node(number), NodeView::new(node(number), ledger, BTreeMap::new())));
    let waiters: Vec<Waiter<Job>> = waiting
        .iter()
        .map(|(job, resource_request, count)| Waiter {
            claimant: (*job).into(),
            resource_request: resource_request.clone(),
            count: *count,
        })
        .collect();
    recalls(&shares, &waiters, &views.collect(), &coming, over, 64)
}

fn leases(found: &[Recall<usize>]) -> Vec<&[usize]> {
    found.iter().map(|recall| &recall.leases[..]).collect()
}

#[test]
fn a_share_is_the_largest_part_of_what_is_asked_for() {
    let shares = shares("CPU 8, GPU 2", &[(1, "CPU 4"), (1, "GPU 0.5"), (2, "GPU 2")]);
    assert_eq!(share(&shares, 1, "CPU 1, GPU 1"), share(&shares, 1, "CPU 1"));
    assert!(share(&shares, 1, "GPU 1") < share(&shares, 1, "CPU 1"), "a quarter and a half");
    assert_eq!(share(&shares, 2, "GPU 0.1"), JobShare::ALL);
    assert_eq!(share(&shares, 2, "CPU 1"), JobShare::NOTHING, "SHARES-1");
    assert_eq!(share(&shares, 3, "CPU 1"), JobShare::NOTHING);
}

#[test]
fn what_is_given_back_is_not_held_and_machines_come_and_go() {
    let mut shares = shares("CPU 4", &[(1, "CPU 2"), (1, "CPU 2, GPU 1")]);
    let other = Inventory::new(amounts("CPU 4")).unwrap();
    assert_eq!(share(&shares, 1, "CPU 1"), JobShare::ALL);
    shares.add_machine(&other);
    assert!(share(&shares, 1, "CPU 1") < JobShare::ALL);
    shares.remove_machine(&other);
    assert_eq!(share(&shares, 1, "CPU 1"), JobShare::ALL);
    shares.give_back(1, &demand("CPU 2, GPU 1"));
    assert!(share(&shares, 1, "CPU 1") < JobShare::ALL);
    shares.give_back(1, &demand("CPU 2"));
    assert_eq!(shares.jobs().len(), 0, "SHARES-2");
}

#[test]
fn priority_goes_before_share_then_who_yielded_goes_last_and_then_age_counts() {
    let standing = |priority, share| Standing::new(Priority(priority), share);
    let (urgent, usual) = (standing(1, JobShare::ALL), standing(0, JobShare::NOTHING));
    assert!(Rank::new(urgent, 9, 9) < Rank::new(usual, 1, 1), "ORDER-1");
    assert!(Rank::new(usual, 9, 9) < Rank::new(standing(0, JobShare::ALL), 1, 1), "ORDER-1");
    assert!(Rank::new(usual, 1, 9) < Rank::new(usual, 9, 1), "ORDER-1");
    assert!(Rank::new(usual, 1, 1) < Rank::new(usual, 1, 9), "ORDER-1");
    assert!(urgent.may_recall_from(usual) && !usual.may_recall_from(urgent), "ORDER-2");
    assert!(!usual.may_recall_from(usual), "ORDER-2");
}

#[test]
fn jobs_are_served_by_share_and_what_they_are_served_counts_within_the_round() {
    let mut machine = ledger("CPU 4");
    let mut shares = shares("CPU 4", &[(1, "CPU 1")]);
    let mut queue: WaitQueue<Job, u32, Demand> = WaitQueue::new();
    for (job, ticket) in [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (2, 6)] {
        queue.push(job, ticket, demand("CPU 1")).unwrap();
    }
    let served = queue.serve(&mut shares, |_, asked, _| machine.grant(asked).ok());
    let tickets: Vec<u32> = served.iter().map(|(ticket, _)| *ticket).collect();
    assert_eq!(
        tickets,
        [4, 1, 5, 2],
        "the second job has less, then both have the same and the first was there before"
    );
    assert_eq!(share(&shares, 2, "CPU 1"), JobShare::NOTHING, "nothing is counted once the round is over");
    assert_eq!(share(&shares, 1, "CPU 1"), share(&self::shares("CPU 4", &[(9, "CPU 1")]), 9, "CPU 1"));
}

#[test]
fn among_equals_who_gave_a_lease_back_last_goes_last() {
    let mut shares = shares("CPU 1", &[]);
    let mut queue: WaitQueue<Job, u32, Demand> = WaitQueue::new();
    for (job, ticket) in [(1, 1), (2, 2), (3, 3)] {
        queue.push(job, ticket, demand("CPU 1")).unwrap();
    }
    for job in [3, 1] {
        shares.yields(job);
    }
    let served = queue.serve(&mut shares, |_, _, _| Some(()));
    assert_eq!(served.iter().map(|(ticket, ())| *ticket).collect::<Vec<_>>(), [2, 3, 1]);
}

#[test]
fn the_oldest_lease_of_who_holds_the_most_is_recalled_for_who_holds_less() {
    let held = [(0, 1, "CPU 1"), (0, 2, "CPU 1"), (0, 2, "CPU 1"), (0, 3, "CPU 1")];
    assert_eq!(leases(&looked_at(&["CPU 4"], &held, &[(4, "CPU 1", 1)])), [&[1]]);
    // With one of them, the fourth job holds as much as the others.
    assert_eq!(leases(&looked_at(&["CPU 4"], &held, &[(4, "CPU 1", 9)])), [&[1]]);
    assert_eq!(leases(&looked_at(&["CPU 4"], &held, &[(2, "CPU 1", 9), (1, "CPU 1", 9)])), [&[1]], "RECALL-3");
    assert!(looked_at(&["CPU 4"], &held, &[(2, "CPU 1", 9)]).is_empty(), "RECALL-3: it has the most");
}

#[test]
fn a_job_that_is_alone_loses_nothing() {
    assert!(looked_at(&["CPU 2"], &[(0, 1, "CPU 1"), (0, 1, "CPU 1")], &[(1, "CPU 1", 16)]).is_empty());
}

#[test]
fn no_more_is_recalled_than_who_waits_can_use() {
    let held = [(0, 1, "CPU 1"); 8];
    assert_eq!(leases(&looked_at(&["CPU 8"], &held, &[(2, "CPU 3", 1)])), [&[0, 1, 2]], "RECALL-2");
    assert_eq!(looked_at(&["CPU 8"], &held, &[(2, "CPU 1", 9)]).len(), 4, "RECALL-3: half of all");
    assert_eq!(leases(&looked_at(&["CPU 10"], &held, &[(2, "CPU 3", 1)])), [&[0]], "RECALL-2: two are free");
    assert!(looked_at(&["CPU 8"], &held, &[(2, "CPU 9", 1)]).is_empty(), "it can never be met");
    let two = [(0, 1, "CPU 1"), (0, 1, "CPU 1, GPU 1"), (0, 1, "CPU 1")];
    assert_eq!(leases(&looked_at(&["CPU 3, GPU 1"], &two, &[(2, "CPU 1, GPU 1", 1)])), [&[1]], "RECALL-2");
    assert!(looked_at(&["CPU 8"], &held, &[(2, "", 5)]).is_empty(), "who asks for nothing waits for nobody's");
}

#[test]
fn what_is_coming_is_counted() {
    let held = [(0, 1, "CPU 1"); 3];
    let one = |count| vec![(2, ResourceRequest::from(demand("CPU 1")), count)];
    assert!(look(&["CPU 4"], &held, &[(0, 1, "CPU 1")], &one(1)).is_empty(), "RECALL-1");
    assert_eq!(leases(&look(&["CPU 4"], &held, &[(0, 1, "CPU 1")], &one(2))), [&[0]]);
    let large = vec![(2, ResourceRequest::from(demand("CPU 3")), 1)];
    assert_eq!(leases(&look(&["CPU 4"], &held, &[(0, 1, "CPU 1")], &large)), [&[0, 1]], "RECALL-2");
}

#[test]
fn leases_are_recalled_where_who_waits_may_run() {
    let held = [(0, 1, "CPU 1"), (1, 1, "CPU 1")];
    let place = Place { strategy: Strategy::Node { node: node(1), otherwise: Otherwise::Wait }, selectors: Vec::new() };
    let resource_request = vec![(2, ResourceRequest::new(demand("CPU 1"), place), 1)];
    assert_eq!(leases(&look(&["CPU 1", "CPU 1"], &held, &[], &resource_request)), [&[1]]);
    let spread = [(0, 1, "CPU 1"), (0, 1, "CPU 1"), (1, 1, "CPU 2")];
    assert_eq!(leases(&looked_at(&["CPU 2", "CPU 2"], &spread, &[(2, "CPU 2", 1)])), [&[2]], "one is enough there");
    let gpus = [(0, 1, "CPU 1"), (0, 1, "CPU 1, GPU 1")];
    assert_eq!(leases(&looked_at(&["CPU 9, GPU 1"], &gpus, &[(2, "GPU 0.5", 1)])), [&[1]]);
}

const ASKED: [&str; 5] = ["CPU 1", "CPU 2", "CPU 1, GPU 1", "GPU 0.5", "CPU 3, GPU 0.5"];
const MACHINES: [&str; 2] = ["CPU 6, GPU 2", "CPU 3, GPU 1"];

/// Jobs that hold leases on machines, and what is free there.
struct Cluster {
    ledgers: Vec<Ledger>,
    shares: Shares<Job>,
    held: BTreeMap<usize, (HeldLease<usize, Job>, Grant)>,
}

impl Cluster {
    fn new(held: &[(u8, Job, usize)]) -> Self {
        let ledgers: Vec<Ledger> = MACHINES.iter().map(|text| ledger(text)).collect();
        let mut cluster = Self { ledgers, shares: Shares::default(), held: BTreeMap::new() };
        for ledger in &cluster.ledgers {
            cluster.shares.add_machine(ledger.inventory());
        }
        for (machine, job, asked) in held {
            let demand = demand(ASKED[*asked]);
            let Ok(grant) = cluster.ledgers[*machine as usize].grant(&demand) else { continue };
            cluster.shares.take(*job, &demand);
            let lease = cluster.held.len();
            cluster
                .held
                .insert(lease, (HeldLease { lease, claimant: (*job).into(), node: node(*machine), demand }, grant));
        }
        cluster
    }

    fn views(&self) -> BTreeMap<oxiray_ids::NodeId, NodeView> {
        let view = |(number, ledger)| (node(number), NodeView::new(node(number), ledger, BTreeMap::new()));
        (0..).zip(&self.ledgers).map(view).collect()
    }

    fn has_room(&self, resource_request: &ResourceRequest) -> bool {
        self.views().values().any(|view| view.fits(&resource_request.demand).is_ok())
    }

    fn end(&mut self, lease: usize) -> HeldLease<usize, Job> {
        let (lease, grant) = self.held.remove(&lease).expect("a lease is recalled once");
        self.ledgers[usize::from(lease.node != node(0))].release(grant);
        self.shares.give_back(lease.claimant.job, &lease.demand);
        lease
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any cluster on which jobs hold and one or more wait: each lease that is recalled is needed, and is of somebody who
    /// has more than who gains by it.
    #[test]
    fn what_is_recalled_is_needed_and_is_of_who_has_more(
        held in prop::collection::vec((0..2_u8, 1..4_u8, 0..ASKED.len()), 0..12),
        waiting in prop::collection::vec((1..5_u8, 0..ASKED.len(), 1..4_usize), 1..5),
        spared in any::<prop::sample::Index>(),
    ) {
        let mut cluster = Cluster::new(&held);
        let waiter = |(job, asked, count): &(Job, usize, usize)| {
            Waiter { claimant: (*job).into(), resource_request: demand(ASKED[*asked]).into(), count: *count }
        };
        let waiters: Vec<Waiter<Job>> = waiting.iter().map(waiter).collect();
        let over: Vec<_> = cluster.held.values().map(|(lease, _)| lease.clone()).collect();
        let found = recalls(&cluster.shares, &waiters, &cluster.views(), &[], over, 64);
        // Of what is free somebody may be given a part, who is not among those for whom something is recalled.
        let is_full = waiters.iter().all(|waiter| !cluster.has_room(&waiter.resource_request));
        // On which device a share lies is the machine's to know, so that one may be recalled of another device.
        let has_shares = held.iter().map(|(_, _, asked)| asked).chain(waiting.iter().map(|(_, asked, _)| asked)).any(|asked| ASKED[*asked].contains("0.5"));
        let alone = waiters.len() == 1 && waiters[0].count == 1;
        prop_assert!(!alone || is_full || found.is_empty(), "RECALL-1");
        for (index, Recall { waiter, leases }) in found.iter().enumerate() {
            let Waiter { claimant: Claimant { job, .. }, resource_request, .. } = &waiters[*waiter];
            let spared = *spared.get(leases);
            for lease in leases.iter().copied().filter(|lease| *lease != spared) {
                let gains = cluster.shares.share(*job, std::iter::once(&resource_request.demand));
                let lease = cluster.end(lease);
                cluster.shares.take(lease.claimant.job, &lease.demand);
                let loses = cluster.shares.share(lease.claimant.job, std::iter::once(&resource_request.demand));
                // Who is given what is free, or what was recalled before, has more by then: it is not counted here.
                prop_assert!((gains < loses || !is_full || index > 0) && lease.claimant.job != *job, "RECALL-3");
                cluster.shares.give_back(lease.claimant.job, &lease.demand);
            }
            let is_needed = has_shares || !cluster.has_room(resource_request);
            prop_assert!(index > 0 || !is_full || is_needed, "RECALL-2: without any of them there is no room");
            cluster.end(spared);
            cluster.shares.take(*job, &resource_request.demand);
        }
    }

    /// Who has the smallest share is not left waiting while somebody else holds more than that by a lease that would do.
    #[test]
    fn nobody_with_the_smallest_share_waits_while_another_has_more(
        held in prop::collection::vec((0..2_u8, 1..4_u8, 0..ASKED.len()), 0..12),
        (job, asked) in (1..5_u8, 0..ASKED.len()),
    ) {
        let cluster = Cluster::new(&held);
        let resource_request = ResourceRequest::from(demand(ASKED[asked]));
        let share = |job| cluster.shares.share(job, std::iter::once(&resource_request.demand));
        let over: Vec<_> = cluster.held.values().map(|(lease, _)| lease.clone()).collect();
        let would_do = |lease: &HeldLease<usize, Job>| {
            let covers = resource_request.demand.iter().all(|(name, asked)| lease.demand.get(name.as_str()) >= asked);
            covers && lease.claimant.job != job && share(job) < share(lease.claimant.job)
        };
        let waiters = [Waiter { claimant: job.into(), resource_request: resource_request.clone(), count: 1 }];
        let found = recalls(&cluster.shares, &waiters, &cluster.views(), &[], over.clone(), 64);
        if over.iter().any(would_do) && !cluster.has_room(&resource_request) {
            prop_assert_eq!(found.len(), 1, "nobody waits in vain");
            prop_assert_eq!(found[0].leases.len(), 1, "RECALL-2: one would do");
        }
    }
}

#[test]
fn a_lease_of_a_lower_priority_is_recalled_also_from_ones_own_job_and_never_of_a_higher() {
    let of = |job: Job, priority: i32| Claimant { job, priority: Priority(priority) };
    let mut ledger = Ledger::new(Inventory::new([(ResourceName::CPU, 2.0)]).unwrap());
    let one = demand("CPU 1");
    let mut shares = Shares::default();
    shares.add_machine(ledger.inventory());
    let held: Vec<HeldLease<usize, Job>> = [of(1, 0), of(1, 5)]
        .into_iter()
        .enumerate()
        .map(|(lease, claimant)| {
            let _held = ledger.grant(&one).unwrap();
            shares.take(claimant.job, &one);
            HeldLease { lease, claimant, node: node(1), demand: one.clone() }
        })
        .collect();
    let views = BTreeMap::from([(node(1), NodeView::new(node(1), &ledger, BTreeMap::new()))]);
    let recalled = |claimant| -> Vec<usize> {
        let waiters = [Waiter { claimant, resource_request: one.clone().into(), count: 1 }];
        let found = recalls(&shares, &waiters, &views, &[], held.clone(), 8);
        found.into_iter().flat_map(|recall| recall.leases).collect()
    };
    assert_eq!(recalled(of(1, 3)), [0], "of its own job");
    assert_eq!(recalled(of(2, -1)), [0; 0], "another job that holds nothing, and is less urgent");
    assert_eq!(recalled(of(2, 0)), [0], "another job that is as urgent, and holds nothing");
    assert_eq!(recalled(of(2, 9)), [0], "the least urgent goes first");
    assert_eq!(recalled(of(1, 0)), [0; 0], "as urgent, of the same job");
}
