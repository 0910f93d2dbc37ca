//! What the head tells of the machines and the cluster to those who draw boards.

use super::groups::group;
use super::{CPU, GPU, World, request};
use crate::members::OWN;
use oxiray_accelerators::DeviceUse;
use oxiray_families::{ProcessMemory, Usage};
use oxiray_machine::Residue;
use oxiray_wire::Message;
use oxiray_wire::message::{
    DeviceAction, DeviceAsked, EndedCalls, LeaseReturn, MetricsQuery, NodeState, StateQuery, TaskLog,
};
use oxiray_wire::state::{DaemonStatistics, Flow, MemoryStatistics, NodeStatistics, StateKind, WorkerStatistics};
use std::time::Duration;

fn measured(cpu_permille: u32) -> NodeStatistics {
    let worker = WorkerStatistics { pid: 7, resident_kib: 2048, own_kib: 1024, cpu_permille: 250, files: 9 };
    NodeStatistics {
        cpu_permille,
        cpu_millis: 2_000,
        memory: Some(MemoryStatistics { limit: 100, used: 25, shared: 1, host_limit: 200, host_used: 30, spilled: 7 }),
        received: Some(Flow { total: 900, per_s: 3 }),
        workers: vec![worker],
        ..NodeStatistics::default()
    }
}

fn text(world: &mut World, asked: &MetricsQuery) -> String {
    let asker = world.driver();
    world.core.metrics_query(asker, asked);
    world.settle();
    let told = world.to(asker).find_map(|message| match message {
        Message::MetricsReport(report) => Some(report.text.clone()),
        _ => None,
    });
    told.expect("an answer")
}

#[test]
fn a_node_exports_its_machine_with_the_tags_of_the_session() {
    let mut world = World::new(2, 1);
    world.core.machine_measured(measured(679));
    let driver = world.driver();
    world.say(driver, request(1, &[CPU, GPU]));
    let (_, worker) = world.granted(driver, 1);
    let pid = world.core.as_head_mut().workers.pid_of(worker).expect("it was forked");
    let process = ProcessMemory { pid, bytes: 3 << 20, busy_percent: Some(7), ..ProcessMemory::default() };
    let usage = Usage { processes: vec![process], ..Usage::default() };
    world.core.devices_measured(vec![DeviceUse { resource: "GPU", slot: 0, id: "0".to_owned(), usage }]);
    let shown = text(&mut world, &MetricsQuery { is_export: true, ..MetricsQuery::default() });
    let line = |name: &str| {
        let mut found = shown.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        let line = found.next().unwrap_or_else(|| panic!("{name} in {shown}"));
        (line.to_owned(), line.rsplit(' ').next().expect("a value").to_owned())
    };
    let (receives, speed) = line("ray_node_network_receive_speed");
    assert_eq!(speed, "3.0");
    for tag in ["IsHeadNode=\"true\"", "RayNodeType=\"head\"", "SessionName=\"", "Version=\"2.60.0\"", "ip=\""] {
        assert!(receives.contains(tag), "{tag} in {receives}");
    }
    let values = [
        ("ray_node_cpu_utilization", "67.9"),
        ("ray_node_mem_available", "75.0"),
        ("ray_node_mem_total_host", "200.0"),
        ("ray_component_rss_bytes", "2097152.0"),
        ("ray_node_gpus_available", "1.0"),
        ("ray_component_gpu_memory_mb", "3.0"),
        ("ray_component_gpu_percentage", "7.0"),
        ("oxiray_device_share", "1.0"),
        ("ray_cluster_active_nodes", "1.0"),
    ];
    for (name, value) in values {
        assert_eq!(line(name).1, value, "{name}");
    }
    let is_spilled = |line: &str| line.contains("Location=\"SPILLED\"") && line.ends_with(" 7.0");
    assert!(shown.lines().any(is_spilled), "{shown}");
    assert!(line("oxiray_device_state").0.contains("state=\"in service\""));
    assert!(line("ray_component_rss_bytes").0.contains("Component=\"ray::"));
}

#[test]
fn what_is_measured_places_nobody_and_is_told_in_detail_only() {
    let mut world = World::new(1, 0);
    let asker = world.driver();
    let nodes = |world: &mut World, request, detail| {
        world.core.state_query(
            asker,
            StateQuery { request, kind: StateKind::Nodes, limit: 10, detail, ..StateQuery::default() },
        );
        world.settle();
        let told = world.to(asker).find_map(|message| match message {
            Message::StateReport(report) if report.request == request => report.tables.clone(),
            _ => None,
        });
        told.expect("rows").measured
    };
    for permille in [10, 20] {
        world.core.machine_measured(measured(permille));
        world.settle();
    }
    let members = &mut world.core.as_head_mut().members;
    let state = NodeState { statistics: Some(measured(20)), ..members.own().state.clone() };
    assert!(
        !members.changed(OWN, NodeState { statistics: Some(measured(30)), ..state.clone() }),
        "nothing is free that was not"
    );
    assert!(members.changed(OWN, NodeState { store_used: 1, ..state }), "the ledger changed");
    world.core.machine_measured(measured(20));
    world.settle();
    assert!(nodes(&mut world, 1, false).is_empty());
    let told = nodes(&mut world, 2, true);
    assert_eq!(told[0].statistics.as_ref().map(|found| found.cpu_permille), Some(20), "the latest alone is kept");
}

