//! What becomes of devices whose holders are gone.

use super::*;
use oxiray_accelerators::{DeviceUse, NodeNumber};
use oxiray_families::{DeviceFault, Health, ProcessMemory, Recovery, Usage, XidClass};
use oxiray_fence::{Isolation, Mechanism};
use oxiray_ids::NodeId;
use oxiray_journal::Rows;
use oxiray_machine::{DeviceErrorSeen, OpenNode, OpenNodes};
use oxiray_wire::message::{
    AskedIsolation, ChronicleFollow, DeviceAction, DeviceAsked, DeviceErrorsQuery, DeviceNumber, TemplateHolds,
};
use oxiray_wire::state::{
    ChronicleEntry, ChronicleEvent, DeviceCondition, DeviceService, DeviceTier, HealthState, IsolationMode, MemoryTier,
    NodeIsolation, RealmDevices,
};

#[test]
fn a_device_that_does_not_forget_the_dead_is_taken_out_of_service() {
    let mut world = World::new(1, 2);
    let driver = world.driver();
    world.residue = Some(Residue::Held);
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(5));
    assert_eq!((world.free("GPU"), world.total("GPU")), (10_000, 20_000), "it may still forget");
    world.pass(Duration::from_secs(6));
    assert_eq!((world.free("GPU"), world.total("GPU")), (10_000, 10_000), "out of service");
    let report = world.core.report(1, &StoreFigures::default(), 0);
    let device = report.state.expect("a state").devices.remove(0);
    assert_eq!(device.state, DeviceService::Quarantined);
    assert!(device.reason.expect("a reason").contains("still holds memory"));
}

#[test]
fn a_device_that_remembers_the_dead_of_before_is_granted_when_it_has_forgotten_them() {
    let mut world = World::new(1, 2);
    world.residue = None;
    world.doubt_devices();
    assert_eq!(world.total("GPU"), 0, "the driver has not answered");
    world.residue = Some(Residue::Held);
    world.pass(Duration::from_secs(1));
    let reasons = world.out_of_service();
    assert!(reasons.len() == 2 && reasons[0].contains("died before this node began"), "{reasons:?}");
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    world.pass(Duration::from_secs(5));
    assert!(world.grants_of(driver).is_empty());
    world.residue = Some(Residue::Gone);
    world.pass(Duration::from_secs(11));
    world.granted(driver, 1);
    assert!(world.out_of_service().is_empty());
}

#[test]
fn where_nobody_can_tell_devices_are_granted_at_once() {
    let mut world = World::new(1, 1);
    world.residue = Some(Residue::Unknown);
    world.doubt_devices();
    assert_eq!(world.total("GPU"), 10_000);
}

#[test]
fn a_device_that_forgets_in_time_is_granted_again() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    world.residue = Some(Residue::Held);
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.say(driver, request(2, &[GPU]));
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.grants_of(driver).len(), 1);
    world.residue = Some(Residue::Gone);
    world.pass(Duration::from_secs(1));
    world.granted(driver, 2);
}

#[test]
fn a_device_out_of_service_comes_back_when_it_forgets_after_all() {
    for late in [Some(Residue::Held), None] {
        let mut world = World::new(1, 1);
        let driver = world.driver();
        world.residue = late;
        world.say(driver, request(1, &[CPU, GPU]));
        let (lease, worker) = world.granted(driver, 1);
        world.say(driver, request(2, &[GPU]));
        world.say(driver, LeaseReturn { lease, retiring: false });
        world.bury(worker, "killed by signal 9 (SIGKILL)");
        world.pass(Duration::from_secs(60));
        assert_eq!((world.free("CPU"), world.total("GPU")), (10_000, 0), "the rest of the grant is back");
        assert!(world.out_of_service()[0].contains("memory"), "{:?}", world.out_of_service());
        world.residue = Some(Residue::Gone);
        world.pass(Duration::from_secs(11));
        world.granted(driver, 2);
        assert!(world.out_of_service().is_empty());
    }
}

const GIB: u64 = 1 << 30;

/// A GPU, or a share of it, is granted and given back, and asked for again; what was in use of it before is 1 GiB.
fn given_back(share: u64, left: Residue) -> (World, Key) {
    let mut world = World::new(1, 1);
    world.residue = Some(Residue::Unlisted(GIB));
    world.doubt_devices();
    let driver = world.driver();
    world.say(driver, request(1, &[("GPU", share)]));
    let (lease, worker) = world.granted(driver, 1);
    world.residue = Some(left);
    world.say(driver, request(2, &[("GPU", 10_000)]));
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    (world, driver)
}

