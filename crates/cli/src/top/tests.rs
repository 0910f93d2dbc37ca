use super::draw::text;
use super::recorded::{Recorded, TaskCounts};
use super::rows::Target;
use super::screen::{Act, Key, Layout, Request, Screen, View};
use oxiray_ids::{ActorId, JobId, NodeId, TaskId};
use oxiray_wire::message::{ChronicleBatch, DeviceUse, TaskStage};
use oxiray_wire::state::{
    ActorPhase, ActorRow, ChronicleCursor, ChronicleEntry, ChronicleEvent, ChronicleGap, ClusterState, DemandKind,
    DeviceHolder, DeviceIsolation, DeviceMemory, DevicePart, DeviceRow, DeviceTier, DriverProcess, ForeignUse, JobRow,
    MemoryTier, NodeRow, TaskRow, WaitingRow,
};
use std::collections::BTreeMap;
use std::time::Instant;

const NOW: u64 = 1_700_000_060_000;

fn node(number: u16) -> NodeId {
    let mut bytes = [0xab; 28];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    NodeId::new(bytes)
}

fn on_device(event: ChronicleEvent, on: u16, slot: u32, grant: u64, name: &str) -> ChronicleEntry {
    let part = DevicePart {
        resource: "GPU".into(),
        slot,
        id: format!("GPU-{on}-{slot}"),
        grant,
        share: if slot == 0 { 10_000 } else { 5_000 },
        holder: DemandKind::Actor,
        since_ms: NOW - 30_000,
    };
    ChronicleEntry {
        event,
        at_ms: NOW - 30_000,
        node: Some(node(on)),
        device: Some(part),
        pid: 4_000 + grant as u32,
        name: name.into(),
        ..ChronicleEntry::default()
    }
}

fn batch(entries: Vec<ChronicleEntry>) -> ChronicleBatch {
    let numbered = entries.into_iter().zip(1..).map(|(entry, number)| ChronicleEntry { number, ..entry });
    let cursor = Some(ChronicleCursor { origin: 7, number: 100, begun: 1 });
    ChronicleBatch { cursor, is_fresh: true, entries: numbered.collect(), ..ChronicleBatch::default() }
}

fn a_node(number: u16, devices: u32) -> NodeRow {
    let uses = (0..devices).map(|slot| DeviceUse {
        resource: "GPU".into(),
        slot,
        id: slot.to_string(),
        busy_percent: Some(90 - 40 * (slot % 2)),
        used_bytes: Some(5 << 30),
        total_bytes: Some(80 << 30),
        ..DeviceUse::default()
    });
    NodeRow {
        node_id: node(number),
        name: format!("host-{number}"),
        address: "127.0.0.1".into(),
        alive: true,
        resources: [("CPU".into(), 8.0), ("GPU".into(), f64::from(devices))].into(),
        available: [("CPU".into(), 6.0)].into(),
        devices: uses.collect(),
        ..NodeRow::default()
    }
}

/// One node of which a GPU is held whole, one in two halves of which one is being given back, and one is out of service.
fn recorded() -> Recorded {
    let mut recorded = Recorded::default();
    let mut returning = on_device(ChronicleEvent::DeviceReturning, 1, 1, 3, "loader");
    returning.at_ms = NOW - 10_000;
    let out = ChronicleEntry {
        text: "Xid 79: it fell off the bus".into(),
        ..on_device(ChronicleEvent::DeviceOutOfService, 1, 2, 0, "")
    };
    recorded.apply(batch(vec![
        on_device(ChronicleEvent::DeviceGranted, 1, 0, 1, "Trainer"),
        on_device(ChronicleEvent::DeviceGranted, 1, 1, 2, "evaluate"),
        on_device(ChronicleEvent::DeviceGranted, 1, 1, 3, "loader"),
        returning,
        out,
    ]));
    recorded.cluster = ClusterState {
        nodes: vec![a_node(1, 4)],
        waiting: vec![WaitingRow {
            name: "train".into(),
            kind: DemandKind::Task,
            demand: Some(BTreeMap::from([("GPU".to_owned(), 4.0)]).into()),
            count: 3,
            seconds: 75.0,
            why: "it asks for 4 GPU, and 1 is free".into(),
            ..WaitingRow::default()
        }],
        actors: vec![ActorRow {
            actor_id: ActorId::new([5; 16]),
            class: "Trainer".into(),
            state: ActorPhase::Alive,
            pid: Some(4_001),
            ..ActorRow::default()
        }],
        ..ClusterState::default()
    };
    let states = [("RUNNING".to_owned(), 2), ("FINISHED".to_owned(), 40), ("FAILED".to_owned(), 1)];
    let tasks = TaskCounts { name: "train".into(), kind: "NORMAL_TASK".into(), states: states.into() };
    recorded.tasks = vec![tasks];
    recorded.is_now(NOW);
    recorded
}

