//! Answers beside those that Ray 2.60 gave (`tests/fixtures/ray_http`): the same keys in the same order, with values of the
//! same kinds.

use oxiray_ids::{ActorId, JobId, NodeId, PlacementGroupId, TaskId, Unique, WorkerId};
use oxiray_ray_api::jobs::details;
use oxiray_ray_api::nodes::{ClusterView, cluster_metadata, timeline};
use oxiray_ray_api::{RayAnswer, profiling, state};
use oxiray_wire::message::{CallOrigin, DeviceUse, ObjectUse, StateReport, SubmissionState, TaskStage, Variable};
use oxiray_wire::state::{
    ActorPhase, ActorRow, BundleRow, CallCounts, DiskSpace, DriverProcess, EnvironmentRow, ExitKind, Flow, GroupRow,
    GroupScheduling, GroupState, JobRow, Lifetime, MeasuredNode, MemoryStatistics, NodeDaemon, NodeRow, NodeStatistics,
    ObjectCounts, ObjectRow, STATE_VERSION, StateKind, Summary, Tables, TaskKind, TaskRow, TaskSurroundings,
    WorkerDuty, WorkerExit, WorkerRow, WorkerStatistics,
};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

/// What JSON is made of, in its order.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Null,
    Flag,
    Whole,
    Real,
    Text,
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shapes;
        impl<'de> Visitor<'de> for Shapes {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Shape, E> {
                Ok(Shape::Null)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
                Ok(Shape::Flag)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
                Ok(Shape::Whole)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
                Ok(Shape::Whole)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
                Ok(Shape::Real)
            }

            fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
                Ok(Shape::Text)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Shape::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Shape::Map(entries))
            }
        }
        deserializer.deserialize_any(Shapes)
    }
}

/// How an answer may differ from Ray's, by the ends of paths.
#[derive(Default)]
struct Leave<'a> {
    /// Nothing in one of both: Ray had none there, or Oxiray does not record it.
    null: &'a [&'a str],
    /// Keys that programs or machines choose.
    named: &'a [&'a str],
    /// Keys of Ray's that Oxiray has not.
    missing: &'a [&'a str],
}

fn recorded(name: &str) -> Shape {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ray_http").join(name);
    serde_json::from_str(&fs::read_to_string(&file).expect("a recorded answer")).expect("it is JSON")
}

fn compare(name: &str, ours: &RayAnswer, leave: &Leave<'_>) {
    let told: Shape = serde_json::from_str(&ours.body).expect("it is JSON");
    let code = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/fixtures/ray_http")
            .join(name.replace(".body", ".code")),
    );
    if let Ok(code) = code {
        assert_eq!(code.trim(), ours.code.to_string(), "{name}");
    }
    alike(&recorded(name), &told, name, leave);
}

fn ends(path: &str, names: &[&str]) -> bool {
    names.iter().any(|name| path.ends_with(&format!("/{name}")))
}

fn alike(theirs: &Shape, ours: &Shape, path: &str, leave: &Leave<'_>) {
    match (theirs, ours) {
        (Shape::Map(_), Shape::Map(own)) if ends(path, leave.named) => {
            let Shape::Map(known) = theirs else { unreachable!("it was just one") };
            if let (Some((_, first)), false) = (known.first(), own.is_empty()) {
                for (key, value) in own {
                    alike(first, value, &format!("{path}/{key}"), leave);
                }
            }
        }
        (Shape::Map(known), Shape::Map(own)) => {
            let keys = |of: &[(String, Shape)]| of.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
            let mut wanted = keys(known);
            wanted.retain(|key| !leave.missing.contains(&key.as_str()));
            assert_eq!(keys(own), wanted, "the keys of {path}");
            for (key, value) in own {
                let beside = &known.iter().find(|(name, _)| name == key).expect("it was just found").1;
                alike(beside, value, &format!("{path}/{key}"), leave);
            }
        }
        (Shape::List(known), Shape::List(own)) => {
            for (index, value) in own.iter().enumerate() {
                // Lists of the same length may be of several kinds, place by place.
                let beside = if known.len() == own.len() { known.get(index) } else { known.first() };
                if let Some(beside) = beside {
                    alike(beside, value, path, leave);
                }
            }
            assert_eq!(known.is_empty(), own.is_empty() && known.is_empty(), "whether {path} has anything");
        }
        (Shape::Null, _) | (_, Shape::Null) if theirs != ours => {
            assert!(ends(path, leave.null), "{path}: Ray has {theirs:?}, and here is {ours:?}");
        }
        _ => assert_eq!(theirs, ours, "{path}"),
    }
}