#[test]
fn memory_that_nobody_has_who_is_listed_keeps_a_device_back_until_it_is_free() {
    let (mut world, driver) = given_back(10_000, Residue::Unlisted(4 * GIB));
    world.pass(Duration::from_secs(9));
    assert_eq!((world.free("GPU"), world.total("GPU")), (0, 10_000), "it may still be freed");
    world.pass(Duration::from_secs(2));
    let reasons = world.out_of_service();
    assert!(reasons[0].starts_with("GPU 0 still has 4.00 GiB in use by nobody that is listed"), "{reasons:?}");
    world.pass(Duration::from_secs(60));
    assert_eq!(world.grants_of(driver).len(), 1);
    // A little more than before is borne.
    world.residue = Some(Residue::Unlisted(GIB + GIB / 8));
    world.pass(Duration::from_secs(11));
    world.granted(driver, 2);
    assert!(world.out_of_service().is_empty());
}

#[test]
fn memory_is_not_missed_of_what_was_shared_nor_for_long_where_somebody_unseen_may_have_it() {
    let (world, driver) = given_back(5_000, Residue::Unlisted(4 * GIB));
    world.granted(driver, 2);
    let (mut world, driver) = given_back(10_000, Residue::Unseen(4 * GIB));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.grants_of(driver).len(), 1, "it is waited for a while");
    world.pass(Duration::from_secs(2));
    world.granted(driver, 2);
    assert!(world.out_of_service().is_empty());
}

#[test]
fn a_device_begins_where_it_was_measured_while_nobody_had_it() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    world.pass(Duration::from_secs(1));
    let mut seen = listed(0, &[]);
    seen.usage.unlisted_bytes = Some(6 * GIB);
    world.core.devices_measured(vec![seen.clone()]);
    world.residue = Some(Residue::Unlisted(6 * GIB));
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    // What is measured while somebody has it is no baseline.
    seen.usage.unlisted_bytes = Some(GIB);
    world.core.devices_measured(vec![seen]);
    world.say(driver, request(2, &[GPU]));
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.granted(driver, 2);
}

#[test]
fn devices_of_a_tree_that_does_not_die_are_out_of_service_until_it_does() {
    let mut world = World::new(4, 2);
    let driver = world.driver();
    let half = ("GPU", 5_000);
    world.say(driver, request(1, &[half]));
    world.say(driver, request(2, &[half]));
    let ((lease, returned), (_, crashed)) = (world.granted(driver, 1), world.granted(driver, 2));
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.pass(Duration::from_secs(15));
    world.core.worker_died(crashed);
    world.settle();
    assert_eq!(world.total("GPU"), 20_000, "they may still die");
    world.pass(Duration::from_secs(6));
    assert_eq!((world.total("GPU"), world.free("GPU")), (10_000, 10_000), "out of service");
    assert!(world.out_of_service()[0].contains("does not die"), "{:?}", world.out_of_service());
    world.pass(Duration::from_secs(6));
    world.bury(returned, "killed by signal 9 (SIGKILL)");
    assert_eq!(world.total("GPU"), 10_000, "the other is still there");
    world.say(driver, request(3, &[("GPU", 20_000)]));
    world.bury(crashed, "exited with status 1");
    world.granted(driver, 3);
    assert!(world.out_of_service().is_empty());
}

#[test]
fn devices_of_a_worker_are_kept_while_somebody_is_in_its_control_group() {
    let mut world = World::new(2, 1);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU, GPU]));
    let (_, worker) = world.granted(driver, 1);
    world.say(driver, request(2, &[GPU]));
    world.in_groups.insert(worker, vec![4711, 4712]);
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(30));
    assert_eq!((world.total("GPU"), world.free("CPU")), (0, 10_000), "OCCUPIED-1: all of the grant is kept");
    let reason = &world.out_of_service()[0];
    assert!(reason.contains("processes 4711, 4712 are still in the control group of worker process"), "{reason}");
    world.in_groups.insert(worker, vec![4712]);
    world.pass(Duration::from_secs(2));
    let reasons = world.out_of_service();
    assert!(reasons.len() == 1 && reasons[0].contains("process 4712 is still"), "{reasons:?}");
    assert_eq!(world.grants_of(driver).len(), 1);
    world.in_groups.remove(&worker);
    world.pass(Duration::from_secs(2));
    world.granted(driver, 2);
    assert!(world.out_of_service().is_empty());
    assert_eq!(world.free("CPU"), 20_000);
}

#[test]
fn a_device_is_asked_about_when_its_workers_group_is_empty() {
    let mut world = World::new(1, 1);
    let driver = world.driver();
    world.residue = Some(Residue::Held);
    world.say(driver, request(1, &[GPU]));
    let (_, worker) = world.granted(driver, 1);
    world.in_groups.insert(worker, vec![4711]);
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(5));
    world.in_groups.remove(&worker);
    world.pass(Duration::from_secs(2));
    assert!(world.out_of_service().is_empty(), "it may still forget");
    world.pass(Duration::from_secs(10));
    assert!(world.out_of_service()[0].contains("still holds memory"), "{:?}", world.out_of_service());
}

