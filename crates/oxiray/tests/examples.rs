//! The examples show what they say: each is run as a user runs it, on a private cluster, whose daemon is the program
//! `oxiray` that was built beside them.

#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(120);

/// What a session must not inherit from whoever runs the tests.
const FOREIGN: [&str; 10] = [
    "RAY_",
    "OXIRAY_",
    "CUDA_VISIBLE",
    "ROCR_VISIBLE",
    "HIP_VISIBLE",
    "ZE_AFFINITY",
    "ONEAPI_DEVICE",
    "NEURON_RT_",
    "TPU_",
    "HABANA_VISIBLE",
];

fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let built = test.parent().and_then(Path::parent).expect("tests lie in a folder of what was built");
    built.join("examples").join(name)
}

fn host(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hosts").join(name)
}

/// An example, in the environment that a user has.
fn command(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(example(name));
    for (variable, _) in std::env::vars().filter(|(name, _)| name != "OXIRAY_BINARY") {
        if FOREIGN.iter().any(|prefix| variable.starts_with(prefix)) || variable.starts_with("ASCEND_RT") {
            command.env_remove(variable);
        }
    }
    command.env("OXIRAY_TMPDIR", folder);
    command
}

/// What a program prints, sorted by line, with `N` for process ids; workers may print in any order.
fn output(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let mut command = command(name, folder.path());
    command.args(arguments).envs(variables.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().expect("examples are built with the tests");
    let mut stdout = child.stdout.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let until = Instant::now() + LIMIT;
    while !reader.is_finished() {
        if Instant::now() > until {
            child.kill().expect("it is a child of this process");
            panic!("{name} {arguments:?} did not end in time");
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let status = child.wait().expect("it is a child of this process");
    let text = reader.join().expect("it only reads").expect("programs print text");
    assert!(status.success(), "{name} {arguments:?}: {status}\n{text}");
    let mut lines: Vec<String> = text.lines().map(without_pid).collect();
    lines.sort();
    lines
}

fn without_pid(line: &str) -> String {
    let Some((before, after)) = line.split_once("pid=") else { return line.to_owned() };
    let rest = after.trim_start_matches(|character: char| character.is_ascii_digit());
    format!("{before}pid=N{rest}")
}

#[test]
fn every_family_shows_its_devices_by_its_own_variable() {
    for (family, resource, variable) in [
        ("nvidia", "GPU", "CUDA_VISIBLE_DEVICES"),
        ("amd", "GPU", "ROCR_VISIBLE_DEVICES"),
        ("intel", "GPU", "ONEAPI_DEVICE_SELECTOR"),
        ("neuron", "neuron_cores", "NEURON_RT_VISIBLE_CORES"),
        ("tpu", "TPU", "TPU_VISIBLE_CHIPS"),
        ("gaudi", "HPU", "HABANA_VISIBLE_MODULES"),
        ("ascend", "NPU", "ASCEND_RT_VISIBLE_DEVICES"),
    ] {
        let mut expected: Vec<String> = Vec::new();
        for (name, index) in [("DeviceActor", 0), ("device_task", 1)] {
            expected.push(format!("({name} pid=N) {resource} IDs: [\"{index}\"]"));
            expected.push(format!("({name} pid=N) {variable}: {index}"));
        }
        expected.sort();
        assert_eq!(output("accelerators", &[family], &[]), expected, "{family}");
    }
}

#[test]
fn fractions_are_packed() {
    let expected = ["devices of actors: 0, 0, 1", "devices of tasks: 0, 0, 1"];
    assert_eq!(output("accelerators", &["packing"], &[]), expected);
}

#[test]
fn a_variable_restricts_what_a_machine_offers() {
    assert_eq!(output("accelerators", &["restricted"], &[]), ["devices: 1, 3"]);
}

#[test]
fn four_tasks_share_one_device_at_the_same_time() {
    let expected = ["GPUs of four tasks: 0, 0, 0, 0", "NPUs of four tasks: 0, 0, 0, 0"];
    assert_eq!(output("accelerators", &["sharing"], &[]), expected);
}

#[test]
fn some_devices_cannot_be_shared() {
    let lines = output("accelerators", &["whole"], &[]);
    assert!(lines.iter().any(|line| line.contains("neuron_cores") && line.contains("0.5")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("unexpected")), "{lines:?}");
}

#[test]
fn a_task_with_a_device_has_a_process_of_its_own() {
    let expected = ["a process is used again with max_calls = 0: true", "processes of three tasks: 3"];
    assert_eq!(output("accelerators", &["fresh"], &[]), expected);
}

#[test]
fn an_actor_holds_its_device_for_life() {
    let expected = ["a third actor waits", "actors: 0 and 1", "it has device 0 when the first is gone"];
    assert_eq!(output("accelerators", &["holding"], &[]), expected);
}

#[test]
fn a_type_of_accelerator_is_a_constraint() {
    let machine = host("nvidia-h100x8");
    let variables = [("OXIRAY_HOST_ROOT", machine.to_str().expect("a path of this repository is text"))];
    let expected = ["no machine here has a V100", "ran on an H100, device 0"];
    assert_eq!(output("accelerators", &["typed"], &variables), expected);
}

#[test]
fn what_no_machine_has_is_refused_with_the_reason() {
    let lines = output("accelerators", &["infeasible"], &[]);
    assert!(lines.iter().any(|line| line.contains("GPU") && line.contains('3') && line.contains('2')), "{lines:?}");
}

#[test]
fn a_granted_device_is_described() {
    let machine = host("nvidia-h100x8");
    let variables = [("OXIRAY_HOST_ROOT", machine.to_str().expect("a path of this repository is text"))];
    let lines = output("accelerators", &["described"], &variables);
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (index, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("device {index}: GPU-")), "{line}");
        assert!(line.contains("0000:"), "{line}");
    }
}

#[test]
fn the_tour_shows_what_it_says() {
    let mut lines = output("tour", &[], &[]);
    lines.retain(|line| !line.starts_with('('));
    let mut expected = [
        "six: 6",
        "here: 42",
        "total: 90",
        "error: no luck in fails",
        "panic: as it was told to",
        "checksum: 10485760",
        "doubled: 3 [1048576]",
        "counter: 12",
        "later: 42",
        "bumped: 112",
        "found: true",
        "again: 11",
        "another: true",
        "dead",
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[test]
fn a_program_without_a_daemon_to_start_says_what_it_looked_for_and_what_to_do() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let mut command = command("tour", folder.path());
    // Where no `oxiray` is, neither beside the program nor elsewhere.
    let done = command.env_remove("OXIRAY_BINARY").env("PATH", folder.path()).output().expect("it runs");
    let said = String::from_utf8(done.stderr).expect("programs print text");
    assert!(!done.status.success(), "{said}");
    let beside = example("oxiray");
    for part in [beside.to_str().expect("a path that is text"), "PATH", "OXIRAY_BINARY", "cargo install oxiray-cli"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
