//! Where strategies and selectors lead, by hand and against a model.

use std::collections::BTreeMap;

use oxiray_ids::NodeId;
use proptest::prelude::*;

use super::{demand, ledger, node};
use crate::{
    Condition, Near, NodeView, Operator, Otherwise, Place, Placement, ResourceRequest, Selector, Strategy as How, place,
};

fn view(number: u8, offer: &str, labels: &[(&str, &str)]) -> NodeView {
    let labels: BTreeMap<_, _> = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    NodeView::new(node(number), &ledger(offer), labels)
}

pub(super) fn is(key: &str, value: &str) -> Selector {
    Selector(vec![Condition { key: key.to_owned(), operator: Operator::In(vec![value.to_owned()]) }])
}

pub(super) fn resource_request(asked: &str, strategy: How, selectors: Vec<Selector>) -> ResourceRequest {
    ResourceRequest::new(demand(asked), Place { strategy, selectors })
}

pub(super) fn affinity(number: u8, otherwise: Otherwise) -> How {
    How::Node { node: node(number), otherwise }
}

/// Places as often as asked, booking each on the view, and tells where.
fn run(views: &mut [NodeView], resource_request: &ResourceRequest, times: usize) -> Vec<u8> {
    let place_one = |turn| match place(views, resource_request, &Near::default(), turn) {
        Placement::On(id) => {
            let view = views.iter_mut().find(|view| view.node == id).expect("a machine of ours");
            assert!(view.take(&resource_request.demand), "PLACE-1");
            id.as_bytes()[0]
        }
        other => panic!("{other:?}"),
    };
    (0..times).map(place_one).collect()
}

fn refusal(views: &[NodeView], resource_request: &ResourceRequest) -> String {
    match place(views, resource_request, &Near::default(), 0) {
        Placement::On(id) => panic!("it was placed on {id:?}"),
        Placement::Wait(reason) => format!("wait: {}", reason.message("f")),
        Placement::Never(reason) => format!("never: {}", reason.message("f")),
    }
}

#[test]
fn the_preferred_machine_is_filled_to_half_and_then_the_least_used_is_taken() {
    let mut views = [view(1, "CPU 4", &[]), view(2, "CPU 4", &[])];
    assert_eq!(run(&mut views, &demand("CPU 1").into(), 8), [1, 1, 2, 2, 1, 2, 1, 2]);
}

#[test]
fn work_without_devices_keeps_off_machines_that_have_them() {
    let mut views = [view(1, "CPU 2, GPU 1", &[]), view(2, "CPU 2", &[])];
    assert_eq!(run(&mut views, &demand("CPU 1").into(), 4), [2, 2, 1, 1]);
    let mut views = [view(1, "CPU 2", &[]), view(2, "CPU 2, GPU 1", &[])];
    assert_eq!(run(&mut views, &demand("GPU 1").into(), 1), [2]);
}

#[test]
fn equals_take_turns_under_spread() {
    let mut views = [view(2, "CPU 4", &[]), view(1, "CPU 4", &[]), view(3, "CPU 4", &[])];
    assert_eq!(run(&mut views, &resource_request("CPU 0", How::Spread, vec![]), 3), [2, 1, 3]);
    let mut placed = run(&mut views, &resource_request("CPU 1", How::Spread, vec![]), 6);
    placed.sort_unstable();
    assert_eq!(placed, [1, 1, 2, 2, 3, 3]);
}