#[test]
fn what_the_dead_held_is_nobodys_until_its_devices_are_answered_for() {
    let mut world = World::new(2, 2);
    let driver = world.driver();
    world.residue = None;
    world.say(driver, request(1, &[CPU, ("GPU", 20_000)]));
    let (lease, worker) = world.granted(driver, 1);
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "exited with status 0");
    let asked: Vec<u32> = world.questions.iter().map(|question| question.device.1).collect();
    assert_eq!(asked, [0, 1], "each device is asked about");
    world.say(driver, request(2, &[GPU]));
    world.pass(Duration::from_secs(9));
    assert_eq!((world.free("GPU"), world.total("GPU")), (0, 20_000), "they are booked, and not in doubt yet (CORE-1)");
    assert!(world.grants_of(driver).iter().all(|(request, ..)| *request == 1));
    assert_eq!(world.questions.len(), 2, "what is not answered is not asked again");
    let first = world.questions.remove(0);
    world.core.device_answered(&first, Residue::Gone);
    world.settle();
    assert_eq!(world.free("GPU"), 0, "the grant goes back as a whole");
    world.pass(Duration::from_secs(2));
    assert_eq!((world.free("CPU"), world.total("GPU")), (20_000, 10_000), "CORE-4");
    world.granted(driver, 2);
    let reasons = world.out_of_service();
    assert!(reasons[0].contains("its driver does not say whether it still holds memory"), "{reasons:?}");
    world.core.device_answered(&first, Residue::Held);
    assert_eq!(world.total("GPU"), 10_000, "an answer to nothing changes nothing");
    world.residue = Some(Residue::Gone);
    world.settle();
    assert_eq!((world.total("GPU"), world.out_of_service().len()), (20_000, 0), "a late answer is an answer");
}

/// A GPU's node that a process has open.
fn opened(open: impl IntoIterator<Item = OpenNode>) -> OpenNodes {
    OpenNodes { open: open.into_iter().collect(), ..OpenNodes::default() }
}

fn open(worker: u32, pid: u32, minor: u32) -> OpenNode {
    let (number, path) = (NodeNumber { major: 195, minor }, format!("/dev/nvidia{minor}"));
    OpenNode { worker, pid, number, path }
}

#[test]
fn a_worker_whose_call_raised_is_told_what_was_reported_of_its_devices_meanwhile() {
    let mut world = World::with_own_nodes(2, 2);
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    let (_, worker) = world.granted(driver, 1);
    let mut reports = |slot, xid, class| {
        let device = ("GPU".to_owned(), slot);
        world.core.devices_failed(vec![DeviceErrorSeen { device, fault: DeviceFault::Xid(xid), class }]);
        world.pass(Duration::from_millis(100));
    };
    reports(0, 13, XidClass::Application);
    reports(1, 31, XidClass::Application);
    reports(0, 94, XidClass::Contained);
    let told = |world: &mut World, who, lasted_ms| {
        world.say(who, DeviceErrorsQuery { request: lasted_ms, lasted_ms });
        let answer = world.to(who).find_map(|message| match message {
            Message::DeviceErrors(said) if said.request == lasted_ms => Some(said.texts.clone()),
            _ => None,
        });
        answer.expect("an answer")
    };
    assert_eq!(told(&mut world, worker, 50), Vec::<String>::new(), "the call began later");
    let of_hardware = "Xid 94 (a contained ECC error of memory) 0.1 s before this error: its hardware failed";
    let last = told(&mut world, worker, 150);
    assert!(last.len() == 1 && last[0].starts_with("GPU 0") && last[0].ends_with(of_hardware), "{last:?}");
    let all = told(&mut world, worker, 60_000);
    assert!(all.len() == 2 && all[0].contains("Xid 13") && all[0].ends_with("what ran on it caused that"), "{all:?}");
    assert_eq!(told(&mut world, driver, 60_000), Vec::<String>::new(), "it holds none");

    let client = |pid| ProcessMemory { pid, is_mps_client: true, ..ProcessMemory::default() };
    let processes = vec![client(holder(&world, 0)), client(4711)];
    let usage = Usage { processes, ..Usage::default() };
    world.core.devices_measured(vec![DeviceUse { resource: "GPU", slot: 0, id: "0".to_owned(), usage }]);
    let (device, fault) = (("GPU".to_owned(), 0), DeviceFault::Xid(31));
    world.core.devices_failed(vec![DeviceErrorSeen { device, fault, class: XidClass::Application }]);
    let [of_mps] = &told(&mut world, worker, 20)[..] else { panic!("one Xid was reported just now") };
    assert!(of_mps.contains("Xid 31") && of_mps.ends_with("another one (1 there) may have caused that"), "{of_mps}");
}

/// What is open of a GPU without a grant.
fn violations(world: &World, slot: usize) -> Vec<String> {
    let report = world.core.report(1, &StoreFigures::default(), 0);
    report.state.expect("a state").devices.remove(slot).violations
}