fn node_id() -> NodeId {
    NodeId::new([1; 28])
}

fn worker_id() -> WorkerId {
    WorkerId::new([2; 28])
}

fn job() -> JobId {
    JobId::from_number(1)
}

fn amounts() -> BTreeMap<String, f64> {
    BTreeMap::from([("CPU".to_owned(), 1.0), ("object_store_memory".to_owned(), 2e8)])
}

fn ask(kind: StateKind, rest: &[(&str, &str)], tables: Tables) -> RayAnswer {
    let query: Vec<(String, String)> =
        rest.iter().chain(&[("detail", "True")]).map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let asked = state::asked(kind, &query).expect("a right question");
    let report = StateReport { version: STATE_VERSION, total: 1, tables: Some(tables), ..StateReport::default() };
    state::listed(&asked, &report, false)
}

fn actors() -> Vec<ActorRow> {
    let mut unique = Unique::default();
    let alive = ActorRow {
        actor_id: ActorId::generate(job(), &mut unique),
        class: "A".into(),
        name: "named".into(),
        namespace: "n".into(),
        job_id: job(),
        state: ActorPhase::Alive,
        pid: Some(7),
        node_id: Some(node_id()),
        resources: Some(amounts().into()),
        ..ActorRow::default()
    };
    let (cause, ip) = (Some("its process was killed".into()), Some("127.0.0.1".into()));
    let dead = ActorRow {
        state: ActorPhase::Dead,
        cause,
        ip,
        actor_id: ActorId::generate(job(), &mut unique),
        ..alive.clone()
    };
    vec![dead, alive]
}