#[test]
fn an_affinity_is_for_one_machine_and_says_what_else() {
    let mut views = [view(1, "CPU 4", &[]), view(2, "CPU 1", &[])];
    for otherwise in [Otherwise::Wait, Otherwise::Fail, Otherwise::ElsewhereWhenGone, Otherwise::Elsewhere] {
        let mut fresh = views.clone();
        assert_eq!(run(&mut fresh, &resource_request("CPU 1", affinity(2, otherwise), vec![]), 1), [2]);
        let too_large = resource_request("CPU 2", affinity(2, otherwise), vec![]);
        let gone = resource_request("CPU 1", affinity(9, otherwise), vec![]);
        if matches!(otherwise, Otherwise::Wait | Otherwise::Fail) {
            let hex = node(2).hex();
            let begin = format!("never: f asks for {{CPU: 2}} on machine {hex}, but the largest machine has 1 CPU");
            assert!(refusal(&views, &too_large).starts_with(&begin));
            assert!(refusal(&views, &gone).contains("which is dead or never was in this cluster"));
        } else {
            assert_eq!((run(&mut fresh, &too_large, 1), run(&mut fresh, &gone, 1)), (vec![1], vec![1]));
        }
    }
    run(&mut views, &resource_request("CPU 1", affinity(2, Otherwise::Wait), vec![]), 1);
    let busy = |otherwise| refusal(&views, &resource_request("CPU 1", affinity(2, otherwise), vec![]));
    assert!(busy(Otherwise::Wait).starts_with("wait:") && busy(Otherwise::ElsewhereWhenGone).starts_with("wait:"));
    assert!(busy(Otherwise::Fail).contains("which is busy: 1 CPU asked for, 0 of 1 free"));
    assert_eq!(run(&mut views, &resource_request("CPU 1", affinity(2, Otherwise::Elsewhere), vec![]), 1), [1]);
}

#[test]
fn labels_narrow_and_prefer() {
    let views = [
        view(1, "CPU 1", &[("zone", "a")]),
        view(2, "CPU 1", &[("zone", "b")]),
        view(3, "CPU 1", &[("zone", "b"), ("disk", "ssd")]),
    ];
    let strategy = How::Labels { hard: is("zone", "b"), soft: is("disk", "ssd") };
    assert_eq!(run(&mut views.clone(), &resource_request("CPU 1", strategy, vec![]), 2), [3, 2]);
    let nowhere = How::Labels { hard: is("zone", "c"), soft: Selector::default() };
    let text = refusal(&views, &resource_request("CPU 1", nowhere, vec![]));
    assert!(text.contains("where `zone` in (c), but no machine has such labels"), "{text}");
    assert!(text.contains(&format!("on {} `zone` is `a`", node(1).hex())), "{text}");
}

#[test]
fn selectors_are_tried_in_order() {
    let mut views = [view(1, "CPU 1", &[("zone", "a")]), view(2, "CPU 1", &[])];
    let missing = Selector(vec![Condition { key: "zone".into(), operator: Operator::Missing }]);
    let either = resource_request("CPU 1", How::Default, vec![is("zone", "x"), missing, is("zone", "a")]);
    assert_eq!(run(&mut views, &either, 2), [2, 1]);
    assert!(refusal(&views, &either).starts_with("wait: f waits for {CPU: 1} where `zone` does not exist"));
}

#[test]
fn conditions_hold_as_they_read() {
    let labels: BTreeMap<_, _> = [("zone".to_owned(), "a".to_owned())].into();
    let holds = |key: &str, operator| Condition { key: key.to_owned(), operator }.holds(&labels);
    let values = || vec!["a".to_owned(), "b".to_owned()];
    assert!(holds("zone", Operator::In(values())) && !holds("rack", Operator::In(values())));
    assert!(!holds("zone", Operator::NotIn(values())) && holds("rack", Operator::NotIn(values())));
    assert!(holds("zone", Operator::Exists) && !holds("rack", Operator::Exists));
    assert!(!holds("zone", Operator::Missing) && holds("rack", Operator::Missing));
}

pub(super) fn any_strategy() -> impl proptest::strategy::Strategy<Value = How> {
    let otherwise = prop_oneof![
        Just(Otherwise::Wait),
        Just(Otherwise::Fail),
        Just(Otherwise::ElsewhereWhenGone),
        Just(Otherwise::Elsewhere)
    ];
    prop_oneof![
        Just(How::Default),
        Just(How::Spread),
        (0..5_u8, otherwise).prop_map(|(number, otherwise)| affinity(number, otherwise)),
        (0..3_u8, 0..3_u8).prop_map(|(hard, soft)| How::Labels {
            hard: is("zone", &hard.to_string()),
            soft: is("rack", &soft.to_string()),
        }),
    ]
}

