//! The words of the command line, asserted on the real binary.

#[expect(dead_code, reason = "each test binary uses its part of what is common")]
mod common;

use common::{Place, errors, mode, said, wait_for_death};

#[test]
fn start_says_how_to_go_on_and_status_shows_what_is_offered() {
    let place = Place::new();
    let told = place.start(&[
        "--num-cpus=3",
        "--num-gpus=2",
        "--resources={\"widgets\": 2.5}",
        "--labels=zone=a",
        "--port=7101",
    ]);
    assert!(told.contains("Oxiray runtime started.") && told.contains(":7101'"), "{told}");
    let status = said(&place.run(&["status"]));
    assert!(status.contains("CPU                      0 of 3 used"), "{status}");
    assert!(status.contains("widgets                  0 of 2.5 used"), "{status}");
    assert!(
        status.contains("GPU 1 [....................]  logical"),
        "a machine without GPUs offers them in name: {status}"
    );
    let json: serde_json::Value = serde_json::from_str(&said(&place.run(&["status", "--json"]))).expect("JSON");
    assert_eq!(json["nodes"][0]["labels"]["zone"], "a");
    assert_eq!(json["totals"]["GPU"], 2.0);
    assert!(
        json["daemon"]["resident_bytes"].as_u64().expect("a size") < 40 << 20,
        "a daemon is small: {}",
        json["daemon"]
    );
    let by_address = place.run(&["status", "--address=localhost:7101"]);
    assert!(by_address.status.success(), "{}", errors(&by_address));
    let elsewhere = place.run(&["status", "--address=localhost:1"]);
    assert!(
        errors(&elsewhere).contains("no cluster answers at localhost:1: on this machine run"),
        "{}",
        errors(&elsewhere)
    );
}

#[test]
fn a_port_serves_one_cluster() {
    let place = Place::new();
    let listeners = [0, 1].map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let [port, other] = listeners.map(|listener| listener.local_addr().expect("it is bound").port());
    place.start(&[&format!("--port={port}")]);
    let second = place.run(&["start", "--head", &format!("--port={port}")]);
    assert_eq!(second.status.code(), Some(1));
    assert!(errors(&second).contains(&format!("has port {port} already")), "{}", errors(&second));
    place.start(&[&format!("--port={other}")]);
    assert_eq!(place.sessions().len(), 2);
}

#[test]
fn stop_ends_everything_and_says_so() {
    let place = Place::new();
    let nothing = place.run(&["stop"]);
    assert_eq!((nothing.status.code(), said(&nothing).trim()), (Some(0), "Did not find any active Oxiray processes."));
    for force in [&["stop"][..], &["stop", "--force"]] {
        place.start(&[]);
        let pid = place.description()["pid"].as_u64().expect("a pid") as u32;
        let stopped = said(&place.run(force));
        assert_eq!(stopped.trim(), "Stopped all 1 Oxiray processes.");
        wait_for_death(pid);
        assert!(place.sessions().is_empty(), "no directory is left");
        assert!(!place.root().join("current").exists() || force.len() == 2);
    }
    assert!(errors(&place.run(&["status"])).contains("no cluster of this user runs on this machine"));
}

#[test]
fn a_signal_ends_a_session_without_a_trace() {
    let place = Place::new();
    place.start(&[]);
    let pid = place.description()["pid"].as_u64().expect("a pid") as u32;
    let process = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
    rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it is ours");
    wait_for_death(pid);
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn what_a_killed_daemon_left_is_swept_by_the_next() {
    let place = Place::new();
    place.start(&[]);
    let pid = place.description()["pid"].as_u64().expect("a pid") as u32;
    let process = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("it is ours");
    wait_for_death(pid);
    assert_eq!(place.sessions().len(), 1);
    place.start(&[]);
    assert_eq!(place.sessions().len(), 1, "the dead session is gone, its port is free");
    place.assert_serves();
}

#[test]
fn what_cannot_be_offered_is_an_error_that_says_why() {
    let place = Place::new();
    let output =
        place.command(&["start", "--head", "--num-gpus=3"]).env("CUDA_VISIBLE_DEVICES", "1,3").output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors(&output).starts_with("error: CUDA_VISIBLE_DEVICES lists 2 devices (1, 3), but 3 were asked for"),
        "{}",
        errors(&output)
    );
    assert!(place.sessions().is_empty(), "nothing is left of the attempt");
    for (arguments, reason) in [
        (&["start"][..], "say what to start: --head"),
        (&["start", "--address=10.0.0.1:6379"], "none of this user runs on this machine"),
        (&["start", "--head", "--resources={\"CPU\": 1}"], "--resources must not name CPU: use --num-cpus"),
        (&["start", "--head", "--resources=[]"], "--resources must be a JSON object of numbers"),
        (&["start", "--head", "--labels=zone"], "--labels must be key=value,key=value or a JSON object"),
        (&["start", "--head", "--num-gpus=1.5"], "devices are whole"),
        (
            &["start", "--head", "--visible-devices=name"],
            "devices are shown by `name`; it is to be `ordinal` or `uuid`",
        ),
        (&["start", "--head", "--object-store-memory=5"], "object_store_memory is 5 bytes"),
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(errors(&output).contains(reason), "{arguments:?}: {}", errors(&output));
    }
}

