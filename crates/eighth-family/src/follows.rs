//! Detection, offer, options, grant, variables, Kubernetes and monitor of a family that is one file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use oxiray_accelerators::{
    Detection, DeviceProcesses, Host, Offer, Usage, WorkerEnvironment, detect, environment, offer, visible_ids,
};
use oxiray_families::{FAMILIES, check_quantity, device_resource, table};
use oxiray_ids::NodeId;
use oxiray_kubernetes::{Catalogue, FailuresByGroup, RayCluster, Settings, Shape, Situation, capacity, plan};
use oxiray_resources::{Demand, Inventory, Ledger, Quantity, ResourceName, Shortage};
use oxiray_scheduler::NodeView;
use serde_json::{Value, json};

const VARIABLE: &str = "EIGHTH_VISIBLE_DEVICES";

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/eighth_family").join(name)
}

fn host() -> Host {
    Host::recorded(fixture("host")).unwrap()
}

fn detected() -> Detection {
    detect(&host())
}

fn offered(variables: &[(&str, &str)], requested: &[(&str, f64)]) -> Offer {
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let requested = requested.iter().map(|(name, quantity)| ((*name).to_owned(), *quantity)).collect();
    offer(&detected(), &lookup, &requested).unwrap()
}

fn xpu() -> ResourceName {
    ResourceName::new("XPU").unwrap()
}

fn demand(xpus: f64) -> Demand {
    Demand::new([(xpu(), Quantity::from_f64(xpus).unwrap())]).unwrap()
}

#[test]
fn it_is_the_eighth_and_is_found_on_its_host() {
    assert_eq!(FAMILIES.len(), 8);
    let detection = detected();
    assert_eq!((detection.families.len(), detection.ruled_out.len()), (1, 0), "{detection:?}");
    let found = &detection.families[0];
    assert_eq!((found.family.key, found.count, found.type_name.as_deref()), ("eighth", 4, Some("Eighth-8")));
    assert_eq!(found.devices[2].memory_bytes, Some(24 << 30));
}

#[test]
fn its_devices_are_offered_restricted_and_asked_for() {
    let all = offered(&[], &[]);
    assert_eq!(all.totals(), BTreeMap::from([("XPU".to_owned(), 4.0), ("accelerator_type:Eighth-8".to_owned(), 1.0)]));
    assert_eq!(all.labels["ray.io/accelerator-type"], "Eighth-8");
    assert_eq!(offered(&[(VARIABLE, "1,3")], &[]).totals()["XPU"], 2.0);
    assert_eq!(offered(&[], &[("XPU", 7.0)]).totals()["XPU"], 7.0, "numbers are logical");
    let refused = offer(&detected(), &|_| None, &BTreeMap::from([("XPU".to_owned(), 1.5)]));
    assert!(refused.unwrap_err().to_string().contains("devices are whole"));
}

#[test]
fn its_quantities_follow_its_rule() {
    assert_eq!(device_resource("XPU").unwrap().option, Some("num_xpus"));
    assert!([0.25, 1.0, 3.0].iter().all(|quantity| check_quantity("XPU", *quantity).is_ok()));
    assert!(check_quantity("XPU", 1.5).unwrap_err().to_string().contains("share of one device"));
    assert!(Demand::new([(xpu(), Quantity::from_f64(1.5).unwrap())]).is_err());
}

#[test]
fn the_ledger_grants_whole_devices_and_shares_of_one() {
    let inventory = Inventory::new([(xpu(), 2.0)]).unwrap();
    assert!(Inventory::new([(xpu(), 0.5)]).is_err(), "devices are whole");
    let mut ledger = Ledger::new(inventory);
    let quarter = ledger.grant(&demand(0.25)).unwrap();
    let whole = ledger.grant(&demand(1.0)).unwrap();
    assert_eq!((quarter.devices_of("XPU")[0].device, whole.devices_of("XPU")[0].device), (0, 1));
    assert!(matches!(ledger.grant(&demand(1.0)), Err(Shortage::Busy(_))), "0.75 of one device is no whole one");
    assert!(matches!(ledger.grant(&demand(3.0)), Err(Shortage::Never(_))));
    let view = NodeView::new(NodeId::NIL, &ledger, BTreeMap::new());
    assert!(view.fits(&demand(0.75)).is_ok() && view.fits(&demand(0.8)).is_err());
    ledger.release(quarter);
    ledger.release(whole);
    ledger.audit();
}

#[test]
fn a_worker_is_shown_its_devices() {
    let shown = |node: &[(&str, &str)], granted: &[(&str, Vec<u32>)]| {
        let lookup = |name: &str| node.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let around = WorkerEnvironment { node: &lookup, own: &|_| None, realm: &[] };
        let offer = offered(node, &[]);
        (environment(&offer, granted, around), visible_ids(&offer, "XPU", &[1], around))
    };
    let set = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    let (variables, ids) = shown(&[], &[("XPU", vec![3, 1])]);
    assert_eq!(variables, [set(VARIABLE, "1,3"), set("EIGHTH_COUNT", "2")]);
    assert_eq!(ids, (vec!["1".to_owned()], false));
    let (variables, ids) = shown(&[(VARIABLE, "0,2")], &[("XPU", vec![1])]);
    assert_eq!(
        (&variables[0], ids),
        (&set(VARIABLE, "2"), (vec!["2".to_owned()], true)),
        "positions in the node's list"
    );
    let opted_out = [("RAY_EXPERIMENTAL_NOSET_EIGHTH_VISIBLE_DEVICES", "1")];
    assert_eq!(shown(&opted_out, &[("XPU", vec![1])]).0, []);
    let hidden = shown(&[("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")], &[]).0;
    assert!(hidden.contains(&set(VARIABLE, "none")), "{hidden:?}");
}

