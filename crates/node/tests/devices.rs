//! The daemon's core and a library that answers as NVML does: devices come back when it says that they are free.

use oxiray_accelerators::{Host, detect, offer};
use oxiray_families::XidRules;
use oxiray_head::{Core, StoreFigures};
use oxiray_ids::{LeaseNumber, LeaseRequestNumber, NodeId};
use oxiray_machine::{CheckOutcome, Effect, IsolationPlan, Key, Plan};
use oxiray_node::device_client::{DeviceAnswer, DeviceClient};
use oxiray_nvml_fixture::FIXTURE_VARIABLE;
use oxiray_resources::{Inventory, ResourceName};
use oxiray_wire::Message;
use oxiray_wire::message::{Amount, Driver, LeaseRequest, LeaseReturn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Cargo puts the libraries of dependencies beside the test's own executable.
fn library() -> PathBuf {
    let executable = std::env::current_exe().expect("this executable");
    executable.parent().expect("its folder").join("liboxiray_nvml_fixture.so")
}

/// A node on a machine whose NVML is the library.
struct Node {
    core: Core,
    desk: DeviceClient,
    now: Instant,
    driver: Key,
    last_pid: u32,
    leases: Vec<(LeaseNumber, Key)>,
    /// What the library was asked and has not answered: of a device, and of all.
    unanswered: [usize; 2],
    /// How often a device was checked.
    checked: usize,
}

impl Node {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts/plain");
        let host = Host::recorded(folder).expect("a recorded machine").with_nvml_library(library());
        let offer = offer(&detect(&host), &|_| None, &BTreeMap::new()).expect("an offer");
        let named = offer.totals().into_iter().map(|(name, total)| (ResourceName::new(&name).expect("a name"), total));
        let inventory = Inventory::new(named).expect("an inventory");
        let desk = DeviceClient::of(&host, &offer, &XidRules::default()).expect("a descriptor");
        let plan = Plan {
            node: NodeId::new([1; 28]),
            inventory,
            offer,
            isolation: IsolationPlan::default(),
            labels: BTreeMap::new(),
            store_bytes: 0,
            hostname: "here".into(),
            started_ms: 0,
            name: "test".into(),
            ip: "127.0.0.1".into(),
            variables: BTreeMap::new(),
            spare_workers: 0,
            rules: oxiray_machine::Rules::default(),
            warnings: Vec::new(),
            epoch: 0,
        };
        let now = Instant::now();
        let mut core = Core::new(plan, "/session".into(), "127.0.0.1:1".into(), desk.monitored(), now);
        let driver = core.new_key();
        core.driver_joined(driver, Driver { interpreter: "python".into(), ..Driver::default() });
        let mut node =
            Self { core, desk, now, driver, last_pid: 700, leases: Vec::new(), unanswered: [0; 2], checked: 0 };
        node.settle();
        node
    }

    /// As at the start of a daemon.
    fn begin(&mut self) {
        let found = self.desk.look(&[("GPU", 0), ("GPU", 1)]);
        self.core.doubt_devices(found);
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            let effects = self.core.settle();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Fork { worker, .. } => {
                        self.last_pid += 1;
                        self.core.forked(worker, self.last_pid);
                    }
                    Effect::Join { placed: Message::LeaseGranted(granted), worker, .. } => {
                        self.leases.push((granted.lease, worker));
                    }
                    Effect::AskDevice(question) => {
                        self.desk.ask(question);
                        self.unanswered[0] += 1;
                        self.hear_all();
                    }
                    Effect::MeasureDevices => {
                        self.desk.measure();
                        self.unanswered[1] += 1;
                        self.hear_all();
                    }
                    Effect::CheckDevice { device } => {
                        self.checked += 1;
                        self.core.device_tested(&device, CheckOutcome::Passed);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Waits for what the library's thread was asked for: the node's time does not pass meanwhile. It says other things, too.
    fn hear_all(&mut self) {
        while self.unanswered != [0; 2] {
            self.hear();
        }
    }

    fn hear(&mut self) {
        let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
        let heard = poll(&mut [PollFd::new(&self.desk, PollFlags::IN)], Some(&limit)).expect("a descriptor");
        assert_eq!(heard, 1, "the library answers");
        for answer in self.desk.answers() {
            match answer {
                DeviceAnswer::Residue(question, residue) => {
                    self.unanswered[0] -= 1;
                    self.core.device_answered(&question, residue);
                }
                DeviceAnswer::Uses(uses) => {
                    self.unanswered[1] -= 1;
                    self.core.devices_measured(uses);
                }
                DeviceAnswer::Opened(found) => self.core.nodes_opened(&found),
                DeviceAnswer::Failed(seen) => self.core.devices_failed(vec![seen]),
                DeviceAnswer::Tested(device, outcome) => self.core.device_tested(&device, outcome),
                DeviceAnswer::Measured(found) => self.core.machine_measured(*found),
            }
        }
    }

    /// Asks for a whole GPU.
    fn request(&mut self, request: u64) {
        let demand = vec![Amount { resource: "GPU".into(), units: 10_000 }];
        self.core.client_said(
            self.driver,
            LeaseRequest { request: LeaseRequestNumber(request), demand, ..LeaseRequest::default() }.into(),
        );
        self.settle();
    }

    /// The task in the lease is done, and its process gone.
    fn end(&mut self, (lease, worker): (LeaseNumber, Key)) {
        self.core.client_said(self.driver, LeaseReturn { lease, retiring: false }.into());
        self.core.worker_gone(worker, "killed by signal 9 (SIGKILL)");
        self.settle();
    }

    /// Goes from one alarm to the next while `is_not_yet`, for as long as the node's own time allows.
    fn pass_while(&mut self, limit: Duration, is_not_yet: impl Fn(&Self) -> bool) {
        let until = self.now + limit;
        while is_not_yet(self) {
            let at = self.core.next_alarm().filter(|at| *at <= until).expect("it happens in time");
            self.now = at;
            self.core.set_now(at);
            self.settle();
        }
    }

    fn detail(&self) -> serde_json::Value {
        let report = self.core.report(1, &StoreFigures::default(), 0);
        serde_json::to_value(report.state).expect("JSON")
    }

    fn reasons(&self) -> Vec<Option<String>> {
        let detail = self.detail();
        let devices = detail["devices"].as_array().expect("a list");
        devices.iter().map(|device| device["reason"].as_str().map(str::to_owned)).collect()
    }

    /// What is told of the second device's use, once it was measured.
    fn second_use(&mut self) -> serde_json::Value {
        let told = |node: &Self| node.detail().pointer("/nodes/0/devices/1").cloned();
        self.look_until(|node| told(node).is_some());
        told(self).expect("it was just there")
    }

    /// Has the devices looked at again and again.
    fn look_until(&mut self, is_seen: impl Fn(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_seen(self) {
            assert!(Instant::now() < until, "the library answers");
            self.now = self.core.next_alarm().expect("devices are looked at again and again");
            self.core.set_now(self.now);
            self.settle();
        }
    }
}

// One test, for the library's file is named by a variable of the process, which threads share.
#[test]
fn a_device_comes_back_when_nvml_says_that_it_is_free() {
    let folder = tempfile::tempdir().expect("a folder");
    let answers = folder.path().join("answers.txt");
    let write = |first: &str| {
        // In one step, for the library may be reading.
        let draft = folder.path().join("draft.txt");
        let other = std::process::id();
        let text = format!("NVIDIA L4|GPU-1||24000|0|{first}\nNVIDIA L4|GPU-2||24000|6000|{other}:1||87\n");
        std::fs::write(&draft, text).expect("written");
        std::fs::rename(&draft, &answers).expect("renamed");
    };
    write("701:4096");
    // SAFETY: this is the only test of its process, and no other thread reads the environment yet.
    unsafe { std::env::set_var(FIXTURE_VARIABLE, &answers) };

    let living = format!("{}:4096", std::process::id());
    let mut node = Node::new();
    assert_eq!(node.detail()["nodes"][0]["devices"], serde_json::json!([]), "nothing is measured while nobody has any");
    node.request(1);
    node.request(2);
    node.request(3);
    let [first, second] = node.leases[..] else { panic!("two GPUs, two leases: {:?}", node.leases) };

    let told = serde_json::json!({
        "resource": "GPU", "id": "1", "slot": 1, "busy_percent": 87, "used_bytes": 6000, "total_bytes": 24000,
        "power_mw": null, "temperature_c": null, "processes": [{"pid": std::process::id(), "bytes": 1, "busy_percent": null}],
    });
    assert_eq!(node.second_use(), told);
    assert_eq!(node.detail()["devices"][1]["use"], told);

    let ended = node.now;
    node.end(first);
    node.pass_while(Duration::from_secs(11), |node| node.reasons()[0].is_none());
    assert!(node.now >= ended + Duration::from_secs(10), "it had time to forget");
    let reason = "process 701 is dead, and the device still holds memory of it";
    assert_eq!(node.reasons(), [Some(reason.to_owned()), None]);
    assert_eq!(node.leases.len(), 2, "the third request waits");

    node.end(second);
    node.pass_while(Duration::from_secs(11), |node| node.leases.len() < 3);
    assert_eq!(node.reasons(), [Some(reason.to_owned()), None], "the second device was only used by others");

    node.request(4);
    write(&living);
    node.pass_while(Duration::from_secs(30), |node| node.leases.len() < 4);
    assert_eq!(node.reasons(), [None, None], "the first device forgot after all");
    assert_eq!(
        node.checked, 1,
        "it was checked before anybody got it, and the second one, which was in service, was not"
    );

    // The driver loses the device that nobody uses any more, and finds it again.
    let lost = folder.path().join("lost.txt");
    let text = format!("lost=1\n{}", std::fs::read_to_string(&answers).expect("it was written"));
    std::fs::write(&lost, text).and_then(|()| std::fs::rename(&lost, &answers)).expect("written");
    node.look_until(|node| node.reasons()[1].is_some());
    let reason = node.reasons().remove(1).expect("it was just there");
    assert!(reason.contains("its driver has lost it"), "{reason}");
    write(&living);
    node.look_until(|node| node.reasons()[1].is_none());

    let mut before = std::process::Command::new("true").spawn().expect("it starts");
    write(&format!("{}:4096", before.id()));
    before.wait().expect("it ends");
    let namespace = std::fs::read_link("/proc/self/ns/pid").expect("there is one");
    let are_pids_trusted = namespace.as_os_str() == "pid:[4026531836]";
    if are_pids_trusted {
        what_a_worker_started_keeps_its_device(&mut node, before.id(), &write);
        write(&format!("{}:4096", before.id()));
    }
    let mut again = Node::new();
    again.begin();
    if are_pids_trusted {
        let reason = "the device still holds memory of a process that died before this node began";
        assert_eq!(again.reasons(), [Some(reason.to_owned()), None], "the second one is used by who lives");
    }
    write("");
    again.pass_while(Duration::from_secs(30), |node| node.reasons()[0].is_some());
}

/// The first device, which the last lease has, of a worker whose child is dead and listed: first as any process and then as
/// a client of an MPS server.
fn what_a_worker_started_keeps_its_device(node: &mut Node, child: u32, write: &impl Fn(&str)) {
    let reason = format!("process {child} is dead, and the device still holds memory of it");
    for listed in [format!("{child}:4096"), format!("\nmps=0:{child}:4096\n")] {
        let holder = *node.leases.last().expect("somebody has the first device");
        write(&listed);
        node.end(holder);
        node.pass_while(Duration::from_secs(11), |node| node.reasons()[0].is_none());
        let told = node.reasons().remove(0).expect("it was just there");
        assert!(told.starts_with(&reason), "{told}");
        write("");
        node.pass_while(Duration::from_secs(30), |node| node.reasons()[0].is_some());
        let before = node.leases.len();
        node.request(100 + before as u64);
        node.pass_while(Duration::from_secs(30), |node| node.leases.len() == before);
    }
}
