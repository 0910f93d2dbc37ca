use super::*;
use oxiray_accelerators::{Detected, Detection, Device, NodeNumber, environment, offer};
use oxiray_families::families_of;
use std::collections::BTreeMap;

const ALL: [Mechanism; 3] = Mechanism::ALL;

/// Variables of a worker's own.
type Own<'a> = &'a [(&'a str, &'a str)];

/// A machine with so many GPUs of a vendor, of which the node of each has its number.
fn machine(vendor: &str, count: u32, listed: Option<&str>) -> Offer {
    let family = families_of("GPU").find(|family| family.key == vendor).expect("a vendor of GPUs");
    let device = |index: u32| Device {
        index: index as usize,
        uuid: Some(format!("GPU-{index}{index}")),
        nodes: vec![DeviceNode {
            path: format!("/dev/gpu{index}"),
            number: Some(NodeNumber { major: 195, minor: index }),
        }],
        ..Device::default()
    };
    let families = Detected::of_devices(family, (0..count).map(device).collect(), "made up").into_iter().collect();
    let detection = Detection { families, warnings: Vec::new(), ruled_out: Vec::new() };
    let variable = |name: &str| listed.filter(|_| name == family.visibility.variables[0]).map(str::to_owned);
    offer(&detection, &variable, &BTreeMap::new()).expect("what was found is offered")
}

fn plan(asked: Isolation, mechanisms: &[Mechanism]) -> IsolationPlan {
    IsolationPlan {
        asked,
        mechanisms: mechanisms.to_vec(),
        why: "nothing works".into(),
        root: PathBuf::from("/host"),
        ..IsolationPlan::default()
    }
}

fn with_own<R>(own: Own<'_>, look: impl FnOnce(WorkerEnvironment<'_>) -> R) -> R {
    let own = |name: &str| own.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
    look(WorkerEnvironment { node: &|_| None, own: &own, realm: &[] })
}

fn decide(plan: &IsolationPlan, offer: &Offer, granted: &[u32], realm: &[u32]) -> Result<Decision, Refusal> {
    asked_to(AskedIsolation::Unsaid, plan, offer, (granted, realm))
}

fn asked_to(
    request: AskedIsolation,
    plan: &IsolationPlan,
    offer: &Offer,
    (granted, realm): (&[u32], &[u32]),
) -> Result<Decision, Refusal> {
    let slots = |slots: &[u32]| if slots.is_empty() { Vec::new() } else { vec![("GPU", slots.to_vec())] };
    with_own(&[], |around| plan.decide(request, offer, (&slots(granted), &slots(realm)), around))
}

fn denied(decision: &Decision) -> Vec<u32> {
    let fence = decision.fence.as_ref().expect("it is fenced");
    fence.denied.iter().map(|number| number.minor).collect()
}

#[test]
fn a_fence_refuses_all_but_the_realm() {
    let offer = machine("nvidia", 4, None);
    let decision = decide(&plan(Isolation::Fence, &ALL), &offer, &[2], &[2]).expect("it can be fenced");
    assert_eq!((decision.told.tier, denied(&decision)), (DeviceTier::Cgroup, vec![0, 1, 3]));
    let list = decision.by_cgroup.as_ref().expect("its cgroup refuses");
    assert_eq!(list.rules().len(), 3);
    // A placement group has all its devices in common.
    let decision = decide(&plan(Isolation::Fence, &ALL), &offer, &[2], &[0, 2]).expect("it can be fenced");
    assert_eq!(denied(&decision), [1, 3]);
}

#[test]
fn devices_that_are_not_offered_are_refused_too() {
    let offer = machine("nvidia", 4, Some("3,GPU-11"));
    let decision = decide(&plan(Isolation::Fence, &ALL), &offer, &[0], &[0]).expect("it can be fenced");
    assert_eq!(denied(&decision), [0, 1, 2], "slot 0 is device 3");
    let decision = decide(&plan(Isolation::Fence, &ALL), &offer, &[1], &[1]).expect("it can be fenced");
    assert_eq!(denied(&decision), [0, 2, 3], "slot 1 is device 1");
}

