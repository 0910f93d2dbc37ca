//! Placement groups on several machines, against every way there is.

use std::collections::{BTreeMap, BTreeSet};

use oxiray_ids::NodeId;
use oxiray_resources::Ledger;
use proptest::prelude::*;

use super::{demand, ledger, node};
use crate::{
    BUNDLES_MAX, Bundle, Condition, Fleet, Group, GroupPlacement, GroupStrategy, NodeView, Operator, Selector,
    place_group,
};

const STRATEGIES: [GroupStrategy; 4] =
    [GroupStrategy::Pack, GroupStrategy::Spread, GroupStrategy::StrictPack, GroupStrategy::StrictSpread];

fn group(strategy: GroupStrategy, bundles: &[&str]) -> Group {
    let bundle = |text: &&str| Bundle { demand: demand(text), selector: Selector::default() };
    Group { strategy, bundles: bundles.iter().map(bundle).collect(), preferred: None, domain: None }
}

fn zone(name: &str) -> Selector {
    Selector(vec![Condition { key: "zone".into(), operator: Operator::In(vec![name.into()]) }])
}

fn view(number: u8, ledger: &Ledger) -> NodeView {
    let zone = if number.is_multiple_of(2) { "even" } else { "odd" };
    NodeView::new(node(number), ledger, BTreeMap::from([("zone".to_owned(), zone.to_owned())]))
}

fn views(machines: &[&str]) -> Vec<NodeView> {
    machines.iter().zip(0..).map(|(text, number)| view(number, &ledger(text))).collect()
}

/// The machines by number, or the reason.
fn placed(machines: &[NodeView], group: &Group) -> Result<Vec<u8>, String> {
    match place_group(machines, group) {
        GroupPlacement::On(nodes) => Ok(nodes.iter().map(|node| node.as_bytes()[0]).collect()),
        GroupPlacement::Wait(reason) => Err(format!("wait: {}", reason.message(false))),
        GroupPlacement::Never(reason) => Err(format!("never: {}", reason.message(true))),
    }
}

#[test]
fn each_strategy_spreads_as_it_says() {
    let machines = views(&["CPU 4, GPU 2", "CPU 4, GPU 2", "CPU 4"]);
    let two = ["CPU 1, GPU 1", "CPU 1, GPU 1"];
    assert_eq!(placed(&machines, &group(GroupStrategy::Pack, &two)), Ok(vec![0, 0]));
    assert_eq!(placed(&machines, &group(GroupStrategy::Spread, &two)), Ok(vec![0, 1]));
    assert_eq!(placed(&machines, &group(GroupStrategy::StrictPack, &two)), Ok(vec![0, 0]));
    assert_eq!(placed(&machines, &group(GroupStrategy::StrictSpread, &two)), Ok(vec![0, 1]));
    let four = ["GPU 1", "GPU 1", "GPU 1", "GPU 1"];
    assert_eq!(placed(&machines, &group(GroupStrategy::Pack, &four)), Ok(vec![0, 0, 1, 1]));
    assert_eq!(placed(&machines, &group(GroupStrategy::Spread, &four)), Ok(vec![0, 1, 0, 1]));
    let pushed = ["CPU 1", "CPU 1, GPU 1", "GPU 2"];
    let own = placed(&machines, &group(GroupStrategy::StrictSpread, &pushed)).unwrap();
    assert_eq!(own[0], 2, "the bundle without a GPU leaves the machines that have some: {own:?}");
    let preferred = Group { preferred: Some(node(1)), ..group(GroupStrategy::StrictPack, &two) };
    assert_eq!(placed(&machines, &preferred), Ok(vec![1, 1]));
}

#[test]
fn labels_are_minded_for_each_bundle() {
    let machines = views(&["CPU 4", "CPU 4"]);
    let mut wanted = group(GroupStrategy::Pack, &["CPU 1", "CPU 1"]);
    wanted.bundles[1].selector = zone("odd");
    assert_eq!(placed(&machines, &wanted), Ok(vec![1, 1]));
    wanted.bundles[0].selector = zone("even");
    assert_eq!(placed(&machines, &wanted), Ok(vec![0, 1]));
    wanted.bundles[0].selector = zone("none");
    let reason = placed(&machines, &wanted).unwrap_err();
    assert!(
        reason.starts_with("never: bundle 0 asks for {CPU: 1} where `zone` in (none), but no machine has"),
        "{reason}"
    );
}