#[test]
fn its_monitor_tells_by_resource_and_slot() {
    let host = host();
    let watched = DeviceProcesses::of(&host, &offered(&[(VARIABLE, "2,0,3")], &[]));
    let [processes] = watched.as_slice() else { panic!("{watched:?}") };
    assert_eq!(processes.resource(), "XPU");
    assert_eq!(
        [0, 1, 2].map(|slot| processes.in_slot(slot).map(|holders| holders.processes)),
        [Some(vec![4711, 4712]), Some(vec![]), None]
    );
    let uses = processes.uses();
    assert_eq!(uses.iter().map(|one| (one.resource, one.slot)).collect::<Vec<_>>(), [("XPU", 0), ("XPU", 2)]);
    let used =
        Usage { busy_percent: Some(87), used_bytes: Some(1 << 30), total_bytes: Some(24 << 30), ..Usage::default() };
    assert_eq!((&uses[0].usage, uses[1].usage.is_lost), (&used, true));
}

fn pod(limits: &Value, selector: &Value) -> Value {
    json!({"spec": {"nodeSelector": selector, "containers": [{"name": "ray", "resources": {"limits": limits}}]}})
}

#[test]
fn pods_with_its_devices_offer_its_resource() {
    let counted = |limits: Value, selector: Value| {
        let none = BTreeMap::new();
        let template = pod(&limits, &selector);
        let shape = Shape { template: &template, start: &none, resources: &BTreeMap::new(), labels: &none, hosts: 1 };
        let told = capacity(&shape, &Catalogue::default());
        (told.per_host.get("XPU").copied(), told.labels.get("ray.io/accelerator-type").cloned())
    };
    let typed = |xpus, name: &str| (Some(xpus), Some(name.to_owned()));
    assert_eq!(counted(json!({"eighth.example/xpu": 2}), json!({})), typed(2.0, "Eighth-8"));
    let product = json!({"eighth.example/product": "Eighth-9"});
    assert_eq!(counted(json!({"eighth.example/xpu": 1}), product), typed(1.0, "Eighth-9"));
    let big = json!({"node.kubernetes.io/instance-type": "big.48"});
    assert_eq!(counted(json!({"eighth.example/board": 2}), big), typed(16.0, "Eighth-8"));
    assert_eq!(counted(json!({"eighth.example/board": 2}), json!({})), typed(8.0, "Eighth-8"));
    let class = "deviceclass.resource.kubernetes.io/xpu.eighth.example";
    assert_eq!(counted(json!({class: 3}), json!({})), typed(3.0, "Eighth-8"));
}

#[test]
fn pods_are_hidden_what_they_have_not_and_tolerate_what_they_have() {
    let group =
        |name: &str, limits: Value| json!({"groupName": name, "replicas": 1, "template": pod(&limits, &json!({}))});
    let object = json!({
        "metadata": {"name": "demo", "namespace": "lab", "uid": "u1"},
        "spec": {
            "headGroupSpec": {"rayStartParams": {}, "template": pod(&json!({"cpu": 1}), &json!({}))},
            "workerGroupSpecs": [group("with", json!({"eighth.example/xpu": 1})), group("without", json!({"cpu": 1}))],
        },
    });
    let cluster = RayCluster::read(&object).unwrap();
    let (failures, settings) = (FailuresByGroup::new(), Settings::default());
    let made = plan(&Situation { cluster: &cluster, pods: &[], settings: &settings, failures: &failures, now: 0 });
    let of = |group: &str| {
        let pods = made.pods.iter().map(|pod| &pod.object["spec"]);
        let groups = made.pods.iter().map(|pod| &pod.object["metadata"]["labels"]["ray.io/group"]);
        pods.zip(groups).find(|(_, of)| *of == group).unwrap().0.clone()
    };
    let hidden = json!({"name": "EIGHTH_RUNTIME", "value": "off"});
    let is_hidden = |spec: &Value| spec["containers"][0]["env"].as_array().unwrap().contains(&hidden);
    let tolerates = |spec: &Value| {
        let known = spec["tolerations"].as_array();
        known.is_some_and(|known| known.iter().any(|one| one["key"] == "eighth.example/xpu"))
    };
    let (with, without) = (of("with"), of("without"));
    assert_eq!([is_hidden(&with), is_hidden(&without)], [false, true], "{with} {without}");
    assert_eq!([tolerates(&with), tolerates(&without)], [true, false]);
}

#[test]
fn python_is_told_what_the_file_beside_it_says() {
    let told: Value = serde_json::from_str(&std::fs::read_to_string(fixture("table.json")).unwrap()).unwrap();
    assert_eq!(table(), told, "write this to tests/fixtures/eighth_family/table.json: {}", table());
}