#[test]
fn the_strongest_mechanism_that_the_library_bears_is_used() {
    let nvidia = machine("nvidia", 2, None);
    let fenced = |offer: &Offer, mechanisms: &[Mechanism]| {
        decide(&plan(Isolation::Fence, mechanisms), offer, &[0], &[0]).expect("a fence is not required")
    };
    let decision = fenced(&nvidia, &[Mechanism::Landlock]);
    let fence = decision.fence.as_ref().expect("it is fenced");
    assert_eq!((decision.told.tier, &decision.by_cgroup), (DeviceTier::Landlock, &None));
    assert_eq!(fence.paths, ["/host/dev/gpu1"], "the worker refuses it to itself");
    assert_eq!(fenced(&nvidia, &[Mechanism::Cgroup1, Mechanism::Landlock]).told.tier, DeviceTier::Cgroup1);
    let amd = fenced(&machine("amd", 2, None), &[Mechanism::Landlock]);
    assert!(amd.fence.is_none() && amd.told.reason.contains("fail where Landlock refuses"), "{:?}", amd.told);
    let none = fenced(&nvidia, &[]);
    assert_eq!((none.told.tier, none.told.reason.as_str()), (DeviceTier::Watched, "nothing works"));
}

#[test]
fn a_tier_is_never_more_than_what_is_known() {
    let decided = |asked, offer: &Offer, own: Own<'_>| {
        with_own(own, |around| {
            let own = vec![("GPU", vec![0])];
            plan(asked, &ALL).decide(AskedIsolation::Unsaid, offer, (&own, &own), around)
        })
    };
    let known = machine("nvidia", 2, None);
    let mut unknown = known.clone();
    unknown.devices[0].slots[0] = None;
    let mut unnumbered = known.clone();
    unnumbered.device_nodes[1].number = None;
    let opted_out = [("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "1")];
    let listed = [("CUDA_VISIBLE_DEVICES", "1")];
    let (nothing, watched) = (DeviceTier::Variable, DeviceTier::Watched);
    let cases: [(&Offer, Own<'_>, &str, DeviceTier); 4] = [
        (&unknown, &[], "it is not known which device nodes GPU 0 has", nothing),
        (&unnumbered, &[], "the device number of /dev/gpu1 is not known", nothing),
        (&known, &opted_out, "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES in its environment", watched),
        (&known, &listed, "CUDA_VISIBLE_DEVICES in its environment", watched),
    ];
    for (offer, own, why, tier) in cases {
        let decision = decided(Isolation::Fence, offer, own).expect("a fence is not required");
        assert!(decision.fence.is_none() && decision.by_cgroup.is_none());
        assert_eq!(decision.told.tier, tier);
        assert!(decision.told.reason.contains(why), "{:?}", decision.told);
        let refusal = decided(Isolation::Require, offer, own).expect_err("it is required");
        assert!(
            matches!(&refusal, Refusal::Unfenced { is_own_wish: false, why: told } if told.contains(why)),
            "{refusal:?}"
        );
        assert_eq!(
            decided(Isolation::Variable, offer, own).expect("nothing is asked").told,
            DeviceIsolation::default()
        );
    }
}

#[test]
fn who_is_watched_is_said_to_be_where_its_nodes_are_known() {
    let mut offer = machine("nvidia", 2, None);
    let decided =
        |offer: &Offer| decide(&plan(Isolation::Watch, &ALL), offer, &[1], &[1]).expect("nothing is required");
    assert_eq!(decided(&offer).told, DeviceIsolation { tier: DeviceTier::Watched, ..DeviceIsolation::default() });
    assert!(decided(&offer).fence.is_none() && decided(&offer).by_cgroup.is_none());
    offer.devices[0].slots[1] = None;
    let told = decided(&offer).told;
    assert!(told.tier == DeviceTier::Variable && told.reason.contains("GPU 1"), "{told:?}");
}

#[test]
fn who_has_no_device_is_fenced_where_that_is_required_or_asked_for() {
    let offer = machine("nvidia", 2, None);
    assert!(decide(&plan(Isolation::Fence, &ALL), &offer, &[], &[]).expect("nothing is required").fence.is_none());
    let required = decide(&plan(Isolation::Require, &ALL), &offer, &[], &[]).expect("it can be fenced");
    assert_eq!(denied(&required), [0, 1]);
    let hidden = [("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")];
    let hidden = with_own(&hidden, |around| {
        let none = Vec::new();
        let decided = plan(Isolation::Fence, &ALL).decide(AskedIsolation::Unsaid, &offer, (&none, &none), around);
        decided.expect("nothing is required")
    });
    assert_eq!(denied(&hidden), [0, 1]);
}

#[test]
fn a_request_asks_for_more_than_its_node_does_and_never_for_less() {
    let offer = machine("nvidia", 2, None);
    let modes = [Isolation::Variable, Isolation::Watch, Isolation::Fence, Isolation::Require];
    let asked = [AskedIsolation::Variable, AskedIsolation::Watch, AskedIsolation::Fence, AskedIsolation::Require]
        .map(|request| (request, asked_by(request).expect("it says so")));
    for (node, (request, wanted)) in modes.into_iter().flat_map(|node| asked.map(|asked| (node, asked))) {
        let decided = asked_to(request, &plan(node, &ALL), &offer, (&[0], &[0]));
        if wanted < node {
            assert_eq!(decided, Err(Refusal::Weaker { asked: wanted }), "ISOLATION-3");
        } else {
            assert_eq!(decided, decide(&plan(wanted, &ALL), &offer, &[0], &[0]), "as a node that does so for all");
        }
    }
}

#[test]
fn who_must_be_fenced_and_cannot_be_hears_why() {
    let offer = machine("nvidia", 2, None);
    let bare = plan(Isolation::Watch, &[]);
    let told = asked_to(AskedIsolation::Fence, &bare, &offer, (&[0], &[0])).expect("it runs all the same").told;
    assert_eq!((told.tier, told.reason.as_str()), (DeviceTier::Watched, "nothing works"));
    let refusal = asked_to(AskedIsolation::Require, &bare, &offer, (&[], &[])).expect_err("it could open both");
    assert_eq!(refusal, Refusal::Unfenced { is_own_wish: true, why: "nothing works".into() });
    // Where there is no device there is nothing to be kept from.
    let none = asked_to(AskedIsolation::Require, &bare, &machine("nvidia", 0, None), (&[], &[])).expect("it is bare");
    assert_eq!(none, Decision::unfenced());
}

#[test]
fn what_a_fence_opens_besides_a_grant_is_known() {
    let offer = machine("nvidia", 2, None);
    let required = plan(Isolation::Require, &ALL);
    assert!(!decide(&required, &offer, &[], &[]).expect("it can be fenced").opens_devices());
    assert!(decide(&required, &offer, &[], &[1]).expect("it can be fenced").opens_devices(), "its group's");
}

#[test]
fn a_fence_that_failed_is_promised_to_nobody_after() {
    let offer = machine("nvidia", 2, None);
    let mut by_cgroups = plan(Isolation::Fence, &[Mechanism::Cgroup, Mechanism::Cgroup1]);
    by_cgroups.breaks("the cgroup is gone");
    let decision = decide(&by_cgroups, &offer, &[0], &[0]).expect("a fence is not required");
    assert!(decision.fence.is_none() && decision.told.reason.contains("the cgroup is gone"), "{:?}", decision.told);
    // What needs no cgroup still holds.
    let mut all = plan(Isolation::Fence, &ALL);
    all.breaks("the cgroup is gone");
    let decision = decide(&all, &offer, &[0], &[0]).expect("it can be fenced");
    assert_eq!((decision.told.tier, denied(&decision)), (DeviceTier::Landlock, vec![1]));
}

/// WORKER-4: the library numbers what it can open in the order of the machine's devices.
#[test]
fn variables_number_what_can_be_opened() {
    let offer = machine("nvidia", 4, Some("3,1,0"));
    let shown = |slots: Vec<u32>, realm: Vec<u32>| {
        let realm = [("GPU", realm)];
        let around = WorkerEnvironment { node: &|_| None, own: &|_| None, realm: &realm };
        environment(&offer, &[("GPU", slots)], around)
    };
    let both = |list: &str| {
        let set = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        vec![set("CUDA_VISIBLE_DEVICES", list), set("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]
    };
    assert_eq!(shown(vec![0], vec![0]), both("0"));
    assert_eq!(shown(vec![0, 1], vec![0, 1]), both("1,0"), "slot 0 is device 3, behind device 1 of slot 1");
    assert_eq!(shown(vec![1], vec![0, 1, 2]), both("1"), "of devices 0, 1 and 3");
}