#[test]
fn a_group_that_waits_or_never_fits_is_told_which_bundle() {
    let mut busy = ledger("CPU 4, GPU 4");
    let _held = busy.grant(&demand("GPU 3")).unwrap();
    let here = [view(0, &busy)];
    let pack = |bundles: &[&str]| placed(&here, &group(GroupStrategy::Pack, bundles)).unwrap_err();
    assert_eq!(pack(&["CPU 1", "GPU 2"]), "wait: bundle 1 waits for {GPU: 2}: 2 GPU asked for, 1 of 4 wholly free");
    assert_eq!(
        pack(&["GPU 1", "GPU 1"]),
        "wait: bundle 1, {GPU: 1}, finds no room beside the bundles before it: together they ask for 2 GPU of one \
         machine, and 1 of 4 are free"
    );
    assert_eq!(
        pack(&["CPU 1", "GPU 5"]),
        "never: bundle 1 asks for {GPU: 5}, but the largest machine has 4 GPU; lower num_gpus, or start the cluster with \
         more: init(num_gpus=5) or `oxiray start --num-gpus=5`"
    );
    assert_eq!(
        pack(&["CPU 2", "CPU 2", "CPU 1"]),
        "never: bundle 2, {CPU: 1}, finds no room beside the bundles before it: together they ask for 5 CPU of one \
         machine, and the machine has 4; ask for less, or start the cluster with more"
    );
    assert_eq!(
        placed(&here, &group(GroupStrategy::StrictSpread, &["CPU 1", "CPU 1"])).unwrap_err(),
        "never: STRICT_SPREAD wants a machine of its own for each of the 2 bundles, {CPU: 1}, and there is 1 machine; use \
         SPREAD, or start more such machines"
    );
}

#[test]
fn a_group_that_spreads_strictly_is_told_for_which_bundles_machines_lack() {
    let machines = views(&["CPU 4", "CPU 4, GPU 1", "CPU 4, GPU 1"]);
    let told = |bundles: &[&str]| placed(&machines, &group(GroupStrategy::StrictSpread, bundles)).unwrap_err();
    assert_eq!(
        told(&["GPU 1", "GPU 1", "GPU 1"]),
        "never: STRICT_SPREAD wants a machine of its own for each of the 3 bundles, {GPU: 1}, and 2 of 3 machines have \
         room for it; start more such machines"
    );
    assert_eq!(
        told(&["CPU 1", "GPU 0.2", "GPU 0.2", "GPU 0.2"]),
        "never: STRICT_SPREAD wants a machine of its own for each of the 4 bundles: 3 bundles ask for {GPU: 0.2}, and 2 of \
         3 machines have room for it; use SPREAD, or start more such machines"
    );
    assert_eq!(
        told(&["CPU 1", "CPU 1", "GPU 1", "GPU 1"]),
        "never: STRICT_SPREAD wants a machine of its own for each of the 4 bundles, and there are 3 machines; use SPREAD, \
         or start more such machines"
    );
    let mut busy = ledger("GPU 1");
    let _held = busy.grant(&demand("GPU 1")).unwrap();
    let views = [view(0, &ledger("GPU 1")), view(1, &busy)];
    assert_eq!(
        placed(&views, &group(GroupStrategy::StrictSpread, &["GPU 1", "GPU 1"])).unwrap_err(),
        "wait: STRICT_SPREAD wants a machine of its own for each of the 2 bundles, {GPU: 1}, and 1 of 2 machines now has \
         room for it"
    );
}