fn press(screen: &mut Screen, recorded: &Recorded, keys: &str) -> Option<Request> {
    keys.chars().fold(None, |_, letter| {
        let key = match letter {
            '\n' => Key::Enter,
            '\u{1b}' => Key::Escape,
            letter => Key::Char(letter),
        };
        screen.press(key, recorded)
    })
}

fn shown(keys: &str, size: (u16, u16)) -> String {
    let (recorded, mut screen) = (recorded(), Screen::default());
    press(&mut screen, &recorded, keys);
    text(&recorded, &screen, size)
}

#[test]
fn top_draws_devices_at_80_by_24() {
    let expected = "\
oxiray top    nodes 1  devices held 2, 1 out  waiting 3  22:14:20 UTC
 1 devices  2 nodes  3 jobs  4 tasks  5 actors  6 waiting  7 events  t tree
DEVICE           HELD         BUSY  MEMORY GiB HOLDER         AGE    LAST 60 s
host-1 GPU0      ##########   90%!  5.0/80.0   Trainer        30s    ....TTTT
host-1 GPU1      ##########   50%+  5.0/80.0   evaluate +1    30s    ....llee
host-1 GPU2      out          90%!  5.0/80.0   x Xid 79: it f 30s    ....xxxx
host-1 GPU3      ..........   50%+  5.0/80.0";
    let told = shown("c", (80, 24));
    for (line, wanted) in told.lines().zip(expected.lines()).take(3) {
        assert_eq!(line, wanted);
    }
    let rows: Vec<&str> = told.lines().skip(3).take(4).collect();
    for (row, wanted) in rows.iter().zip(expected.lines().skip(3)) {
        assert_eq!(&row[..60.min(row.len())].trim_end(), &wanted[..60.min(wanted.len())].trim_end(), "{told}");
    }
    assert!(rows[0].trim_end().ends_with("TTTT") && rows[2].trim_end().ends_with("xxxx"), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 80) && told.lines().count() <= 24);
    assert!(told.ends_with("? help  / filter  Enter detail  p pause  q leave"));
}

#[test]
fn top_draws_the_last_minute_at_200_by_60() {
    let told = shown("c", (200, 60));
    let strip =
        |line: usize| told.lines().nth(line).and_then(|line| line.split_whitespace().last()).unwrap_or_default();
    assert_eq!(strip(3), format!("{}{}", ".".repeat(30), "T".repeat(30)), "{told}");
    assert_eq!(strip(5), format!("{}{}", ".".repeat(30), "x".repeat(30)), "{told}");
    assert_eq!(strip(6), ".".repeat(60), "a device that nobody had:\n{told}");
}

#[test]
fn top_has_a_view_for_each_number() {
    for (keys, words) in [
        ("2", vec!["host-1", "127.0.0.1", "2/8", "alive"]),
        ("4", vec!["train", "NORMAL_TASK", "40"]),
        ("5", vec!["Trainer", "alive", "4001"]),
        ("6", vec!["train", "1m15", "GPU 4", "it asks for 4 GPU, and 1 is free"]),
        ("7", vec!["device_granted", "device_returning", "Xid 79"]),
    ] {
        let told = shown(keys, (160, 24));
        for word in words {
            assert!(told.contains(word), "{keys}: {word}:\n{told}");
        }
    }
    assert!(shown("3", (80, 24)).contains("nothing"));
}

#[test]
fn top_filters_sorts_and_shows_detail() {
    let told = shown("/trainer\n", (80, 24));
    assert!(told.contains("GPU0") && !told.contains("GPU1") && told.contains("only rows with `trainer`"), "{told}");
    assert!(shown("/trainer\n\u{1b}", (80, 24)).contains("GPU1"));
    let order = |keys: &str| -> Vec<String> {
        let told = shown(&format!("c{keys}"), (80, 24));
        told.lines().skip(3).take(4).map(|line| line[..11].to_owned()).collect()
    };
    assert_eq!(order("")[0], "host-1 GPU0");
    assert_eq!(order("I")[0], "host-1 GPU3");
    assert_eq!(order("...")[..2], ["host-1 GPU1", "host-1 GPU3"], "by how busy they are");
    let detail = shown("\n", (80, 24));
    assert!(detail.contains("Trainer (pid 4001): 1 for 30s") && detail.contains("GPU-1-0"), "{detail}");
    let help = shown("?", (80, 24));
    assert!(help.contains("explain why it waits") && help.lines().count() <= 24, "{help}");
}