#[test]
fn what_is_open_without_a_grant_is_told_once_and_for_as_long_as_it_is() {
    let mut world = World::with_own_nodes(2, 2);
    let driver = world.driver();
    world.pass(Duration::from_secs(5));
    assert!(world.looked_at.is_empty(), "nobody serves a job");
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.pass(Duration::from_secs(2));
    let looked_at = world.looked_at.last().expect("a look each second").clone();
    let [pid] = looked_at[..] else { panic!("one worker serves: {looked_at:?}") };

    world.core.nodes_opened(&opened([
        open(pid, pid, 0),
        open(pid, 901, 1),
        open(pid, 901, 1),
        open(pid, pid, 9),
        open(900, 900, 1),
    ]));
    world.settle();
    assert_eq!(isolation(&world).watch_period_s, None, "nobody can look who names no pause");
    let told = format!("f (pid {pid}, granted GPU 0): its process 901 has GPU 1 open (/dev/nvidia1)");
    assert_eq!((violations(&world, 0), violations(&world, 1)), (vec![], vec![told.clone()]));
    assert_eq!(world.notices(driver).iter().filter(|notice| notice.starts_with(&told)).count(), 1);

    world.core.nodes_opened(&opened([open(pid, 901, 1), open(pid, 902, 1)]));
    world.settle();
    assert_eq!(world.notices(driver).len(), 2, "another process is another violation");
    world.core.nodes_opened(&opened([open(pid, 902, 1)]));
    world.settle();
    assert_eq!((violations(&world, 1).len(), world.notices(driver).len()), (1, 2), "the first one closed it");

    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    assert!(violations(&world, 1).is_empty(), "nothing is left of it");
    let looks = world.looked_at.len();
    world.core.nodes_opened(&opened([open(pid, 902, 1)]));
    world.pass(Duration::from_secs(5));
    assert!(violations(&world, 1).is_empty(), "a look that ended late tells nothing of who is gone");
    assert!(world.looked_at.len() <= looks + 1, "nobody serves any more");
}

/// How the head's node keeps processes from devices.
fn isolation(world: &World) -> NodeIsolation {
    let state = world.core.report(1, &StoreFigures::default(), 0).state.expect("a state");
    state.nodes[0].isolation().expect("it has devices").clone()
}

#[test]
fn a_node_tells_how_it_keeps_devices_and_how_often_it_looks() {
    let mut world = World::with_own_nodes(2, 2);
    let told = isolation(&world);
    assert_eq!((told.asked, told.in_force), (IsolationMode::Watch, DeviceTier::Watched));
    assert_eq!((told.watch_period_s, told.means.len(), told.reason.as_str()), (Some(1), 0, ""));
    assert_eq!(told.memory_tiers, [MemoryTier::Framework, MemoryTier::Watched]);
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    // More at once, and fewer only where it is clearly fewer.
    for (pause_ms, period_s) in
        [(20, 1), (999, 1), (1_500, 2), (990, 2), (660, 1), (35_001, 36), (24_100, 36), (1_900, 3)]
    {
        let pause = Some(Duration::from_millis(pause_ms));
        world.core.nodes_opened(&OpenNodes { pause, ..opened([]) });
        world.settle();
        assert_eq!(isolation(&world).watch_period_s, Some(period_s), "{pause_ms}");
    }
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(2));
    assert_eq!(isolation(&world).watch_period_s, Some(1), "how long looks took says nothing once nobody is looked at");
    let state = World::new(2, 0).core.report(1, &StoreFigures::default(), 0).state.expect("a state");
    assert_eq!(state.nodes[0].isolation(), None, "it has no devices");
    let unknown = isolation(&World::new(2, 1));
    assert_eq!((unknown.asked, unknown.in_force), (IsolationMode::Variable, DeviceTier::Variable));
    assert_eq!(unknown.watch_period_s, None);
}

#[test]
fn a_node_that_looks_for_one_job_only_tells_so_while_that_runs() {
    let mut world = World::kept_by(Isolation::Variable, 2, 2);
    assert_eq!(isolation(&world).watch_period_s, None);
    let driver = world.driver();
    let environment = Environment { isolation: AskedIsolation::Watch, ..Environment::default() };
    world.say(driver, LeaseRequest { environment: Some(environment), ..request(1, &[GPU]) });
    let (lease, worker) = world.granted(driver, 1);
    world.pass(Duration::from_secs(2));
    let pause = Some(Duration::from_millis(20));
    world.core.nodes_opened(&OpenNodes { pause, ..opened([]) });
    world.settle();
    assert_eq!(isolation(&world).watch_period_s, Some(1));
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(2));
    assert_eq!(isolation(&world).watch_period_s, None);
}