#[test]
fn shares_are_counted_by_device_and_not_by_sum() {
    let mut machine = ledger("GPU 2");
    let _one = machine.grant(&demand("GPU 0.8")).unwrap();
    let _two = machine.grant(&demand("GPU 0.8")).unwrap();
    let reason =
        placed(&[view(0, &machine)], &group(GroupStrategy::Pack, &["GPU 0.2", "GPU 0.1", "GPU 0.1", "GPU 0.1"]));
    assert!(reason.unwrap_err().starts_with("wait: bundle 3, {GPU: 0.1}, finds no room"), "0.5 of 0.4");
    let reason = placed(&[view(0, &machine)], &group(GroupStrategy::Pack, &["GPU 0.15", "GPU 0.15", "GPU 0.1"]));
    assert!(reason.unwrap_err().ends_with("are free, though not in one piece for each"), "0.4 of 0.4");
}

#[test]
fn as_many_bundles_as_there_may_be_fill_many_machines() {
    let machines: Vec<String> =
        (0..200).map(|number| format!("CPU 64, GPU {}", if number % 2 == 0 { 8 } else { 16 })).collect();
    let mut fleet = Fleet::default();
    let views: Vec<NodeView> = machines.iter().zip(0..).map(|(text, number)| view(number, &ledger(text))).collect();
    for view in &views {
        fleet.put(view);
    }
    let kinds = ["GPU 1, CPU 2", "GPU 2, CPU 1", "CPU 3", "GPU 0.6"];
    let bundles: Vec<&str> = (0..BUNDLES_MAX).map(|bundle| kinds[bundle % kinds.len()]).collect();
    for strategy in [GroupStrategy::Pack, GroupStrategy::Spread] {
        let found = fleet.find_group(&group(strategy, &bundles), &[]).expect("there is room for all");
        let used: BTreeSet<NodeId> = found.iter().copied().collect();
        match strategy {
            GroupStrategy::Pack => assert!(used.len() <= 100, "1,078 of 2,400 GPUs, on {} machines", used.len()),
            _ => assert_eq!(used.len(), 200),
        }
        for view in &views {
            let own = found.iter().zip(&bundles).filter(|(on, _)| **on == view.node);
            let demands: Vec<_> = own.map(|(_, bundle)| demand(bundle)).collect();
            assert_eq!(view.fits_together(&demands.iter().collect::<Vec<_>>()), Ok(()), "GROUP-1");
        }
    }
    let strict = group(GroupStrategy::StrictSpread, &bundles);
    assert_eq!(fleet.find_group(&strict, &[]), None);
    assert!(!fleet.could_ever_place(&strict), "200 machines for 1,024 bundles");
    let too_much = group(GroupStrategy::Pack, &["GPU 3"; BUNDLES_MAX]);
    assert!(!fleet.could_ever_place(&too_much), "3,072 of 2,400 GPUs");
    assert!(fleet.could_ever_place(&group(GroupStrategy::Pack, &["GPU 2"; BUNDLES_MAX])));
}

fn bundle() -> impl Strategy<Value = Bundle> {
    let gpu = prop_oneof![Just("0"), Just("0.3"), Just("0.5"), Just("0.7"), Just("1"), Just("2")];
    let selector = prop_oneof![4 => Just(Selector::default()), 1 => Just(zone("odd"))];
    (0..3_u32, gpu, selector)
        .prop_map(|(cpu, gpu, selector)| Bundle { demand: demand(&format!("CPU {cpu}, GPU {gpu}")), selector })
}

fn machine() -> impl Strategy<Value = Ledger> {
    let taken = prop_oneof![Just("GPU 0"), Just("GPU 0.5"), Just("GPU 1"), Just("CPU 1"), Just("GPU 0.3")];
    (1..4_u32, 0..3_u32, taken).prop_map(|(cpu, gpu, taken)| {
        let mut ledger = ledger(&format!("CPU {cpu}, GPU {gpu}"));
        // Held for good.
        drop(ledger.grant(&demand(taken)));
        ledger
    })
}

/// Every way of giving the bundles to the machines, one after the other.
fn ways(machines: usize, bundles: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..machines.pow(bundles as u32)).map(move |mut number| {
        let mut way = Vec::new();
        for _ in 0..bundles {
            way.push(number % machines.max(1));
            number /= machines.max(1);
        }
        way
    })
}