#[test]
fn top_gives_an_order_only_when_its_word_is_typed() {
    let (recorded, mut screen) = (recorded(), Screen { view: View::Nodes, ..Screen::default() });
    let id = node(1).hex();
    assert_eq!(press(&mut screen, &recorded, "D"), None);
    assert!(text(&recorded, &screen, (80, 24)).contains(&format!("type `{}`", &id[..8])));
    assert_eq!(press(&mut screen, &recorded, "wrong\n"), None);
    assert!(text(&recorded, &screen, (80, 24)).contains("nothing was done"));
    let asked = press(&mut screen, &recorded, &format!("\u{1b}D{}\n", &id[..8]));
    assert_eq!(asked, Some(Request::Do(Act::Drain, vec![Target::Node(id)])));
    assert_eq!(press(&mut screen, &recorded, "D\u{1b}q"), Some(Request::Quit), "what is typed is no order");
    let mut screen = Screen { view: View::Actors, ..Screen::default() };
    assert_eq!(
        press(&mut screen, &recorded, "e"),
        Some(Request::Do(Act::Explain, vec![Target::Actor(ActorId::new([5; 16]).hex())]))
    );
    assert_eq!(press(&mut screen, &recorded, "S"), None, "an actor is no job");
}

fn in_job(number: u8) -> (JobId, ActorId) {
    let job = JobId::new([number, 0, 0, 0]);
    let mut bytes = [number; 16];
    bytes[12..].copy_from_slice(job.as_bytes());
    (job, ActorId::new(bytes))
}

/// Two jobs: one submitted, with a task and an actor that has a call; and one of which the list of jobs says nothing.
fn at_work() -> Recorded {
    let mut recorded = recorded();
    let (job, actor) = in_job(7);
    let driver = Some(DriverProcess { job, pid: 70, ..DriverProcess::default() });
    let submission = "nightly".to_owned();
    recorded.jobs = vec![JobRow { driver, submission, started_ms: NOW - 90_000, ..JobRow::default() }];
    let actor_row = |actor_id, job_id, class: &str, state| ActorRow {
        actor_id,
        job_id,
        class: class.into(),
        state,
        pid: Some(71),
        ..ActorRow::default()
    };
    let (other_job, other) = in_job(8);
    recorded.cluster.actors = vec![
        actor_row(actor, job, "Trainer", ActorPhase::Alive),
        actor_row(other, other_job, "Cache", ActorPhase::Alive),
        actor_row(ActorId::new([3; 16]), job, "Gone", ActorPhase::Dead),
    ];
    let call = |owner: ActorId, first: u8, name: &str, stage| {
        let mut bytes = [first; 24];
        bytes[8..].copy_from_slice(owner.as_bytes());
        let (task_id, started_us) = (TaskId::new(bytes), (NOW - 5_000) * 1_000);
        TaskRow { task_id, name: name.into(), stage, started_us, pid: Some(72), ..TaskRow::default() }
    };
    recorded.live = vec![
        call(actor, 0x1a, "Trainer.step", TaskStage::Runs),
        call(ActorId::nil_of(job), 0x2b, "load", TaskStage::WaitsForWorker),
        TaskRow { task_id: actor.creation_task(), name: "Trainer.__init__".into(), ..TaskRow::default() },
    ];
    recorded
}

fn in_tree(keys: &str) -> (String, Screen, Option<Request>) {
    let (recorded, mut screen) = (at_work(), Screen::default());
    let request = press(&mut screen, &recorded, &format!("t{keys}"));
    (text(&recorded, &screen, (100, 24)), screen, request)
}