#[test]
fn names_of_tasks_and_what_waits_are_told() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    world.granted(driver, 1);
    world.say(driver, request(2, &[CPU]));
    world.settle();
    let all = text(&mut world, &MetricsQuery::default());
    assert!(all.contains("State=\"RUNNING\"} 1.0") && all.contains("State=\"PENDING_NODE_ASSIGNMENT\"} 1.0"), "{all}");
    assert!(all.contains("oxiray_waiting{kind=\"task\",reason=\"busy\",resource=\"CPU\"} 1.0"), "{all}");
    assert!(all.contains("ray_scheduler_unscheduleable_tasks{Reason=\"WaitingForResources\"} 1.0"), "{all}");
    assert!(!all.contains("SessionName"), "{all}");
    let few = text(&mut world, &MetricsQuery { leaves_names_out: true, ..MetricsQuery::default() });
    assert!(
        few.contains("ray_tasks{IsRetry=\"0\"")
            && !few.lines().any(|line| line.starts_with("ray_tasks") && line.contains("Name=")),
        "{few}"
    );
}

#[test]
fn what_ended_is_counted_by_name_attempt_and_end_as_long_as_its_job_is_remembered() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    let (_, worker) = world.granted(driver, 1);
    let ended = |name: &str, is_retry, has_failed, count| EndedCalls { name: name.into(), is_retry, has_failed, count };
    let first = vec![ended("f", false, false, 3), ended("f", false, true, 1), ended("f", true, false, 1)];
    for told in [first, vec![ended("f", false, false, 2)]] {
        world.say(worker, TaskLog { ended: told, ..TaskLog::default() });
    }
    let shown = text(&mut world, &MetricsQuery::default());
    let line = |is_retry: u8, state: &str, count: u8| {
        format!(
            "ray_tasks{{IsRetry=\"{is_retry}\",JobId=\"01000000\",Name=\"f\",Source=\"owner\",State=\"{state}\"}} {count}.0\n"
        )
    };
    for line in [line(0, "FINISHED", 5), line(0, "FAILED", 1), line(1, "FINISHED", 1)] {
        assert!(shown.contains(&line), "{line} in {shown}");
    }
    assert!(shown.contains("ray_finished_jobs_total 0.0\n"), "{shown}");
    let running = |shown: &str, is_retry: u8| {
        let is_it =
            |line: &&str| line.contains("State=\"RUNNING\"") && line.contains(&format!("IsRetry=\"{is_retry}\""));
        shown.lines().filter(is_it).count()
    };
    assert_eq!((running(&shown, 0), running(&shown, 1)), (1, 0));
    world.say(worker, TaskLog { runs_retry: true, ..TaskLog::default() });
    let shown = text(&mut world, &MetricsQuery::default());
    assert_eq!((running(&shown, 0), running(&shown, 1)), (0, 1), "{shown}");
    world.core.driver_left(driver);
    world.settle();
    assert!(text(&mut world, &MetricsQuery::default()).contains("ray_finished_jobs_total 1.0\n"));
}

#[test]
fn what_devices_were_granted_for_how_long_they_returned_and_why_they_were_taken_out_is_counted() {
    let mut world = World::new(1, 2);
    let driver = world.driver();
    world.residue = Some(Residue::Held);
    world.core.set_wall_clock(1_000_000);
    world.say(driver, request(1, &[GPU]));
    let (lease, worker) = world.granted(driver, 1);
    world.core.set_wall_clock(1_004_000);
    let shown = text(&mut world, &MetricsQuery::default());
    let granted =
        |seconds: &str| format!("oxiray_grant_seconds_total{{job=\"01000000\",resource=\"GPU\"}} {seconds}\n");
    assert!(shown.contains(&granted("4.0")), "{shown}");
    assert!(!shown.contains("oxiray_device_return_seconds") && !shown.contains("oxiray_quarantined_total"), "{shown}");
    assert!(shown.contains("oxiray_chronicle_dropped_total 0.0\n"), "{shown}");
    world.say(driver, LeaseReturn { lease, retiring: false });
    world.bury(worker, "killed by signal 9 (SIGKILL)");
    world.pass(Duration::from_secs(1));
    world.core.set_wall_clock(1_006_000);
    world.residue = Some(Residue::Gone);
    world.pass(Duration::from_secs(1));
    let drain = DeviceAsked { request: 7, action: DeviceAction::Drain, device: "1".into(), ..DeviceAsked::default() };
    let node = world.core.as_head_mut().members.own().view.node.hex();
    let visitor = world.driver();
    world.core.device_asked(visitor, &DeviceAsked { node, ..drain });
    world.settle();
    world.core.set_wall_clock(1_009_000);
    let shown = text(&mut world, &MetricsQuery::default());
    assert!(shown.contains(&granted("6.0")), "{shown}");
    for line in [
        "# TYPE oxiray_device_return_seconds histogram",
        "oxiray_device_return_seconds_bucket{resource=\"GPU\",le=\"1.0\"} 0",
        "oxiray_device_return_seconds_bucket{resource=\"GPU\",le=\"2.5\"} 1",
        "oxiray_device_return_seconds_sum{resource=\"GPU\"} 2.0",
        "oxiray_quarantined_total{reason=\"drained\"} 1.0",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} in {shown}");
    }
}