#[test]
fn a_device_tells_its_files_and_who_has_it_what_it_may_open() {
    let mut world = World::with_own_nodes(2, 2);
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    world.granted(driver, 1);
    let rows = world.core.report(1, &StoreFigures::default(), 0).state.expect("a state").devices;
    let paths: Vec<_> = rows.iter().flat_map(|row| &row.files.as_ref().expect("it is told").nodes).collect();
    assert_eq!(paths.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["/dev/nvidia0", "/dev/nvidia1"]);
    assert_eq!((paths[1].major, paths[1].minor), (Some(195), Some(1)));
    let realm = &rows[0].holders[0].isolation.as_ref().expect("it is told").realm;
    assert_eq!(realm[..], [RealmDevices { resource: "GPU".to_owned(), slots: vec![0] }]);
    assert_eq!(rows[0].holders[0].choice, "the lowest that was free");
}

#[test]
fn who_must_be_fenced_and_has_another_device_open_all_the_same_is_ended() {
    let mut world = World::with_own_nodes(2, 2);
    world.core.node_mut().plan_mut().isolation.mechanisms = vec![Mechanism::Cgroup];
    let driver = world.driver();
    let fenced = |number, isolation| {
        let environment = Some(Environment { isolation, ..Environment::default() });
        LeaseRequest { environment, ..request(number, &[GPU]) }
    };
    world.say(driver, fenced(1, AskedIsolation::Fence));
    let (_, spared) = world.granted(driver, 1);
    world.pass(Duration::from_secs(3));
    assert!(world.looked_at.is_empty(), "its fence holds it");
    world.say(driver, fenced(2, AskedIsolation::Require));
    let (_, ended) = world.granted(driver, 2);
    let pid = holder(&world, 1);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.looked_at.last(), Some(&vec![pid]), "who must be fenced is looked at, too");
    let passed = opened([open(pid, 901, 0), open(pid, pid, 1)]);
    world.core.nodes_opened(&passed);
    world.core.nodes_opened(&opened([]));
    world.core.nodes_opened(&passed);
    world.settle();
    assert!(!world.is_killed(ended), "it may be about to close what it inherited");
    world.core.nodes_opened(&passed);
    world.settle();
    assert!(world.is_killed(ended) && !world.is_killed(spared));
    world.bury(ended, "killed by signal 9 (SIGKILL)");
    let told = world.ended(driver).remove(0).1;
    assert!(told.contains("has GPU 0 open") && told.contains("(device_isolation=\"require\")"), "{told}");
}

/// The process of who has a GPU.
fn holder(world: &World, slot: usize) -> u32 {
    let report = world.core.report(1, &StoreFigures::default(), 0);
    report.state.expect("a state").devices.remove(slot).holders[0].pid
}

/// A GPU as its library shows it: who has how many bytes of it.
fn listed(slot: u32, processes: &[(u32, u64, &[u32])]) -> DeviceUse {
    let process = |(pid, bytes, ancestors): &(u32, u64, &[u32])| ProcessMemory {
        pid: *pid,
        bytes: *bytes,
        ancestors: ancestors.to_vec(),
        name: "python3".to_owned(),
        ..ProcessMemory::default()
    };
    let usage = Usage { processes: processes.iter().map(process).collect(), ..Usage::default() };
    DeviceUse { resource: "GPU", slot, id: slot.to_string(), usage }
}

#[test]
fn whom_the_library_lists_beyond_its_grant_violates_it_and_who_is_no_worker_is_told_of() {
    let mut world = World::with_own_nodes(2, 2);
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    let pid = holder(&world, 0);
    let uses = |stranger: u64| {
        vec![
            listed(0, &[(pid, 8 << 30, &[]), (4711, stranger, &[1])]),
            listed(1, &[(901, 1 << 30, &[pid, 600]), (4712, 1 << 20, &[1])]),
        ]
    };
    world.core.devices_measured(uses(3 << 30));
    world.settle();
    let told = format!("f (pid {pid}, granted GPU 0): its process 901 has memory of GPU 1 (1.00 GiB)");
    assert_eq!((violations(&world, 0), violations(&world, 1)), (vec![], vec![told.clone()]));
    let foreign = "GPU 0 is also used by pid 4711 (python3), not Oxiray's: 3.00 GiB";
    let notices = world.notices(driver);
    assert!(notices.len() == 2 && notices[1].starts_with(&told) && notices[0].starts_with(foreign), "{notices:?}");
    let state = world.core.report(1, &StoreFigures::default(), 0).state.expect("a state");
    let pids = |slot: usize| state.devices[slot].foreign.iter().map(|used| used.pid).collect::<Vec<_>>();
    assert_eq!((pids(0), pids(1)), (vec![4711], vec![4712]), "the little of GPU 1 is shown, too");

    // The same by the other kind of evidence is not told again, nor is it over when one of the two is.
    world.core.nodes_opened(&opened([open(pid, 901, 1)]));
    world.settle();
    let both = violations(&world, 1);
    assert!(both.len() == 2 && both[1] == told && both[0].contains("open"), "both are shown: {both:?}");
    world.core.devices_measured(uses(4 << 30));
    world.core.devices_measured(vec![listed(0, &[]), listed(1, &[])]);
    world.settle();
    assert_eq!((violations(&world, 1).len(), world.notices(driver).len()), (1, 2));
    world.core.nodes_opened(&opened([]));
    world.settle();
    assert!(violations(&world, 1).is_empty());

    world.core.devices_measured(uses(3 << 30));
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    assert!(violations(&world, 1).is_empty(), "nothing is left of it");
}

