//! One plan for 100,000 requests of 50 kinds that wait, over 20 groups and 5,000 machines.
//!
//! `make bench-scheduler`, or `cargo bench -p oxiray-scheduler --bench growth -- --write "$PWD/benches/GROWTH.md"`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use oxiray_ids::NodeId;
use oxiray_resources::{Demand, Inventory, Ledger, Quantity, ResourceName};
use oxiray_scheduler::{
    Bundle, Group, GroupSituation, GroupStrategy, GrowthNeed, MachineSituation, NodeGroup, NodeView, Replica,
    ReplicaState, Selector, Situation, WaitingKind, plan,
};

const GROUPS: usize = 20;
const MACHINES: usize = 5_000;
const KINDS: u32 = 50;
const REQUESTS: u32 = 100_000;
/// How often it is measured.
const ROUNDS: usize = 11;
/// What it may take.
const LIMIT: Duration = Duration::from_secs(1);

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).expect("a name")
}

fn offers(number: usize) -> Inventory {
    let mut offers = vec![(name("CPU"), 64.0), (name("memory"), 512.0)];
    // Every fourth kind of machine has no accelerator.
    if !number.is_multiple_of(4) {
        let devices: Vec<ResourceName> = ResourceName::devices().collect();
        offers.push((devices[number % devices.len()].clone(), if number.is_multiple_of(3) { 4.0 } else { 8.0 }));
    }
    Inventory::new(offers).expect("an inventory")
}

fn group(number: usize) -> GroupSituation {
    let labels = BTreeMap::from([("zone".to_owned(), format!("z{}", number % 3))]);
    let group = NodeGroup {
        name: format!("group-{number}"),
        min: 0,
        max: 2_000,
        hosts: if number.is_multiple_of(7) { 4 } else { 1 },
        resources: offers(number),
        first_host: Inventory::default(),
        labels,
        priority: (number % 4) as i32,
        idle_timeout_ms: 60_000,
    };
    GroupSituation { group, set_aside: None, domains: BTreeMap::new() }
}

/// A fifth of the machines is idle, and of the others little is free.
fn machines(groups: &[GroupSituation]) -> (Vec<Replica>, Vec<MachineSituation>) {
    let (mut replicas, mut machines) = (Vec::new(), Vec::new());
    while machines.len() < MACHINES {
        let of = &groups[replicas.len() % GROUPS].group;
        let is_idle = replicas.len().is_multiple_of(5);
        let state = if is_idle { ReplicaState::Idle(90_000) } else { ReplicaState::InUse };
        for _ in 0..of.hosts {
            let number = machines.len() as u32;
            let mut bytes = [0; 28];
            bytes[..4].copy_from_slice(&number.to_le_bytes());
            let ledger = Ledger::new(of.resources.clone());
            let mut view = NodeView::new(NodeId::new(bytes), &ledger, of.labels.clone());
            if !is_idle {
                let used = of.resources.totals().filter(|(name, _)| name.as_str() != "memory");
                let used =
                    used.map(|(name, total)| (name.clone(), Quantity::whole(total.wholes() as u32 - number % 2)));
                view.take(&Demand::new(used).expect("a demand"));
            }
            machines.push(MachineSituation { view, replica: Some(replicas.len()), is_leaving: false });
        }
        replicas.push(Replica { name: format!("r-{}", replicas.len()), group: of.name.clone(), state });
    }
    (replicas, machines)
}

fn waiting(kind: u32) -> WaitingKind {
    let devices: Vec<ResourceName> = ResourceName::devices().collect();
    let family = devices[kind as usize % devices.len()].clone();
    let cpus = (name("CPU"), Quantity::whole(1 + kind % 4));
    let amounts = match kind % 5 {
        0 => vec![cpus, (name("memory"), Quantity::whole(1 + kind % 16))],
        1 => vec![cpus, (family, Quantity::from_units(u64::from(1 + kind % 9) * 1_000))],
        2 => vec![cpus, (family, Quantity::whole(1 + kind % 4))],
        _ => vec![cpus, (family, Quantity::ONE)],
    };
    let demand = Demand::new(amounts).expect("a demand");
    let who = format!("task `kind-{kind}`");
    if kind.is_multiple_of(10) {
        let bundle = Bundle { demand, selector: Selector::default() };
        let group = Group { strategy: GroupStrategy::Pack, bundles: vec![bundle; 4], preferred: None, domain: None };
        return WaitingKind { who, count: 20, wanted: GrowthNeed::Group(group) };
    }
    WaitingKind { who, count: REQUESTS / (KINDS - KINDS / 10), wanted: GrowthNeed::ResourceRequest(demand.into()) }
}

fn main() {
    let groups: Vec<GroupSituation> = (0..GROUPS).map(group).collect();
    let (replicas, machines) = machines(&groups);
    let waiting: Vec<WaitingKind> = (0..KINDS).map(waiting).collect();
    let requests: u32 = waiting.iter().map(|kind| kind.count).sum();
    let standing = vec![(Bundle { demand: Demand::nothing(), selector: Selector::default() }, 1)];
    let situation = Situation { groups, replicas, machines, waiting, standing };
    let mut times = Vec::new();
    let mut planned = plan(&situation);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        planned = plan(&situation);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let (median, longest) = (times[ROUNDS / 2], times[ROUNDS - 1]);
    let launched: u32 = planned.launches.iter().map(|launch| launch.replicas).sum();
    let text = format!(
        "# A plan at scale\n\n`make bench-scheduler`: what to launch and to remove for {requests} requests of {KINDS} kinds \
         (five of them placement groups of four bundles) that wait, over {GROUPS} groups and {MACHINES} machines, {ROUNDS} \
         times. One thread, a release build of oxiray {}.\n\n\
         | median, ms | longest, ms | replicas to launch | to remove | kinds left waiting |\n|---:|---:|---:|---:|---:|\n\
         | {:.1} | {:.1} | {launched} | {} | {} |\n",
        env!("CARGO_PKG_VERSION"),
        median.as_secs_f64() * 1000.0,
        longest.as_secs_f64() * 1000.0,
        planned.removals.len(),
        planned.unmet.len(),
    );
    let mut arguments = std::env::args().skip_while(|argument| argument != "--write");
    if let Some(path) = arguments.nth(1) {
        std::fs::write(path, &text).expect("a file that can be written");
    }
    let _ = std::io::stdout().write_all(text.as_bytes());
    assert!(median < LIMIT, "a plan took {median:?}, and may take {LIMIT:?}");
}