#[test]
fn visible_devices_are_offered_under_their_own_names() {
    let place = Place::new();
    let arguments = ["start", "--head", "--num-gpus=2", "--object-store-memory=104857600"];
    let output = place.command(&arguments).env("CUDA_VISIBLE_DEVICES", "1,3").output().expect("runs");
    assert!(output.status.success(), "{}", errors(&output));
    let status = said(&place.run(&["status"]));
    assert!(status.contains("GPU 0 (1)") && status.contains("GPU 1 (3)"), "{status}");
}

#[test]
fn options_of_parts_that_are_not_built_are_taken_and_said_to_do_nothing() {
    let place = Place::new();
    let told = place.start(&["--include-log-monitor=true", "--ray-client-server-port=10001", "--disable-usage-stats"]);
    assert!(
        told.contains("without effect in this version: --ray-client-server-port (there is no client server)"),
        "{told}"
    );
    assert!(!told.contains("--disable-usage-stats"), "{told}");
}

#[test]
fn only_the_user_can_enter_a_session() {
    let place = Place::new();
    place.start(&[]);
    let session = place.session();
    assert_eq!([mode(&place.root()), mode(&session)], [0o700, 0o700]);
    for file in ["socket", "session.json"] {
        assert_eq!(mode(&session.join(file)), 0o600, "{file}");
    }
    let logs = oxiray_wire::session::logs_of(&session);
    assert_eq!([mode(&logs), mode(&logs.join("daemon.log"))], [0o700, 0o600]);
    let pid = place.description()["pid"].as_u64().expect("a pid");
    let token = place.token();
    assert_eq!(token.len(), 64);
    for file in ["cmdline", "environ"] {
        let text = std::fs::read(format!("/proc/{pid}/{file}")).expect("readable");
        assert!(!String::from_utf8_lossy(&text).contains(&token), "the token does not stand in {file}");
    }
    assert!(!place.log().contains(&token), "nor in the log");
}

#[test]
fn a_root_that_others_may_enter_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    std::fs::create_dir(place.root()).expect("made");
    std::fs::set_permissions(place.root(), std::fs::Permissions::from_mode(0o755)).expect("opened");
    let output = place.run(&["start", "--head"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("must be a directory of user"), "{}", errors(&output));
    std::fs::set_permissions(place.root(), std::fs::Permissions::from_mode(0o700)).expect("closed");
}

#[test]
fn hardware_reads_recorded_machines() {
    let place = Place::new();
    let here = place.run(&["hardware"]);
    assert!(here.status.success() && said(&here).starts_with("Accelerators of "), "{}", errors(&here));
    assert!(said(&here).contains("\n  cgroup v2: ") && said(&here).contains("\n  Landlock: "), "{}", said(&here));
    let missing = place.run(&["hardware", "--host-root=/nonexistent"]);
    assert_eq!(missing.status.code(), Some(1));
    let recorded = concat!("--host-root=", env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/hosts/gaudi2");
    let output = place.run(&["hardware", "--json", recorded]);
    let json: serde_json::Value =
        serde_json::from_str(&said(&output)).unwrap_or_else(|_| panic!("{}", errors(&output)));
    assert_eq!(json["accelerators"][0]["family"]["key"], "gaudi", "{json}");
    let in_words = said(&place.run(&["hardware", recorded]));
    assert!(
        in_words.contains("HPU: 8 x") && !in_words.contains("Landlock"),
        "a recorded machine has no kernel: {in_words}"
    );
}

#[test]
fn the_version_is_told() {
    assert!(said(&Place::new().run(&["--version"])).starts_with("oxiray "));
}

#[test]
fn block_serves_in_the_foreground_until_it_is_interrupted() {
    use std::io::{BufRead as _, BufReader};
    let place = Place::new();
    let arguments = ["start", "--head", "--block", "--object-store-memory=104857600"];
    let mut child = place.command(&arguments).stdout(std::process::Stdio::piped()).spawn().expect("starts");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    assert!(output.lines().map_while(Result::ok).any(|line| line.contains("until this command is interrupted")));
    place.assert_serves();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is ours");
    assert!(child.wait().expect("it ends").success());
    assert!(place.sessions().is_empty());
}

#[test]
fn a_folder_for_sessions_that_cannot_be_made_is_named() {
    let place = Place::new();
    let mut command = place.command(&["start", "--head"]);
    let output = command.env("OXIRAY_TMPDIR", "/proc/nowhere").output().expect("the binary runs");
    let text = errors(&output);
    assert!(!output.status.success() && text.contains("/proc/nowhere: ") && text.contains("OXIRAY_TMPDIR"), "{text}");
}

#[test]
fn a_head_without_members_has_none_to_drain() {
    let place = Place::new();
    place.start(&[]);
    let output = place.run(&["drain", "nope"]);
    let text = errors(&output);
    assert!(
        !output.status.success() && text.contains("no living node is `nope`: there is none beside the head"),
        "{text}"
    );
}
