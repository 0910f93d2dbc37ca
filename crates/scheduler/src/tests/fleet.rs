//! The fleet finds what a look at every machine finds.

use std::collections::BTreeMap;

use oxiray_ids::NodeId;
use oxiray_resources::{Grant, Ledger};
use proptest::prelude::*;

use super::strategy::{any_strategy, is, resource_request};
use super::{demand, ledger, node};
use crate::{Fleet, Found, LARGE_BYTES_MIN, Near, NodeView, Placement, ResourceRequest, Strategy as How, place};

/// What a look at every machine finds, and that the fleet finds the same.
fn both(fleet: &mut Fleet, resource_request: &ResourceRequest, near: &Near<'_>) -> Found {
    let expected = match place(&fleet.views(), resource_request, near, fleet.next_spread()) {
        Placement::On(node) => Found::On(node),
        Placement::Wait(_) => Found::Busy,
        Placement::Never(_) => Found::Never,
    };
    let next_spread = fleet.next_spread();
    let looked = fleet.look(resource_request);
    assert_eq!(fleet.next_spread(), next_spread, "a look takes nobody's turn: {resource_request:?}");
    assert_eq!(fleet.find(resource_request, near), expected, "{resource_request:?} {near:?}");
    assert_eq!(std::mem::discriminant(&looked), std::mem::discriminant(&expected), "{resource_request:?}");
    expected
}

const MACHINES: [&str; 6] = [
    "CPU 4",
    "CPU 8, memory 100",
    "CPU 4, GPU 2",
    "CPU 4, GPU 4, accelerator_type:H100 1",
    "TPU 4, CPU 2",
    "neuron_cores 2",
];
const DEMANDS: [&str; 15] = [
    "CPU 1",
    "CPU 0.5, memory 10",
    "GPU 0.4",
    "GPU 0.7",
    "GPU 1, CPU 1",
    "GPU 3",
    "TPU 4",
    "neuron_cores 0.5",
    "GPU 1, accelerator_type:H100 0.001",
    "CPU 0",
    "CPU 9",
    "disk 1",
    "node:__internal_implicit_resource_a 0.5",
    "CPU 1, node:__internal_implicit_resource_b 1",
    "node:__internal_implicit_resource_a 1.5",
];

#[derive(Debug, Clone)]
enum Event {
    Join { number: u8, kind: usize, zone: u8, rack: u8 },
    Leave(u8),
    Out { number: u8, device: u32 },
    Run { demand: usize, strategy: How, zones: Vec<u8>, home: Option<u8>, arguments: Vec<(u8, u64)> },
    End(prop::sample::Index),
}

fn event() -> impl Strategy<Value = Event> {
    let run = (
        0..DEMANDS.len(),
        any_strategy(),
        prop::collection::vec(0..3_u8, 0..3),
        prop::option::of(0..5_u8),
        prop::collection::vec((0..5_u8, 0..3 * LARGE_BYTES_MIN), 0..3),
    );
    prop_oneof![
        2 => (0..5_u8, 0..MACHINES.len(), 0..3_u8, 0..3_u8)
            .prop_map(|(number, kind, zone, rack)| Event::Join { number, kind, zone, rack }),
        1 => (0..5_u8).prop_map(Event::Leave),
        1 => (0..5_u8, 0..2_u32).prop_map(|(number, device)| Event::Out { number, device }),
        8 => run.prop_map(|(demand, strategy, zones, home, arguments)| Event::Run {
            demand, strategy, zones, home, arguments,
        }),
        2 => any::<prop::sample::Index>().prop_map(Event::End),
    ]
}

struct Machine {
    ledger: Ledger,
    labels: BTreeMap<String, String>,
    held: Vec<Grant>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever joins, leaves, breaks, runs and ends: every answer is that of a look at every machine, and what is
    /// placed is granted by the ledger of its machine.
    #[test]
    fn the_fleet_finds_what_a_look_at_every_machine_finds(events in prop::collection::vec(event(), 1..60)) {
        let mut machines: BTreeMap<NodeId, Machine> = BTreeMap::new();
        let mut fleet = Fleet::default();
        for event in events {
            match event {
                Event::Join { number, kind, zone, rack } => {
                    let labels = [("zone", zone), ("rack", rack)];
                    let labels: BTreeMap<_, _> =
                        labels.iter().map(|(key, value)| ((*key).to_owned(), value.to_string())).collect();
                    let machine = Machine { ledger: ledger(MACHINES[kind]), labels, held: Vec::new() };
                    fleet.put(&NodeView::new(node(number), &machine.ledger, machine.labels.clone()));
                    machines.insert(node(number), machine);
                }
                Event::Leave(number) => {
                    fleet.remove(node(number));
                    machines.remove(&node(number));
                }
                Event::Out { number, device } => {
                    if let Some(machine) = machines.get_mut(&node(number)) {
                        // Every other one is only not granted along with others.
                        let _ = match device % 2 {
                            0 => machine.ledger.quarantine("GPU", device, "test"),
                            _ => machine.ledger.set_single("GPU", device, true),
                        };
                        fleet.put(&NodeView::new(node(number), &machine.ledger, machine.labels.clone()));
                    }
                }
                Event::Run { demand: asked, strategy, zones, home, arguments } => {
                    let selectors = zones.iter().map(|zone| is("zone", &zone.to_string())).collect();
                    let resource_request = resource_request(DEMANDS[asked], strategy, selectors);
                    let arguments: Vec<_> = arguments.into_iter().map(|(number, bytes)| (node(number), bytes)).collect();
                    let near = Near { home: home.map(node), arguments: &arguments };
                    if let Found::On(id) = both(&mut fleet, &resource_request, &near) {
                        prop_assert!(fleet.take(id, &resource_request.demand));
                        let machine = machines.get_mut(&id).expect("a machine of ours");
                        machine.held.push(machine.ledger.grant(&resource_request.demand).expect("the ledger has what the fleet saw"));
                    }
                }
                Event::End(index) => {
                    let count = machines.len().max(1);
                    if let Some((id, machine)) = machines.iter_mut().nth(index.index(count)) {
                        if let Some(grant) = machine.held.pop() {
                            machine.ledger.release(grant);
                        }
                        fleet.put(&NodeView::new(*id, &machine.ledger, machine.labels.clone()));
                    }
                }
            }
            prop_assert_eq!(fleet.len(), machines.len());
        }
        for (id, machine) in &machines {
            let view = fleet.views().into_iter().find(|view| view.node == *id).expect("a machine of ours");
            for asked in DEMANDS {
                let fresh = NodeView::new(*id, &machine.ledger, machine.labels.clone());
                prop_assert_eq!(view.fits(&demand(asked)), fresh.fits(&demand(asked)));
            }
        }
    }
}