#[test]
fn actors_are_listed_as_rays_are() {
    let reply = ask(StateKind::Actors, &[], Tables { actors: actors(), ..Tables::default() });
    let leave = Leave {
        null: &["serialized_runtime_env", "death_cause"],
        named: &["required_resources", "label_selector"],
        ..Leave::default()
    };
    compare("v0_actors.body", &reply, &leave);
    assert!(reply.body.contains(r#""num_restarts":"0","#), "a number as a text: {}", reply.body);
    assert!(reply.body.contains(r#""reason":"WORKER_DIED","never_started":false}"#), "{}", reply.body);
}

fn task() -> TaskRow {
    let surroundings =
        TaskSurroundings { environment: Some(r#"{"env_vars": {}}"#.into()), ..TaskSurroundings::default() };
    TaskRow {
        task_id: TaskId::generate(ActorId::nil_of(job()), &mut Unique::default()),
        name: "f".into(),
        function: "f".into(),
        stage: TaskStage::WaitsForWorker,
        resources: Some(amounts().into()),
        origin: Some(CallOrigin { called_us: 1_795_441_906_850_000, ready_after_us: Some(1), ..CallOrigin::default() }),
        surroundings: Some(surroundings),
        ..TaskRow::default()
    }
}

#[test]
fn tasks_are_listed_as_rays_are() {
    let reply = ask(StateKind::Tasks, &[], Tables { tasks: vec![task()], ..Tables::default() });
    let leave = Leave { named: &["required_resources"], ..Leave::default() };
    compare("v0_tasks.body", &reply, &leave);
    assert!(reply.body.contains(r#"{"state":"PENDING_ARGS_AVAIL","created_ms":1795441906850.0}"#), "{}", reply.body);
    let empty = ask(StateKind::Tasks, &[], Tables::default());
    compare("v0_tasks_filter.body", &empty, &Leave::default());
}

fn measured() -> Vec<MeasuredNode> {
    let flow = Some(Flow { total: 9, per_s: 1 });
    let worker = WorkerStatistics { pid: 7, resident_kib: 2048, own_kib: 1024, cpu_permille: 250, files: 9 };
    let statistics = NodeStatistics {
        measured_ms: 1,
        booted_s: 1,
        cpu_permille: 679,
        cpu_millis: 2000,
        loads: vec![135, 104, 83],
        memory: Some(MemoryStatistics { limit: 100, used: 25, shared: 1, host_limit: 100, host_used: 30, spilled: 0 }),
        disk: Some(DiskSpace { size: 100, used: 20, free: 60 }),
        disk_read: flow,
        disk_written: flow,
        disk_reads: flow,
        disk_writes: flow,
        sent: flow,
        received: flow,
        workers: vec![worker],
        metrics: None,
    };
    vec![MeasuredNode { node_id: node_id(), statistics: Some(statistics), ..MeasuredNode::default() }]
}

fn nodes() -> Vec<NodeRow> {
    vec![NodeRow {
        node_id: node_id(),
        address: "127.0.0.1".into(),
        hostname: "vm".into(),
        name: "127.0.0.1".into(),
        socket: "/tmp/s/socket".into(),
        alive: true,
        head: true,
        labels: BTreeMap::from([("ray.io/node-id".to_owned(), node_id().hex())]),
        resources: amounts(),
        available: BTreeMap::from([("CPU".to_owned(), 0.5)]),
        daemon: Some(NodeDaemon { lifetime: Some(Lifetime { started_ms: 5, ended_ms: 0 }), ..NodeDaemon::default() }),
        devices: vec![DeviceUse {
            resource: "GPU".into(),
            id: "GPU-1".into(),
            busy_percent: Some(5),
            ..DeviceUse::default()
        }],
        ..NodeRow::default()
    }]
}

#[test]
fn nodes_are_listed_as_rays_are() {
    let reply = ask(StateKind::Nodes, &[], Tables { nodes: nodes(), ..Tables::default() });
    compare("v0_nodes.body", &reply, &Leave { named: &["resources_total", "labels"], ..Leave::default() });
}

fn workers() -> Vec<WorkerRow> {
    let alive = WorkerRow {
        worker_id: worker_id(),
        pid: Some(7),
        duty: WorkerDuty::Actor,
        job_id: Some(job()),
        node: Some(node_id()),
        ip: "127.0.0.1".into(),
        ..WorkerRow::default()
    };
    let exit = WorkerExit { kind: ExitKind::IntendedSystem, detail: "it was idle".into(), ended_ms: 6 };
    vec![alive.clone(), WorkerRow { exit: Some(exit), started_ms: 5, pid: Some(8), ..alive }]
}

#[test]
fn workers_are_listed_as_rays_are() {
    let reply = ask(StateKind::Workers, &[], Tables { workers: workers(), ..Tables::default() });
    compare("v0_workers.body", &reply, &Leave { null: &["exit_type", "exit_detail"], ..Leave::default() });
    assert!(reply.body.contains(r#""worker_launch_time_ms":18446744073709551615,"#), "{}", reply.body);
    assert!(reply.body.contains(r#""end_time_ms":0,"#), "the living: {}", reply.body);
}

#[test]
fn jobs_are_listed_as_rays_are() {
    let row = JobRow {
        submission: "two".into(),
        state: SubmissionState::Failed,
        message: Some("it failed".into()),
        error: Some("JOB_ENTRYPOINT_COMMAND_ERROR".into()),
        entrypoint: Some("exit 3".into()),
        node: Some(node_id()),
        started_ms: 5,
        ended_ms: 6,
        exit_code: Some(3),
        ..JobRow::default()
    };
    let driver = Some(DriverProcess { job: job(), ip: "127.0.0.1".into(), pid: 5 });
    let connected = JobRow {
        driver,
        submission: "one".into(),
        state: SubmissionState::Running,
        metadata: BTreeMap::from([("a".into(), "b".into())]),
        runtime_env: r#"{"env_vars": {"X": "1"}}"#.into(),
        error: None,
        ended_ms: 0,
        exit_code: None,
        ..row.clone()
    };
    let told: Vec<_> = [row, connected].iter().map(|row| details(row, Some("hi\n"), false, "/uploads")).collect();
    let report = StateReport { total: 2, ..StateReport::default() };
    let whole = state::asked(StateKind::Jobs, &query(&[("detail", "1")])).expect("a right question");
    let reply = state::listed_jobs(&whole, &report, &told);
    // Its daemons serve no HTTP.
    compare("v0_jobs.body", &reply, &Leave { null: &["driver_agent_http_address"], ..Leave::default() });
    assert!(reply.body.contains(r#""driver_info":{"id":"01000000","node_ip_address":"127.0.0.1","pid":"5"}"#));
    let brief = state::asked(StateKind::Jobs, &[]).expect("a right question");
    assert!(state::listed_jobs(&brief, &report, &told).body.contains(
        r#"[{"job_id":null,"submission_id":"two","entrypoint":"exit 3","type":"SUBMISSION","status":"FAILED","message""#
    ));
}

#[test]
fn placement_groups_are_listed_as_rays_are() {
    let bundle = BundleRow { resources: amounts(), node_id: Some(node_id()), ..BundleRow::default() };
    let group = GroupRow {
        placement_group_id: PlacementGroupId::new([3; 18]),
        name: "pg1".into(),
        state: GroupState::Created,
        job_id: job(),
        bundles: vec![bundle],
        scheduling: GroupScheduling::Finished,
        creation_ms: 4.816,
        ..GroupRow::default()
    };
    let reply = ask(StateKind::PlacementGroups, &[], Tables { placement_groups: vec![group], ..Tables::default() });
    compare("v0_placement_groups.body", &reply, &Leave { named: &["unit_resources"], ..Leave::default() });
    assert!(reply.body.contains(r#""end_to_end_creation_latency_us":"4816","#), "a number as a text: {}", reply.body);
}

#[test]
fn objects_and_environments_are_listed_as_rays_are() {
    let object = ObjectRow {
        object: task().task_id.object(1),
        size: Some(15),
        stage: TaskStage::Finished,
        used: ObjectUse::Referred,
        site: "disabled".into(),
        pid: 7,
        ip: "127.0.0.1".into(),
        ..ObjectRow::default()
    };
    let reply = ask(StateKind::Objects, &[], Tables { objects: vec![object], ..Tables::default() });
    compare("v0_objects.body", &reply, &Leave::default());
    let variables = vec![Variable { name: "X".into(), value: Some("secret".into()) }];
    let row = EnvironmentRow { variables, node: node_id(), uses: 3 };
    let reply = ask(StateKind::RuntimeEnvs, &[], Tables { runtime_envs: vec![row], ..Tables::default() });
    let leave = Leave { null: &["creation_time_ms"], named: &["env_vars"], ..Leave::default() };
    compare("v0_runtime_envs.body", &reply, &leave);
    assert!(reply.body.contains(r#""ref_cnt":"3""#), "a number as a text: {}", reply.body);
}

fn count(kind: StateKind, summary: Summary) -> RayAnswer {
    let asked = state::counts_asked(kind, &[]).expect("a right question");
    state::counted(&asked, &StateReport { total: 3, summary: Some(summary), ..StateReport::default() })
}

#[test]
fn summaries_are_rays() {
    let states = BTreeMap::from([("FINISHED".to_owned(), 3)]);
    let calls = |kind| BTreeMap::from([("f".to_owned(), CallCounts { kind, states: states.clone() })]);
    let kinds = BTreeMap::from([("NORMAL_TASK".to_owned(), 3)]);
    let tasks = Summary { of: StateKind::Tasks, calls: calls(TaskKind::Normal), kinds, total: 3, ..Summary::default() };
    let named = &["summary", "state_counts", "task_state_counts", "task_attempt_number_counts", "ref_type_counts"];
    let leave = Leave { named, ..Leave::default() };
    compare("v0_sum_tasks.body", &count(StateKind::Tasks, tasks), &leave);
    let actors = Summary { of: StateKind::Actors, calls: calls(TaskKind::Normal), total: 3, ..Summary::default() };
    compare("v0_sum_actors.body", &count(StateKind::Actors, actors), &leave);
    let counts = ObjectCounts {
        references: 1,
        bytes: 15,
        processes: 1,
        machines: 1,
        stages: states.clone(),
        attempts: BTreeMap::from([("1".to_owned(), 1)]),
        uses: BTreeMap::from([("LOCAL_REFERENCE".to_owned(), 1)]),
    };
    let objects = BTreeMap::from([("disabled".to_owned(), counts)]);
    let objects = Summary { of: StateKind::Objects, objects, total: 1, ..Summary::default() };
    compare("v0_sum_objects.body", &count(StateKind::Objects, objects), &leave);
}

fn query(given: &[(&str, &str)]) -> Vec<(String, String)> {
    given.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

#[test]
fn wrong_questions_are_refused_as_rays_are() {
    let refused = |given: &[(&str, &str)]| state::asked(StateKind::Tasks, &query(given)).expect_err("a wrong question");
    let colour = [("filter_keys", "colour"), ("filter_predicates", "="), ("filter_values", "x")];
    compare("v0_tasks_badfilter.body", &refused(&colour), &Leave::default());
    assert!(refused(&colour).body.contains("The given filter column colour is not supported. Enter filters with"));
    compare("v0_tasks_limit.body", &refused(&[("limit", "20000")]), &Leave::default());
    assert!(refused(&[("limit", "20000")]).body.contains("Given limit 20000 exceeds the supported limit 10000."));
    let wrong: [&[(&str, &str)]; 6] = [
        &[("limit", "-1")],
        &[("limit", "x")],
        &[("detail", "maybe")],
        &[("timeout", "soon")],
        &[("filter_keys", "state"), ("filter_values", "x")],
        &[("filter_keys", "state"), ("filter_predicates", "<"), ("filter_values", "x")],
    ];
    for given in wrong {
        assert_eq!(refused(given).code, 400, "{given:?}");
    }
    let by = state::counts_asked(StateKind::Tasks, &query(&[("summary_by", "lineage")])).expect_err("it is not there");
    assert!(by.body.contains("must be one of"), "{}", by.body);
}

#[test]
fn questions_are_read_as_rays_client_writes_them() {
    let given = [
        ("limit", "50"),
        ("timeout", "24"),
        ("detail", "False"),
        ("exclude_driver", "True"),
        ("server_timeout_multiplier", "0.8"),
        ("filter_keys", "STATE"),
        ("filter_keys", "language"),
        ("filter_predicates", "="),
        ("filter_predicates", "!="),
        ("filter_values", "RUNNING"),
        ("filter_values", "JAVA"),
    ];
    let asked = state::asked(StateKind::Tasks, &query(&given)).expect("a right question");
    assert_eq!((asked.query.limit, asked.detail, asked.timeout_s), (50, false, 24));
    let filters = asked.query.filters.iter().map(|one| (one.key.as_str(), one.differs, one.value.as_str()));
    assert!(filters.eq([("state", false, "RUNNING"), ("language", true, "JAVA")]));
    assert_eq!(state::kind("runtime_envs"), Some(StateKind::RuntimeEnvs));
    assert_eq!(["timeline", "stacks", "dreams"].map(state::kind), [None; 3]);
    assert_eq!(state::asked(StateKind::Nodes, &[]).expect("a right question").query.limit, 100);
}

#[test]
fn events_are_listed_as_rays_are() {
    let asked = state::events_asked(&query(&[("detail", "True"), ("limit", "1")])).expect("it is understood");
    assert_eq!(asked.limit, 1);
    let event = serde_json::json!({
        "severity": "INFO", "time": "2026-11-23 13:51:45", "source_type": "JOBS", "message": "a job began",
        "event_id": "07", "custom_fields": {"submission_id": "one"},
    });
    let reply = state::listed_events(&asked, std::slice::from_ref(&event), 3);
    compare("v0_cluster_events.body", &reply, &Leave::default());
    let asked = state::events_asked(&query(&[])).expect("it is understood");
    assert!(!state::listed_events(&asked, &[event], 3).body.contains("custom_fields"));
    assert!(state::events_asked(&query(&[("limit", "20000")])).is_err());
}

#[test]
fn a_browser_sees_no_values_of_variables() {
    let variables = vec![Variable { name: "X".into(), value: Some("secret".into()) }];
    let row = EnvironmentRow { variables, node: node_id(), uses: 3 };
    let environment = Some(r#"{"env_vars": {"X": "secret"}}"#.to_owned());
    let surroundings = Some(TaskSurroundings { environment, ..TaskSurroundings::default() });
    let tables =
        Tables { runtime_envs: vec![row], tasks: vec![TaskRow { surroundings, ..task() }], ..Tables::default() };
    for kind in [StateKind::RuntimeEnvs, StateKind::Tasks] {
        let asked = state::asked(kind, &query(&[("detail", "1")])).expect("a right question");
        let report = StateReport { tables: Some(tables.clone()), ..StateReport::default() };
        let (plain, browser) = (state::listed(&asked, &report, false), state::listed(&asked, &report, true));
        assert!(plain.body.contains("secret") && !browser.body.contains("secret"), "{}", browser.body);
        assert!(browser.body.contains("<redacted>"), "{}", browser.body);
    }
}

#[test]
fn a_name_that_a_program_chose_is_no_key_of_rays() {
    let states = BTreeMap::from([("FINISHED".to_owned(), 1)]);
    let names = ["type", "a", "summary"]
        .map(|name| (name.to_owned(), CallCounts { kind: TaskKind::Normal, states: states.clone() }));
    let summary = Summary { of: StateKind::Tasks, calls: names.into(), ..Summary::default() };
    let body = count(StateKind::Tasks, summary).body;
    for name in ["type", "a", "summary"] {
        assert!(body.contains(&format!("\"{name}\":{{\"func_or_class_name\":\"{name}\"")), "{body}");
    }
}

fn cluster<'a>(
    measured: &'a [MeasuredNode],
    nodes: &'a [NodeRow],
    workers: &'a [WorkerRow],
    actors: &'a [ActorRow],
) -> ClusterView<'a> {
    ClusterView { nodes, measured, workers, actors, now_ms: 1_795_441_919_159 }
}

#[test]
fn nodes_are_summed_up_as_rays_are() {
    let (nodes, workers, actors) = (nodes(), workers(), actors());
    let reply = cluster(&measured(), &nodes, &workers, &actors).summary();
    let told: serde_json::Value = serde_json::from_str(&reply.body).expect("it is JSON");
    let known: serde_json::Value = serde_json::from_str(
        &fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ray_http/nodes_summary.body"),
        )
        .expect("a recorded answer"),
    )
    .expect("it is JSON");
    let (told, known) = (&told["data"]["summary"][0], &known["data"]["summary"][0]);
    // Processes of Ray's that Oxiray has not.
    let none = ["agent", "gcs", "cmdline"];
    for (key, value) in known.as_object().expect("an object").iter().filter(|(key, _)| !none.contains(&key.as_str())) {
        assert_eq!(
            std::mem::discriminant(value),
            std::mem::discriminant(&told[key]),
            "{key}: {value} and {}",
            told[key]
        );
    }
    for key in ["nodeId", "state", "isHeadNode", "resourcesTotal", "labels", "startTimeMs", "endTimeMs", "nodeName"] {
        let (value, own) = (&known["raylet"][key], &told["raylet"][key]);
        assert_eq!(std::mem::discriminant(value), std::mem::discriminant(own), "{key}: {value} and {own}");
    }
    assert_eq!(told["mem"], serde_json::json!([100, 75, 25.0, 25]));
    assert_eq!(told["disk"]["/"]["percent"], 25.0, "as df counts");
    assert_eq!(told["raylet"]["resourcesTotal"]["objectStoreMemory"], 2e8);
    assert!(
        reply.body.contains(r#""nodeLogicalResources":{"0101"#)
            && reply.body.contains(r"0.5/1.0 CPU\n0B/190.73MiB object_store_memory")
    );
    let detail = cluster(&measured(), &nodes, &workers, &actors).detail(&node_id().hex());
    assert!(
        detail.code == 200
            && detail.body.contains(r#""data":{"detail":{"now""#)
            && detail.body.contains(r#""actors":{""#)
    );
    assert_eq!(cluster(&measured(), &nodes, &workers, &actors).detail("ab").code, 404);
    compare("hostlist.body", &cluster(&measured(), &nodes, &[], &[]).host_names(), &Leave::default());
}

#[test]
fn actors_are_told_of_as_rays_are() {
    let (nodes, workers, actors) = (nodes(), workers(), actors());
    let all = cluster(&measured(), &nodes, &workers, &actors).logical_actors(None);
    let leave =
        Leave { null: &["processStats"], named: &["actors", "requiredResources", "labelSelector"], ..Leave::default() };
    compare("logical_actors.body", &all, &leave);
    let id = actors[1].actor_id.hex();
    let one = cluster(&measured(), &nodes, &workers, &actors).logical_actors(Some(&id));
    assert!(one.body.contains(&id) && !one.body.contains(&actors[0].actor_id.hex()));
    assert_eq!(cluster(&measured(), &nodes, &workers, &actors).logical_actor(&id).code, 200);
    assert_eq!(cluster(&measured(), &nodes, &workers, &actors).logical_actor("ab").code, 404);
}

#[test]
fn the_cluster_is_described_and_what_ran_when_is_told_as_rays_is() {
    compare("meta.body", &cluster_metadata(), &Leave::default());
    compare("profiling_enabled.body", &profiling::enabled(false, 60), &Leave::default());
    let ran = TaskRow {
        started_us: 1_795_441_907_417_692,
        ended_us: 1_795_441_907_417_802,
        node_id: Some(node_id()),
        worker_id: Some(worker_id()),
        task_id: TaskId::generate(actors()[0].actor_id, &mut Unique::default()),
        ..task()
    };
    let waits = task();
    let reply = timeline(&[ran, waits], &nodes(), None);
    let Shape::List(known) = recorded("timeline.body") else { panic!("a list") };
    let Shape::List(told) = serde_json::from_str(&reply.body).expect("it is JSON") else { panic!("a list") };
    assert_eq!(told.len(), 3, "one ran, and its process and thread have names");
    // The recorded one has four events, the last of which is the whole call, and then the names.
    for (theirs, ours) in known[3..].iter().zip(&told) {
        alike(theirs, ours, "timeline", &Leave { null: &["tid"], ..Leave::default() });
    }
    assert_eq!(timeline(&[task()], &nodes(), Some("09000000")).body, "[]");
}
