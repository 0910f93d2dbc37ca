//! Which rule each machine fails first.

use std::collections::BTreeMap;

use super::strategy::{affinity, is, resource_request};
use super::{demand, ledger, node};
use crate::{
    Bundle, Group, GroupStrategy, NodeView, Otherwise, ResourceRequest, Selector, Strategy as How, Verdict,
    group_verdicts, verdicts,
};

fn views() -> Vec<NodeView> {
    let zone = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
    let mut half_used = ledger("CPU 4, GPU 2");
    for _ in 0..2 {
        std::mem::forget(half_used.grant(&demand("GPU 0.8")).unwrap());
    }
    half_used.quarantine("GPU", 1, "test").unwrap();
    vec![
        NodeView::new(node(1), &ledger("CPU 4"), zone("a")),
        NodeView::new(node(2), &half_used, zone("a")),
        NodeView::new(node(3), &ledger("CPU 4, GPU 2"), zone("b")),
    ]
}

fn shown(verdicts: Vec<Verdict>) -> Vec<String> {
    let show = |verdict: Verdict| match verdict.failed {
        Some((rule, text)) => format!("{}: {text}", rule.name()),
        None => "room".to_owned(),
    };
    verdicts.into_iter().map(show).collect()
}

#[test]
fn each_machine_tells_the_first_rule_that_fails() {
    let share: ResourceRequest = demand("GPU 0.4").into();
    assert_eq!(
        shown(verdicts(&views(), &share)),
        [
            "missing: it has no GPU, and 0.4 is asked for",
            "busy: 0.4 of one GPU asked for, the freest of 2 has 0.2 left, 1 out of service (GPU 0: 0.2 free, GPU 1: out \
             of service)",
            "room",
        ]
    );
    let in_a = resource_request("GPU 3", How::Default, vec![is("zone", "a")]);
    assert_eq!(
        shown(verdicts(&views(), &in_a))[1..],
        ["too_small: it has 2 GPU, and 3 is asked for", "labels: `zone` in (a) is asked for, and it is `b`"]
    );
    let here = resource_request("CPU 1", affinity(3, Otherwise::Wait), vec![]);
    let told = shown(verdicts(&views(), &here));
    assert!(told[0].starts_with("affinity: only machine 0303") && told[2] == "room", "{told:?}");
    let labelled = resource_request("CPU 1", How::Labels { hard: is("rack", "x"), soft: Selector::default() }, vec![]);
    assert_eq!(
        shown(verdicts(&views(), &labelled))[0],
        "labels: `rack` in (x) is asked for, and there is no such label"
    );
}

#[test]
fn bundles_are_asked_for_one_by_one_and_then_together() {
    let bundle = |asked: &str| Bundle { demand: demand(asked), selector: Selector::default() };
    let group = |strategy, bundles| Group { strategy, bundles, preferred: None, domain: None };
    let spread = group(GroupStrategy::StrictSpread, vec![bundle("CPU 1"), bundle("GPU 1")]);
    let told = shown(group_verdicts(&views(), &spread));
    assert_eq!(told[0], "missing: bundle 1, {GPU: 1}: it has no GPU, and 1 is asked for");
    assert_eq!(told[2], "room");
    let busy_first = group(GroupStrategy::Pack, vec![bundle("GPU 0.4"), bundle("CPU 9")]);
    let told = shown(group_verdicts(&views(), &busy_first));
    assert_eq!(told[1], "too_small: bundle 1, {CPU: 9}: it has 4 CPU, and 9 is asked for", "no time will help that");
    let packed = group(GroupStrategy::StrictPack, vec![bundle("GPU 0.8"), bundle("GPU 0.8"), bundle("GPU 0.4")]);
    assert_eq!(
        shown(group_verdicts(&views(), &packed))[2],
        "together: the bundles together ask for 2 GPU, and 2 are free"
    );
}