#[test]
fn a_node_that_is_not_to_watch_takes_no_list_for_a_violation() {
    let mut world = World::new(2, 2);
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    world.granted(driver, 1);
    let pid = holder(&world, 0);
    world.core.devices_measured(vec![listed(1, &[(pid, 1 << 30, &[])])]);
    world.settle();
    assert!(violations(&world, 1).is_empty() && world.notices(driver).is_empty());
}

/// What the driver of a GPU says that it needs.
fn needing(slot: u32, recovery: Recovery) -> DeviceUse {
    let health = Health { recovery: Some(recovery), ..Health::default() };
    DeviceUse { resource: "GPU", slot, id: slot.to_string(), usage: Usage { health, ..Usage::default() } }
}

fn alerts(world: &World) -> Vec<String> {
    let state = world.core.report(1, &StoreFigures::default(), 0).state.expect("a state");
    state.daemon.expect("the daemon").alerts
}

/// What the chronicle tells a visitor who asks from its beginning.
fn entries(world: &mut World, event: ChronicleEvent) -> Vec<ChronicleEntry> {
    const VISITOR: Key = 1 << 41;
    world.core.chronicle_follow(VISITOR, ChronicleFollow { request: 1, ..ChronicleFollow::default() });
    world.settle();
    let batches = world.sent.iter().filter_map(|(to, message)| match message {
        Message::ChronicleBatch(batch) if *to == VISITOR => Some(&batch.entries),
        _ => None,
    });
    batches.flatten().filter(|entry| entry.event == event).cloned().collect()
}

#[test]
fn devices_that_are_kept_in_service_are_told_of_as_long_as_they_count() {
    let mut world = World::new(1, 4);
    world.core.devices_measured((0..3).map(|slot| needing(slot, Recovery::Reset)).collect());
    world.settle();
    assert_eq!((world.total("GPU"), world.out_of_service().len()), (20_000, 2), "BREAKER-1");
    let told = alerts(&world);
    let [alert] = &told[..] else { panic!("one resource: {told:?}") };
    assert!(alert.contains("kept in service: GPU 2 of node ") && alert.contains("needs a reset"), "{alert}");
    let kept = entries(&mut world, ChronicleEvent::DeviceKept);
    let [entry] = &kept[..] else { panic!("one device: {kept:?}") };
    assert_eq!(entry.device.as_ref().map(|device| device.slot), Some(2));
    assert!(entry.text.contains("GPU 2 is kept in service although its driver needs a reset"), "{}", entry.text);
    world.pass(Duration::from_secs(601));
    assert_eq!(alerts(&world), [""; 0], "BREAKER-2");
}

#[test]
fn a_device_is_not_said_to_be_kept_in_service_that_is_out_of_it_by_now() {
    let mut world = World::new(1, 2);
    world.core.devices_measured((0..2).map(|slot| needing(slot, Recovery::Reset)).collect());
    world.settle();
    assert!(alerts(&world)[0].contains("kept in service: GPU 1 of node "), "{:?}", alerts(&world));
    let visitor = world.core.new_key();
    let node = NodeId::new([200; 28]).hex();
    let (device, action) = ("1".to_owned(), DeviceAction::Drain);
    let by_hand = DeviceAsked { request: 1, node, device, action, ..DeviceAsked::default() };
    world.core.as_head_mut().device_asked(visitor, &by_hand);
    world.settle();
    assert_eq!((world.total("GPU"), alerts(&world)), (0, Vec::new()));
}

/// A member with four GPUs, as a head hears it.
struct Told {
    member: World,
    stream: Key,
}

impl Told {
    fn joins(head: &mut World, node: u8) -> Self {
        let mut member = World::member_with_devices(4, NodeId::new([node; 28]));
        let stream = head.core.new_key();
        head.hear_member(stream, member.core.node_mut().described(0, String::new()).into());
        head.settle();
        Self { member, stream }
    }

    fn tell(&mut self, head: &mut World, conditions: Vec<DeviceCondition>) {
        let mut state = self.member.core.node_mut().described(0, String::new()).state.expect("a state");
        state.conditions = conditions;
        head.hear_member(self.stream, state.into());
        head.settle();
    }
}

fn ill(slot: u32, needs_restart: bool) -> DeviceCondition {
    DeviceCondition {
        resource: "GPU".to_owned(),
        slot,
        reason: Some("its driver needs a restart of the machine".to_owned()),
        needs_restart,
        is_automatic: true,
        health: HealthState::Ill,
        ..DeviceCondition::default()
    }
}