#[test]
fn top_shows_what_belongs_to_what() {
    let names = |told: &str| -> Vec<String> {
        told.lines().skip(3).take_while(|line| !line.is_empty()).map(|line| line[..20].trim_end().to_owned()).collect()
    };
    let (told, ..) = in_tree("");
    let all = ["job nightly", "  load", "  Trainer", "    Trainer.step", "job", "  Cache"];
    assert_eq!(names(&told), all, "no actor that is dead, and no constructor:\n{told}");
    assert!(told.contains("PENDING_NODE_ASSIGNMENT") && told.contains("72 ") && told.contains("1a1a1a1a"), "{told}");
    assert_eq!(names(&in_tree("/step\n").0), ["job nightly", "  Trainer", "    Trainer.step"], "what it is of stays");
    assert_eq!(names(&in_tree("/trainer\n").0), ["job nightly", "  Trainer", "    Trainer.step"]);
    assert_eq!(names(&in_tree("I").0), ["job", "  Cache", "job nightly", "  Trainer", "    Trainer.step", "  load"]);
    assert_eq!(names(&in_tree(".").0)[..3], ["job", "  Cache", "job nightly"], "each level by its name");
    assert_eq!(in_tree("t").1.view, View::Devices);
}

#[test]
fn top_kills_and_cancels_what_is_tagged_when_that_is_typed() {
    let actor = Target::Actor(in_job(7).1.hex());
    let (told, _, request) = in_tree("/step\n");
    assert!(request.is_none() && told.contains("only rows with `step`"));
    // Rows: the job, its task, its actor.
    let (recorded, mut screen) = (at_work(), Screen { view: View::Tree, chosen: 1, ..Screen::default() });
    assert_eq!(press(&mut screen, &recorded, "K"), None);
    let Some(Request::Do(Act::Kill, of)) = press(&mut screen, &recorded, "2b2b2b2b\n") else { panic!("{screen:?}") };
    assert!(matches!(&of[..], [Target::Task(id)] if id.starts_with("2b2b2b2b")), "{of:?}");
    assert_eq!(press(&mut screen, &recorded, "  "), None);
    assert_eq!((screen.tagged.len(), screen.chosen), (2, 3));
    let told = text(&recorded, &screen, (100, 24));
    assert!(told.contains("*  load") && told.contains("*  Trainer") && told.contains("2 tagged"), "{told}");
    press(&mut screen, &recorded, "K");
    assert!(text(&recorded, &screen, (100, 24)).contains("type `kill 2`"));
    let asked = press(&mut screen, &recorded, "kill 2\n");
    assert!(matches!(&asked, Some(Request::Do(Act::Kill, of)) if of.len() == 2 && of.contains(&actor)), "{asked:?}");
    assert_eq!(press(&mut screen, &recorded, "S"), None);
    assert!(text(&recorded, &screen, (100, 24)).contains("2 of the 2 rows tagged are no such"));
    assert_eq!(press(&mut screen, &recorded, "\u{1b}\u{1b}"), None);
    assert!(screen.tagged.is_empty(), "Escape closes what is said, and then takes the tags off");
    let mut screen = Screen { view: View::Waiting, ..Screen::default() };
    press(&mut screen, &recorded, " ");
    assert!(
        screen.tagged.is_empty() && text(&recorded, &screen, (100, 24)).contains("nothing can be done with this row")
    );
}

#[test]
fn top_shows_the_stacks_of_who_holds_a_device() {
    let recorded = recorded();
    let stack = |chosen| {
        let mut screen = Screen { chosen, ..Screen::default() };
        let request = press(&mut screen, &recorded, "s");
        (request, text(&recorded, &screen, (100, 24)))
    };
    let of = |pids: &[u32]| pids.iter().map(|pid| Target::Process(node(1).hex(), *pid)).collect();
    assert_eq!(stack(0).0, Some(Request::Do(Act::Stack, of(&[4_001]))));
    assert_eq!(stack(1).0, Some(Request::Do(Act::Stack, of(&[4_002, 4_003]))));
    let (request, told) = stack(3);
    assert!(request.is_none() && told.contains("no process holds it"), "{told}");
}

#[test]
fn top_shows_all_of_a_row_where_there_is_room() {
    let full = shown("f", (80, 24));
    for line in ["    actor evaluate (pid 4002): 0.5 for 30s", "    HOLDER: x Xid 79: it fell off the bus"] {
        assert!(full.lines().any(|told| told == line), "{full}");
    }
    assert_eq!(shown("a", (80, 24)), full, "all have room");
    let compact = shown("c", (80, 24));
    assert!(!compact.contains("    actor") && !compact.contains("fell off the bus"), "{compact}");
    assert_eq!(shown("a", (80, 10)), shown("c", (80, 10)), "not all have");
    let (recorded, mut screen) = (recorded(), Screen { chosen: 3, layout: Layout::Full, ..Screen::default() });
    assert!(text(&recorded, &screen, (80, 7)).contains("GPU3"), "the row that is chosen is seen");
    screen.chosen = 0;
    assert!(text(&recorded, &screen, (80, 7)).contains("GPU0"));
}