fn fleet(machines: &[&str]) -> Fleet {
    let mut fleet = Fleet::default();
    for (number, offer) in (1..).zip(machines) {
        fleet.put(&NodeView::new(node(number), &ledger(offer), BTreeMap::new()));
    }
    fleet
}

fn run(fleet: &mut Fleet, resource_request: &ResourceRequest, near: &Near<'_>) -> Option<u8> {
    let Found::On(id) = both(fleet, resource_request, near) else { return None };
    assert!(fleet.take(id, &resource_request.demand));
    Some(id.as_bytes()[0])
}

#[test]
fn eight_of_two_fifths_run_on_twice_two_devices() {
    let mut fleet = fleet(&["GPU 2", "GPU 2"]);
    let resource_request: ResourceRequest = demand("GPU 0.4").into();
    let placed: Vec<_> = (0..9).map(|_| run(&mut fleet, &resource_request, &Near::default())).collect();
    assert_eq!(placed, [1, 1, 1, 1, 2, 2, 2, 2].map(Some).into_iter().chain([None]).collect::<Vec<_>>());
}

#[test]
fn large_arguments_draw_what_reads_them() {
    let mut fleet = fleet(&["CPU 8", "CPU 8", "CPU 8"]);
    let resource_request: ResourceRequest = demand("CPU 1").into();
    let arguments = [(node(2), LARGE_BYTES_MIN), (node(3), LARGE_BYTES_MIN * 2), (node(1), LARGE_BYTES_MIN - 1)];
    let near = Near { home: Some(node(1)), arguments: &arguments };
    let placed: Vec<_> = (0..18).filter_map(|_| run(&mut fleet, &resource_request, &near)).collect();
    assert_eq!(placed, [[3; 8], [2; 8]].concat().into_iter().chain([1, 1]).collect::<Vec<_>>());
    let small = Near { home: None, arguments: &arguments[2..] };
    assert_eq!(run(&mut self::fleet(&["CPU 8", "CPU 8"]), &resource_request, &small), Some(1));
    let nowhere = Near { home: None, arguments: &arguments[1..2] };
    assert_eq!(run(&mut self::fleet(&["CPU 8"]), &resource_request, &nowhere), Some(1), "whoever has them is gone");
}

#[test]
fn home_is_taken_to_half_and_wins_among_equals() {
    let mut fleet = fleet(&["CPU 4", "CPU 4", "CPU 4"]);
    let resource_request: ResourceRequest = demand("CPU 1").into();
    let near = Near::home(node(2));
    let placed: Vec<_> = (0..12).filter_map(|_| run(&mut fleet, &resource_request, &near)).collect();
    assert_eq!(placed, [2, 2, 1, 1, 3, 3, 2, 1, 3, 2, 1, 3]);
}

#[test]
fn hundreds_of_machines_and_thousands_of_wishes_are_found_as_one_by_one() {
    let mut fleet = fleet(&["CPU 2, GPU 2", "CPU 2", "CPU 3"].repeat(60));
    for round in 0..5_000_u32 {
        let asked = ["CPU 1", "GPU 0.3", "CPU 0.1"][round as usize % 3];
        let spread = if round % 7 == 0 { How::Spread } else { How::Default };
        // Every request is another one, so that what is remembered is forgotten in between.
        let resource_request =
            resource_request(asked, spread, vec![is("never", &round.to_string()), crate::Selector::default()]);
        let Found::On(id) = fleet.find(&resource_request, &Near::default()) else { continue };
        if round % 50 == 0 {
            let expected = place(&fleet.views(), &resource_request, &Near::default(), 0);
            assert!(matches!(expected, Placement::On(_)));
        }
        assert!(fleet.take(id, &resource_request.demand));
    }
    assert!(fleet.views().iter().all(|view| view.fits(&demand("CPU 0.1")).is_err()));
}