fn is_good(views: &[NodeView], group: &Group, way: &[usize]) -> bool {
    let used: BTreeSet<usize> = way.iter().copied().collect();
    let keeps_strategy = match group.strategy {
        GroupStrategy::StrictPack => used.len() == 1,
        GroupStrategy::StrictSpread => used.len() == way.len(),
        GroupStrategy::Pack | GroupStrategy::Spread => true,
    };
    let fits = |(machine, view): (usize, &NodeView)| {
        let own: Vec<&Bundle> =
            way.iter().zip(&group.bundles).filter(|(on, _)| **on == machine).map(|(_, bundle)| bundle).collect();
        let demands: Vec<_> = own.iter().map(|bundle| &bundle.demand).collect();
        own.iter().all(|bundle| bundle.selector.matches(&view.labels)) && view.fits_together(&demands).is_ok()
    };
    keeps_strategy && views.iter().enumerate().all(fits)
}

#[test]
fn a_domain_holds_the_whole_group_and_the_smallest_that_can_is_taken() {
    let labelled = |number: u8, value: Option<&str>| {
        let labels = value.map(|value| ("ray.io/gpu-domain".to_owned(), value.to_owned())).into_iter().collect();
        NodeView::new(node(number), &ledger("GPU 4"), labels)
    };
    let machines = [
        labelled(0, None),
        labelled(1, Some("large")),
        labelled(2, Some("large")),
        labelled(3, Some("small")),
        labelled(4, Some("large")),
        labelled(5, Some("small")),
    ];
    let with = |strategy, bundles: &[&str]| {
        let domain = Some("ray.io/gpu-domain".to_owned());
        Group { domain, ..group(strategy, bundles) }
    };
    let of = |count: usize| vec!["GPU 4"; count];
    assert_eq!(placed(&machines, &with(GroupStrategy::Pack, &of(2))), Ok(vec![3, 5]));
    assert_eq!(placed(&machines, &with(GroupStrategy::StrictSpread, &of(3))), Ok(vec![1, 2, 4]));
    assert_eq!(placed(&machines, &with(GroupStrategy::StrictPack, &["GPU 2", "GPU 2"])), Ok(vec![3, 3]));
    let reason = placed(&machines, &with(GroupStrategy::Pack, &of(4))).unwrap_err();
    assert!(
        reason.starts_with("never: all bundles are to be on machines with one value of `ray.io/gpu-domain`"),
        "{reason}"
    );
    assert!(
        reason.contains("`large` has 3 machines, `small` has 2 machines; 1 without that label do not count"),
        "{reason}"
    );
    let elsewhere = Group { domain: Some("rack".to_owned()), ..group(GroupStrategy::Pack, &of(1)) };
    let reason = placed(&machines, &elsewhere).unwrap_err();
    assert!(reason.contains("no machine has the label `rack`"), "{reason}");
    let mut fleet = Fleet::default();
    for view in &machines {
        fleet.put(view);
    }
    let one = with(GroupStrategy::Pack, &of(1));
    assert_eq!(fleet.find_group(&one, &[node(4)]), Some(vec![node(4)]), "where the others stand");
    let apart = with(GroupStrategy::StrictSpread, &of(2));
    assert_eq!(fleet.find_group(&apart, &[node(4)]), Some(vec![node(1), node(2)]));
    assert_eq!(fleet.find_group(&apart, &[node(3)]), None, "the other of its domain is one too few");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Bundles that lost their machine go beside those that stand, whatever changed on the machines meanwhile; a look at
    /// every way finds one exactly where the fleet does.
    #[test]
    fn a_way_beside_those_that_stand_is_found_where_there_is_one(
        machines in prop::collection::vec(machine(), 1..4),
        changed in machine(),
        bundles in prop::collection::vec(bundle(), 1..4),
        standing in prop::collection::vec(0..4_u8, 0..3),
        strategy in prop::sample::select(&STRATEGIES[..]),
        domain in prop::option::of(Just("zone".to_owned())),
    ) {
        let group = Group { strategy, bundles, preferred: None, domain };
        let mut views: Vec<NodeView> = machines.iter().zip(0..).map(|(ledger, number)| view(number, ledger)).collect();
        let stands: BTreeSet<usize> = standing.iter().map(|number| usize::from(*number)).collect();
        let standing: Vec<NodeId> = standing.into_iter().map(node).collect();
        let mut fleet = Fleet::default();
        for view in &views {
            fleet.put(view);
        }
        for _ in 0..2 {
            let is_allowed = |way: &[usize]| match strategy {
                GroupStrategy::StrictSpread => way.iter().all(|machine| !stands.contains(machine)),
                GroupStrategy::StrictPack => stands.is_empty() || way.iter().all(|machine| stands.contains(machine)),
                GroupStrategy::Pack | GroupStrategy::Spread => true,
            };
            let known = stands.iter().copied().filter(|machine| *machine < views.len());
            let zones = |way: &[usize]| known.clone().chain(way.iter().copied()).map(|on| on % 2).collect::<BTreeSet<_>>();
            let is_together = |way: &[usize]| group.domain.is_none() || zones(way).len() == 1;
            let is_way = |way: &Vec<usize>| is_allowed(way) && is_together(way) && is_good(&views, &group, way);
            let mut all = ways(views.len(), group.bundles.len());
            match fleet.find_group(&group, &standing) {
                Some(nodes) => {
                    let way: Vec<usize> = nodes.iter().map(|node| usize::from(node.as_bytes()[0])).collect();
                    prop_assert!(is_way(&way), "{way:?}");
                    if strategy == GroupStrategy::Pack && stands.len() == 1 && all.any(|way| is_way(&way) && way.iter().all(|on| stands.contains(on))) {
                        prop_assert!(way.iter().all(|machine| stands.contains(machine)), "drawn to where the others are");
                    }
                }
                None => prop_assert!(!all.any(|way| is_way(&way)), "there is a way"),
            }
            views[0] = view(0, &changed);
            fleet.put(&views[0]);
        }
    }

    #[test]
    fn a_way_is_found_where_there_is_one(
        machines in prop::collection::vec(machine(), 1..4),
        bundles in prop::collection::vec(bundle(), 1..5),
        strategy in prop::sample::select(&STRATEGIES[..]),
    ) {
        let mut ledgers = machines;
        let views: Vec<NodeView> = ledgers.iter().zip(0..).map(|(ledger, number)| view(number, ledger)).collect();
        let group = Group { strategy, bundles, preferred: None, domain: None };
        let count = |node: &NodeId| usize::from(node.as_bytes()[0]);
        let good = |views: &[NodeView]| ways(views.len(), group.bundles.len()).any(|way| is_good(views, &group, &way));
        match place_group(&views, &group) {
            GroupPlacement::On(nodes) => {
                let way: Vec<usize> = nodes.iter().map(count).collect();
                prop_assert!(is_good(&views, &group, &way), "GROUP-1");
                let with = |strategy| Group { strategy, ..group.clone() };
                let (packs, spreads) = (with(GroupStrategy::StrictPack), with(GroupStrategy::StrictSpread));
                let all = || ways(views.len(), way.len());
                if strategy == GroupStrategy::Pack && all().any(|way| is_good(&views, &packs, &way)) {
                    prop_assert!(is_good(&views, &packs, &way), "GROUP-2");
                }
                if strategy == GroupStrategy::Spread && all().any(|way| is_good(&views, &spreads, &way)) {
                    prop_assert!(is_good(&views, &spreads, &way), "GROUP-2");
                }
                for (machine, ledger) in ledgers.iter_mut().enumerate() {
                    let own = way.iter().zip(&group.bundles).filter(|(on, _)| **on == machine);
                    let demands: Vec<_> = own.map(|(_, bundle)| bundle.demand.clone()).collect();
                    prop_assert!(ledger.reserve(&demands).is_some(), "the machine's ledger agrees");
                    ledger.audit();
                }
            }
            GroupPlacement::Wait(_) => {
                prop_assert!(!good(&views), "there is a way");
                let emptied: Vec<NodeView> = views.iter().map(NodeView::emptied).collect();
                prop_assert!(good(&emptied), "waiting is of no use");
            }
            GroupPlacement::Never(_) => {
                let emptied: Vec<NodeView> = views.iter().map(NodeView::emptied).collect();
                prop_assert!(!good(&emptied), "GROUP-3");
            }
        }
    }
}
