use super::*;
use oxiray_ids::WorkerId;
use oxiray_wire::message::CallOrigin;
use oxiray_wire::state::{ChronicleEvent, DrainState, DriverProcess, Lifetime, NodeDaemon, Tables};

fn told() -> Told {
    Told::new("session_1".to_owned())
}

fn parsed(events: &[String]) -> Vec<Json> {
    events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect()
}

fn kinds(events: &[String]) -> Vec<String> {
    parsed(events).iter().map(|event| event["eventType"].as_str().expect("a type").to_owned()).collect()
}

fn changes(tables: Tables) -> StateChanges {
    StateChanges { tables: Some(tables), ..StateChanges::default() }
}

fn node() -> NodeRow {
    NodeRow {
        node_id: NodeId::new([7; 28]),
        alive: true,
        resources: [("CPU".to_owned(), 2.0)].into(),
        daemon: Some(lived(1_796_001_096_123, 0)),
        ..NodeRow::default()
    }
}

fn lived(started_ms: u64, ended_ms: u64) -> NodeDaemon {
    NodeDaemon { lifetime: Some(Lifetime { started_ms, ended_ms }), ..NodeDaemon::default() }
}

#[test]
fn a_node_is_told_of_when_it_comes_is_emptied_and_goes() {
    let mut told = told();
    let mut of = |row: NodeRow| told.lists(&changes(Tables { nodes: vec![row], ..Tables::default() }), 2_000_000);
    let begun = of(node());
    assert_eq!(kinds(&begun), ["NODE_DEFINITION_EVENT", "NODE_LIFECYCLE_EVENT"]);
    let lifecycle = &parsed(&begun)[1];
    let transition = &lifecycle["nodeLifecycleEvent"]["stateTransitions"][0];
    assert_eq!((&transition["state"], &transition["resources"]["CPU"]), (&"ALIVE".into(), &2.0.into()));
    assert_eq!(transition["timestamp"], "2026-11-30T01:11:36.123Z");
    assert_eq!(lifecycle["nodeId"], "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBw==");
    assert_eq!(of(NodeRow { store_used: 5, ..node() }), Vec::<String>::new(), "EXPORT-1");
    let draining = NodeRow { draining: Some(DrainState::default()), ..node() };
    let drained = parsed(&of(draining));
    assert_eq!(drained[0]["nodeLifecycleEvent"]["stateTransitions"][0]["aliveSubState"], "DRAINING");
    let gone = NodeRow { alive: false, death: "it left".to_owned(), daemon: Some(lived(1, 3_000)), ..node() };
    let ended = parsed(&of(gone.clone()));
    let transition = &ended[0]["nodeLifecycleEvent"]["stateTransitions"][0];
    assert_eq!((&transition["state"], &transition["timestamp"]), (&"DEAD".into(), &"1970-01-01T00:00:03Z".into()));
    assert_eq!(transition["deathInfo"]["reason"], "EXPECTED_TERMINATION");
    assert_eq!(of(gone), Vec::<String>::new());
}

#[test]
fn a_driver_is_told_of_without_the_values_of_its_variables() {
    let mut told = told();
    let driver = DriverProcess { job: JobId::from_number(1), ip: String::new(), pid: 71 };
    let row = JobRow {
        driver: Some(driver),
        runtime_env: r#"{"env_vars": {"A": "secret"}, "pip": ["x"]}"#.to_owned(),
        started_ms: 1_000,
        ..JobRow::default()
    };
    let mut of = |row: &JobRow| told.lists(&changes(Tables { jobs: vec![row.clone()], ..Tables::default() }), 1);
    let begun = of(&row);
    assert_eq!(kinds(&begun), ["DRIVER_JOB_DEFINITION_EVENT", "DRIVER_JOB_LIFECYCLE_EVENT"]);
    let definition = &parsed(&begun)[0]["driverJobDefinitionEvent"];
    assert_eq!((&definition["jobId"], &definition["driverPid"]), (&"AQAAAA==".into(), &"71".into()));
    let environment = definition["config"]["serializedRuntimeEnv"].as_str().expect("a text");
    assert!(environment.contains("<redacted>") && environment.contains("pip"), "{environment}");
    assert!(!begun[0].contains("secret"), "EXPORT-3");
    assert_eq!(of(&row), Vec::<String>::new());
    let ended = parsed(&of(&JobRow { ended_ms: 2_000, ..row }));
    let transitions = ended[0]["driverJobLifecycleEvent"]["stateTransitions"].as_array().expect("some");
    assert_eq!(transitions.iter().map(|one| &one["state"]).collect::<Vec<_>>(), ["CREATED", "FINISHED"]);
    let submitted = JobRow { submission: "waits".to_owned(), ..JobRow::default() };
    assert_eq!(of(&submitted), Vec::<String>::new(), "it has no driver yet");
    for (environment, sent) in [("", "{}"), ("no JSON", ""), ("[]", "")] {
        assert_eq!(sensible_environment(environment), sent);
    }
    assert_eq!(sensible_environment(&format!("{{\"a\": \"{}\"}}", "x".repeat(ENVIRONMENT_BYTES_MAX))), "");
}