/// The machines that a strategy may ever use, whatever is free.
fn allowed(views: &[NodeView], resource_request: &ResourceRequest) -> Vec<NodeId> {
    let place = resource_request.place.as_deref().cloned().unwrap_or_default();
    let could = |view: &&NodeView| view.inventory.could_ever(&resource_request.demand).is_ok();
    let matches = |view: &&NodeView| {
        place.selectors.is_empty() || place.selectors.iter().any(|selector| selector.matches(&view.labels))
    };
    let strategy = |view: &&NodeView| match &place.strategy {
        How::Node { node, otherwise: Otherwise::Wait | Otherwise::Fail } => view.node == *node,
        How::Labels { hard, .. } => hard.matches(&view.labels),
        _ => true,
    };
    views.iter().filter(could).filter(matches).filter(strategy).map(|view| view.node).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_place_is_allowed_and_has_room_and_never_is_final(
        machines in prop::collection::vec((1..4_u32, 0..3_u32, 0..3_u8, 0..3_u8), 0..5),
        taken in prop::collection::vec((0..3_u32, 0..2_u32), 5),
        (cpus, gpus) in (0..4_u32, 0..3_u32),
        strategy in any_strategy(),
        zones in prop::collection::vec(0..3_u8, 0..3),
        turn in 0..7_usize,
    ) {
        let mut views: Vec<NodeView> = machines.iter().zip(0..).map(|((cpu, gpu, zone, rack), number)| {
            let labels = [("zone", zone.to_string()), ("rack", rack.to_string())];
            let labels: Vec<_> = labels.iter().map(|(key, value)| (*key, value.as_str())).collect();
            view(number, &format!("CPU {cpu}, GPU {gpu}"), &labels)
        }).collect();
        for (view, (cpu, gpu)) in views.iter_mut().zip(taken) {
            view.take(&demand(&format!("CPU {cpu}, GPU {gpu}")));
        }
        let selectors = zones.iter().map(|zone| is("zone", &zone.to_string())).collect();
        let resource_request = resource_request(&format!("CPU {cpus}, GPU {gpus}"), strategy.clone(), selectors);
        let allowed = allowed(&views, &resource_request);
        let roomy = views.iter().filter(|view| allowed.contains(&view.node) && view.fits(&resource_request.demand).is_ok()).count();
        let is_choosy = matches!(strategy, How::Node { .. });
        match place(&views, &resource_request, &Near::default(), turn) {
            Placement::On(id) => {
                prop_assert!(allowed.contains(&id));
                let chosen = views.iter().find(|view| view.node == id).expect("a machine of ours");
                prop_assert!(chosen.fits(&resource_request.demand).is_ok());
            }
            Placement::Wait(_) => prop_assert!(!allowed.is_empty() && (roomy == 0 || is_choosy)),
            Placement::Never(_) => {
                let fails_when_busy = matches!(strategy, How::Node { otherwise: Otherwise::Fail, .. });
                prop_assert!(allowed.is_empty() || fails_when_busy);
            }
        }
    }

    #[test]
    fn booking_a_view_is_what_its_ledger_does(
        asked in prop::collection::vec((0..=20_000_u64, prop_oneof![0..=10_000_u64, (1..=3_u64).prop_map(|n| n * 10_000)]), 1..12),
    ) {
        let mut ledger = ledger("CPU 4, GPU 3");
        let mut booked = NodeView::new(node(1), &ledger, BTreeMap::new());
        for (cpu, gpu) in asked {
            let demand = demand(&format!("CPU {}, GPU {}", cpu as f64 / 1e4, gpu as f64 / 1e4));
            prop_assert_eq!(ledger.grant(&demand).map(std::mem::forget).is_ok(), booked.take(&demand));
            let mut fresh = NodeView::new(node(1), &ledger, BTreeMap::new());
            // A ledger leaves out what is used up, and a view keeps it at zero.
            fresh.free.retain(|_, free| !free.is_zero());
            booked.free.retain(|_, free| !free.is_zero());
            prop_assert_eq!(&fresh, &booked);
        }
    }
}