/// Why nodes are being drained.
fn drained_for(head: &World) -> Vec<String> {
    let state = head.core.report(1, &StoreFigures::default(), 0).state.expect("a state");
    state.nodes.into_iter().filter_map(|node| node.draining).map(|draining| draining.reason).collect()
}

#[test]
fn a_node_is_drained_whose_driver_needs_a_restart_of_the_machine_and_kept_where_a_person_says_so() {
    let mut head = World::new(1, 4);
    let mut member = Told::joins(&mut head, 7);
    head.core.devices_measured(vec![needing(0, Recovery::Reset)]);
    head.settle();
    member.tell(&mut head, vec![ill(1, false)]);
    assert_eq!(drained_for(&head), [""; 0], "a reset will do");
    member.tell(&mut head, (0..4).map(|slot| ill(slot, slot == 3)).collect());
    assert_eq!(drained_for(&head), [""; 0], "of eight, the head keeps the fifth in service");
    member.tell(&mut head, vec![ill(1, true)]);
    assert_eq!(drained_for(&head), ["the driver of its GPU 1 needs a restart of the machine"]);
    member.tell(&mut head, vec![ill(1, true)]);
    assert_eq!(entries(&mut head, ChronicleEvent::NodeDraining).len(), 1);
}

#[test]
fn all_devices_that_are_out_of_service_are_put_back_at_once() {
    let mut world = World::new(1, 3);
    let person = world.core.new_key();
    let asked = |world: &mut World, asked: DeviceAsked| {
        world.core.device_asked(person, &asked);
        world.settle();
        let answers = world.to(person).filter_map(|message| match message {
            Message::StateReport(report) => Some((**report).clone()),
            _ => None,
        });
        answers.last().expect("an answer")
    };
    let all = |node: &str, action| DeviceAsked { node: node.into(), action, is_all: true, ..DeviceAsked::default() };
    for device in ["0", "2"] {
        let (node, device) = ("127.0.0.1".to_owned(), device.to_owned());
        asked(&mut world, DeviceAsked { node, device, action: DeviceAction::Drain, ..DeviceAsked::default() });
    }
    assert_eq!(world.total("GPU"), 10_000);
    let failure = asked(&mut world, all("", DeviceAction::Drain)).failure.expect("it is refused");
    assert!(failure.text.contains("and nothing else"), "{}", failure.text);
    let failure = asked(&mut world, all("nowhere", DeviceAction::Undrain)).failure.expect("there is none");
    assert!(failure.text.contains("no living node is `nowhere`"), "{}", failure.text);
    let told = asked(&mut world, all("127.0.0.1", DeviceAction::Undrain)).devices;
    assert_eq!(told.iter().map(|told| told.slot).collect::<Vec<_>>(), [0, 2]);
    assert_eq!((world.total("GPU"), world.out_of_service().len()), (30_000, 0));
    assert_eq!(asked(&mut world, all("", DeviceAction::Undrain)).devices, []);
}

#[test]
fn a_template_with_a_device_open_is_replaced_once_and_ends_with_its_last_worker() {
    let mut world = World::with_own_nodes(4, 2);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    let (lease, worker) = world.granted(driver, 1);
    let template = world.forked_from[&worker];
    let number = Some(DeviceNumber { major: 195, minor: 1 });
    let holds = TemplateHolds { path: "/dev/nvidia1".into(), number };
    world.core.template_holds(template, &holds);
    world.core.template_holds(template, &holds);
    world.settle();
    let told = world.notices(driver);
    assert!(told.len() == 1 && told[0].contains("has GPU 1 open (/dev/nvidia1)"), "{told:?}");
    assert!(told[0].contains("it is replaced by a new one"), "{told:?}");
    for spare in world.ending() {
        world.bury(spare, "killed by signal 9 (SIGKILL)");
    }
    world.pass(Duration::from_secs(60));
    assert!(world.ended_templates.is_empty(), "a worker of it is in use");

    world.say(driver, request(2, &[CPU, GPU]));
    let (_, other) = world.granted(driver, 2);
    let successor = world.forked_from[&other];
    assert_ne!(successor, template);
    world.core.template_holds(successor, &holds);
    world.settle();
    assert!(world.notices(driver)[1].contains("so had the one before"), "{:?}", world.notices(driver));
    world.say(driver, request(3, &[CPU, GPU]));
    let (_, last) = world.granted(driver, 3);
    assert_eq!(world.forked_from[&last], successor, "no other would be better");
    world.core.template_holds(successor, &holds);
    world.settle();
    assert_eq!(world.notices(driver).len(), 2, "it is told once, whatever the template says");
    let later = world.driver();
    world.say(later, request(1, &[CPU]));
    let told = world.notices(later);
    assert!(told.len() == 1 && told[0].contains("so had the one before"), "who comes later is told, too: {told:?}");

    world.say(driver, LeaseReturn { lease, retiring: true });
    world.bury(worker, "exited with code 0");
    world.pass(Duration::from_secs(60));
    assert_eq!(world.ended_templates, [template]);
}