#[test]
fn what_becomes_of_an_actor_waits_for_its_row() {
    let mut told = told();
    let actor_id = ActorId::new([5; 16]);
    let entry = |event, at_ms| ChronicleEntry {
        event,
        at_ms,
        actor: Some(actor_id),
        worker: Some(WorkerId::new([6; 28])),
        pid: 71,
        text: "it was killed".to_owned(),
        ..ChronicleEntry::default()
    };
    assert_eq!(told.entries([entry(ChronicleEvent::ActorAlive, 1)]), Vec::<String>::new());
    let row = ActorRow { actor_id, class: "Counter".to_owned(), state: ActorPhase::Alive, ..ActorRow::default() };
    let of = |row: &ActorRow| changes(Tables { actors: vec![row.clone()], ..Tables::default() });
    let begun = told.lists(&of(&row), 1);
    assert_eq!(kinds(&begun), ["ACTOR_DEFINITION_EVENT", "ACTOR_LIFECYCLE_EVENT"]);
    assert_eq!(parsed(&begun)[1]["actorLifecycleEvent"]["stateTransitions"][0]["state"], "ALIVE");
    assert_eq!(kinds(&told.entries([entry(ChronicleEvent::ActorRestarting, 2)])), ["ACTOR_LIFECYCLE_EVENT"]);
    // Its row says where it died.
    assert_eq!(told.entries([entry(ChronicleEvent::ActorDead, 3)]), Vec::<String>::new());
    let dead = ActorRow { state: ActorPhase::Dead, ip: Some("10.0.0.2".to_owned()), pid: Some(71), ..row };
    let ended = parsed(&told.lists(&of(&dead), 1));
    let transition = &ended[0]["actorLifecycleEvent"]["stateTransitions"][0];
    let died = &transition["deathCause"]["actorDiedErrorContext"];
    assert_eq!((&transition["state"], &died["nodeIpAddress"]), (&"DEAD".into(), &"10.0.0.2".into()));
    assert_eq!(died["errorMessage"], "it was killed");
    assert_eq!(told.lists(&of(&dead), 1), Vec::<String>::new(), "EXPORT-1");
    let unknown =
        |number: u8| ChronicleEntry { actor: Some(ActorId::new([number; 16])), ..entry(ChronicleEvent::ActorAlive, 4) };
    told.entries((0..=ENTRIES_MAX).map(|number| unknown(if number % 2 == 0 { 8 } else { 9 })));
    assert_eq!(told.entries.len(), ENTRIES_MAX, "EXPORT-2");
    let job = ChronicleEntry { event: ChronicleEvent::JobStarted, ..ChronicleEntry::default() };
    assert_eq!(told.entries([job]), Vec::<String>::new());
}

#[test]
fn an_attempt_is_told_of_step_by_step() {
    let mut told = told();
    let origin = CallOrigin { parent: None, called_us: 1_000_001, ready_after_us: Some(9), sent_after_us: None };
    let row = TaskRow {
        task_id: TaskId::new([3; 24]),
        name: "Counter.add".to_owned(),
        function: "Counter.add".to_owned(),
        stage: TaskStage::WaitsForWorker,
        origin: Some(origin),
        ..TaskRow::default()
    };
    let begun = told.tasks(std::slice::from_ref(&row));
    assert_eq!(kinds(&begun), ["ACTOR_TASK_DEFINITION_EVENT", "TASK_LIFECYCLE_EVENT"]);
    let definition = &parsed(&begun)[0]["actorTaskDefinitionEvent"];
    assert_eq!(definition["actorFunc"]["pythonFunctionDescriptor"]["className"], "Counter");
    assert_eq!(definition["parentTaskId"], "//////////////////////////8DAwMD", "a driver called it");
    assert_eq!(told.tasks(std::slice::from_ref(&row)), Vec::<String>::new(), "EXPORT-1");
    let failed = TaskRow {
        stage: TaskStage::Failed,
        started_us: 2_000_000,
        ended_us: 2_500_000,
        error: Some("SOMETHING_OF_OURS".to_owned()),
        message: Some("it raised".to_owned()),
        ..row
    };
    let ended = parsed(&told.tasks(&[failed]));
    let lifecycle = &ended[0]["taskLifecycleEvent"];
    let states: Vec<_> = lifecycle["stateTransitions"].as_array().expect("some").iter().collect();
    let names = ["PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "RUNNING", "FAILED"];
    assert_eq!(states.iter().map(|one| &one["state"]).collect::<Vec<_>>(), names);
    let times = [
        "1970-01-01T00:00:01.000001Z",
        "1970-01-01T00:00:01.000010Z",
        "1970-01-01T00:00:02Z",
        "1970-01-01T00:00:02.500Z",
    ];
    assert_eq!(states.iter().map(|one| &one["timestamp"]).collect::<Vec<_>>(), times);
    let error = serde_json::json!({"errorMessage": "it raised", "errorType": "TASK_EXECUTION_EXCEPTION"});
    assert_eq!(lifecycle["rayErrorInfo"], error, "a name that protobuf does not know is none");
}

#[test]
fn what_is_told_again_after_a_restart_is_the_same_event() {
    let tables = || Tables { nodes: vec![node()], ..Tables::default() };
    assert_eq!(told().lists(&changes(tables()), 5), told().lists(&changes(tables()), 6));
    let other = Told::new("session_2".to_owned()).lists(&changes(tables()), 5);
    assert_ne!(parsed(&other)[0]["eventId"], parsed(&told().lists(&changes(tables()), 5))[0]["eventId"]);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut remembered = Remembered::new();
    for number in 0..=REMEMBERED_MAX {
        assert_eq!(remembered.set(number, true), None);
    }
    assert_eq!((remembered.by_key.len(), remembered.get(0)), (REMEMBERED_MAX, None), "EXPORT-2");
    assert_eq!(remembered.set(1, false), Some(true));
}