#[test]
fn what_a_placement_group_keeps_is_its_jobs() {
    let mut world = World::new(1, 2);
    let driver = world.driver();
    world.core.set_wall_clock(1_000_000);
    world.say(driver, group(1, &[&[GPU], &[GPU]]));
    world.settle();
    world.core.set_wall_clock(1_003_000);
    let shown = text(&mut world, &MetricsQuery::default());
    assert!(shown.contains("oxiray_grant_seconds_total{job=\"01000000\",resource=\"GPU\"} 6.0\n"), "{shown}");
}

#[test]
fn why_each_of_many_requests_waits_is_looked_up_for_the_first_alone() {
    let mut world = World::new(1, 0);
    let driver = world.driver();
    world.say(driver, request(1, &[CPU]));
    world.granted(driver, 1);
    for number in 0..300 {
        world.say(driver, request(2 + number, &[("CPU", 1 + number)]));
    }
    world.settle();
    let shown = text(&mut world, &MetricsQuery::default());
    let counted = |reason: &str| {
        let start = format!("oxiray_waiting{{kind=\"task\",reason=\"{reason}\",resource=\"CPU\"}} ");
        let line = shown.lines().find_map(|line| line.strip_prefix(&start));
        line.map_or(0.0, |count| count.parse::<f64>().expect("a count"))
    };
    assert!((counted("busy") - 256.0).abs() < 0.5 && (counted("unexamined") - 44.0).abs() < 0.5, "{shown}");
    assert!(shown.contains("ray_scheduler_unscheduleable_tasks{Reason=\"WaitingForResources\"} 300.0"), "{shown}");
}

#[test]
fn what_a_daemon_and_its_store_do_is_told_of_each_node() {
    let mut world = World::new(1, 0);
    let daemon = DaemonStatistics {
        turns: 10,
        turns_us: 2_500_000,
        longer_turns: vec![4, 4, 3, 1],
        objects: 5,
        pinned: 2,
        spilled: 1,
        spills: 7,
        restores: 6,
    };
    world.core.daemon_measured(daemon.clone());
    world.core.machine_measured(measured(1));
    world.settle();
    let shown = text(&mut world, &MetricsQuery::default());
    let value = |name: &str, tag: &str| {
        let found = shown.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(tag));
        found.and_then(|line| line.rsplit(' ').next()).unwrap_or_else(|| panic!("{name} {tag} in {shown}")).to_owned()
    };
    for (le, count) in [("0.001", "6"), ("0.002", "6"), ("0.005", "7"), ("0.01", "9"), ("0.02", "10"), ("+Inf", "10")] {
        assert_eq!(value("oxiray_loop_stall_seconds_bucket", &format!("le=\"{le}\"")), count, "{le}");
    }
    assert_eq!(value("oxiray_loop_stall_seconds_sum", ""), "2.5");
    let of_store = [
        ("ray_object_store_num_local_objects", "", "5.0"),
        ("ray_spill_manager_objects", "State=\"Pinned\"", "2.0"),
        ("ray_spill_manager_objects", "State=\"Spilled\"", "1.0"),
        ("ray_spill_manager_objects_bytes", "State=\"Spilled\"", "7.0"),
        ("ray_spill_manager_request_total", "Type=\"Spilled\"", "7.0"),
        ("ray_spill_manager_request_total", "Type=\"Restored\"", "6.0"),
        ("ray_cluster_idle_nodes", "", "1.0"),
    ];
    for (name, tag, expected) in of_store {
        assert_eq!(value(name, tag), expected, "{name} {tag}");
    }
    world.core.machine_measured(measured(2));
    world.settle();
    let shown = text(&mut world, &MetricsQuery::default());
    assert!(shown.contains("oxiray_loop_stall_seconds_count"), "the latest is kept: {shown}");
}