#[test]
fn a_worker_that_a_template_with_a_device_open_gives_back_is_forked_by_the_next_one() {
    let mut world = World::with_own_nodes(4, 2);
    world.forks_wait = true;
    let driver = world.driver();
    world.say(driver, request(1, &[GPU]));
    let (worker, template) = world.forked_from.iter().next().map(|(worker, of)| (*worker, *of)).expect("an order");
    assert!(!world.core.fork_given_back(template, worker), "it has said nothing of a device");
    let number = Some(DeviceNumber { major: 195, minor: 1 });
    world.core.template_holds(template, &TemplateHolds { path: "/dev/nvidia1".into(), number });
    assert!(world.core.fork_given_back(template, worker));
    world.settle();
    let successor = world.forked_from[&worker];
    assert_ne!(successor, template);
    assert!(world.forks_even_with_devices.contains(&worker), "no other would be better");
    assert!(!world.core.fork_given_back(template, worker), "it is not the other's any more");
    assert!(!world.core.fork_given_back(successor, worker), "which is to fork it");
    world.core.forked(worker, 4711);
    world.settle();
    assert_eq!(world.granted(driver, 1).1, worker);
}

#[test]
fn a_template_that_nobody_uses_does_not_keep_a_device_open() {
    let mut world = World::with_own_nodes(4, 2);
    let driver = world.driver();
    let number = Some(DeviceNumber { major: 195, minor: 1 });
    let holds = TemplateHolds { path: "/dev/nvidia1".into(), number };
    let mut templates = Vec::new();
    for number in [1, 2] {
        world.say(driver, request(number, &[CPU, GPU]));
        let (lease, worker) = world.granted(driver, number);
        let template = world.forked_from[&worker];
        world.core.template_holds(template, &holds);
        world.settle();
        world.say(driver, LeaseReturn { lease, retiring: true });
        world.bury(worker, "exited with code 0");
        for spare in world.ending() {
            world.bury(spare, "killed by signal 9 (SIGKILL)");
        }
        templates.push(template);
    }
    world.pass(Duration::from_secs(180));
    assert_eq!(world.ended_templates, templates, "not even that of a living driver's own interpreter stays");
    world.say(driver, request(3, &[CPU]));
    let (_, worker) = world.granted(driver, 3);
    assert!(!templates.contains(&world.forked_from[&worker]));
    assert_eq!(world.notices(driver).len(), 2, "the next one may be fit");
}

#[test]
fn no_more_nodes_are_drained_for_restarts_than_have_half_of_the_devices() {
    let mut head = World::new(1, 4);
    let [mut first, mut second] = [7, 8].map(|node| Told::joins(&mut head, node));
    first.tell(&mut head, vec![ill(0, true)]);
    assert_eq!((drained_for(&head).len(), alerts(&head).len()), (1, 0));
    second.tell(&mut head, vec![ill(3, true)]);
    assert_eq!(drained_for(&head).len(), 1, "BREAKER-3");
    let told = alerts(&head);
    let [alert] = &told[..] else { panic!("one resource: {told:?}") };
    assert!(alert.contains(&format!("are not being drained: GPU 3 of node {}", NodeId::new([8; 28]))), "{alert}");
    head.pass(Duration::from_secs(601));
    second.tell(&mut head, vec![ill(3, true)]);
    assert_eq!(drained_for(&head).len(), 1, "or else all nodes were drained one after the other");
    second.tell(&mut head, Vec::new());
    assert_eq!(alerts(&head), [""; 0]);
}

#[test]
fn a_node_that_is_kept_after_all_is_not_drained_again_before_its_device_was_well_whichever_head_there_is() {
    let mut head = World::keeping(1, 4, Rows::new());
    let mut member = Told::joins(&mut head, 7);
    member.tell(&mut head, vec![ill(1, true)]);
    assert_eq!(drained_for(&head).len(), 1);
    // Somebody keeps it: nothing is on it, so that it was told to end at once.
    head.core.as_head_mut().members.drains.clear();
    member.tell(&mut head, vec![ill(1, false)]);
    member.tell(&mut head, vec![ill(1, true)]);
    assert_eq!(drained_for(&head), [""; 0], "its driver did not tell for a moment");
    let mut next = World::keeping(1, 4, head.rows.clone());
    let node = NodeId::new([7; 28]);
    let before = next.core.as_head_mut().members.restarts_before.get(&node).cloned();
    assert_eq!(before, Some(BTreeSet::from([("GPU".to_owned(), 1)])));
    let mut resumed = Told::joins(&mut next, 7);
    resumed.tell(&mut next, vec![ill(1, true)]);
    assert_eq!(drained_for(&next), [""; 0], "the next head keeps it as well");
    resumed.tell(&mut next, Vec::new());
    resumed.tell(&mut next, vec![ill(1, true)]);
    assert_eq!(drained_for(&next).len(), 1, "it was well, and is ill again");
}