#[test]
fn top_says_what_is_to_be_known_of_devices() {
    let mut recorded = recorded();
    let holder = DeviceHolder {
        pid: 4_001,
        name: "Trainer".into(),
        share: 1.0,
        isolation: Some(DeviceIsolation { tier: DeviceTier::Cgroup, ..DeviceIsolation::default() }),
        memory: Some(DeviceMemory { asked_bytes: 8 << 30, tier: MemoryTier::Framework, ..DeviceMemory::default() }),
        ..DeviceHolder::default()
    };
    let on = |slot| DeviceRow { resource: "GPU".into(), slot, node: Some(node(1)), ..DeviceRow::default() };
    recorded.cluster.devices = vec![
        DeviceRow {
            holders: vec![holder],
            violations: vec!["f (pid 90) has GPU 0 open (/dev/nvidia0)".into()],
            ..on(0)
        },
        on(1),
        DeviceRow { notes: vec!["Xid 31 before".into()], ..on(2) },
        DeviceRow {
            notes: vec!["it needs a reset at leisure".into()],
            foreign: vec![ForeignUse { pid: 4_711, name: "python3".into(), ..ForeignUse::default() }],
            ..on(3)
        },
    ];
    let told = text(&recorded, &Screen { layout: Layout::Compact, ..Screen::default() }, (120, 24));
    let holders: Vec<&str> = told.lines().skip(3).take(4).map(|line| line[47..61].trim_end()).collect();
    assert_eq!(holders, ["! Trainer", "evaluate +1", "x Xid 79: it f", "?"], "{told}");
    let full = text(&recorded, &Screen { layout: Layout::Full, ..Screen::default() }, (140, 40));
    for line in [
        "    violation: f (pid 90) has GPU 0 open (/dev/nvidia0)",
        "    kept: Trainer (pid 4001), 8.0 GiB (framework; what it uses is not known), kept from others by the kernel (cgroup v2)",
        "    note: Xid 31 before",
        "    foreign use: also used by pid 4711 (python3), not Oxiray's",
        "    note: it needs a reset at leisure",
    ] {
        assert!(full.lines().any(|told| told == line), "{line}:\n{full}");
    }
    let mut screen = Screen { chosen: 3, ..Screen::default() };
    press(&mut screen, &recorded, "\n");
    let detail = text(&recorded, &screen, (120, 24));
    assert!(detail.contains("note            it needs a reset at leisure") && detail.contains("pid 4711"), "{detail}");
}

#[test]
fn top_says_what_it_missed_and_forgets_what_does_not_hold_any_more() {
    let mut recorded = recorded();
    let gap = Some(ChronicleGap { from: 6, to: 9 });
    recorded.apply(ChronicleBatch { gap, ..batch(vec![on_device(ChronicleEvent::DeviceGranted, 1, 3, 9, "late")]) });
    recorded.is_now(NOW + 1_000);
    let told = text(&recorded, &Screen::default(), (120, 24));
    assert!(told.contains("4 events missed") && told.contains("late") && !told.contains("Trainer"), "{told}");
    recorded.apply(ChronicleBatch {
        is_fresh: false,
        ..batch(vec![on_device(ChronicleEvent::DeviceFree, 1, 3, 9, "late")])
    });
    recorded.is_now(NOW + 200_000);
    assert!(
        recorded.devices.values().all(|story| story.spans.is_empty()),
        "nothing is kept for longer than it is shown"
    );
}

/// A frame of 1,000 nodes with 8 devices each; prints what it takes, and judges nothing.
#[test]
fn top_draws_8_000_devices() {
    let mut recorded = Recorded::default();
    let devices = (0..1_000_u16).flat_map(|on| (0..8_u32).map(move |slot| (on, slot)));
    let held = devices.map(|(on, slot)| {
        on_device(ChronicleEvent::DeviceGranted, on, slot, u64::from(on) * 8 + u64::from(slot) + 1, "Trainer")
    });
    recorded.apply(batch(held.collect()));
    recorded.cluster.nodes = (0..1_000).map(|number| a_node(number, 8)).collect();
    recorded.is_now(NOW);
    let screen = Screen::default();
    let began = Instant::now();
    let frames = 10;
    for _ in 0..frames {
        assert!(text(&recorded, &screen, (200, 60)).contains("devices held 8000"));
    }
    println!("{:.1} ms a frame", began.elapsed().as_secs_f64() * 1_000.0 / f64::from(frames));
}
