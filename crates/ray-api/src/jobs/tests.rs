use super::*;
use oxiray_ids::{JobId, NodeId};
use oxiray_wire::state::DriverProcess;
use serde_json::json;

const UPLOADS: &str = "/session/uploads";

/// A body that Ray 2.60 answered with.
macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/fixtures/ray_http/", $name, ".body"))
    };
}

/// The keys of a text's outermost object in the order in which they stand, each with the type of its value.
fn shape(text: &str) -> Vec<(String, &'static str)> {
    let read: Json = serde_json::from_str(text).expect("JSON");
    let fields = read.as_object().expect("an object");
    let place = |name: &str| text.find(&format!("\"{name}\":")).expect("the key stands there");
    let mut shape: Vec<(String, &'static str)> =
        fields.iter().map(|(name, value)| (name.clone(), python_type(value))).collect();
    shape.sort_by_key(|(name, _)| place(name));
    shape
}

fn running() -> JobRow {
    JobRow {
        driver: Some(DriverProcess { job: JobId::new([2, 0, 0, 0]), ip: "127.0.0.1".into(), pid: 558 }),
        submission: "one".into(),
        state: SubmissionState::Running,
        entrypoint: Some("python job.py 25".into()),
        node: Some(NodeId::new([0x5b; 28])),
        started_ms: 1_795_441_905_474,
        metadata: [("a".to_owned(), "b".to_owned())].into(),
        runtime_env: r#"{"env_vars": {"X": "secret"}}"#.into(),
        ..JobRow::default()
    }
}

fn told(row: &JobRow, printed: Option<&str>) -> String {
    serde_json::to_string(&details(row, printed, false, UPLOADS)).expect("JSON")
}

#[test]
fn details_have_the_keys_types_and_order_of_rays() {
    // No agent of ours listens.
    let recorded = |text: &str| {
        let mut shape = shape(text);
        shape
            .iter_mut()
            .filter(|(name, _)| name == "driver_agent_http_address")
            .for_each(|(_, kind)| *kind = "NoneType");
        shape
    };
    assert_eq!(shape(&told(&running(), None)), recorded(recorded!("job_one")));
    let pending = JobRow { driver: None, node: None, state: SubmissionState::Pending, ..running() };
    assert_eq!(shape(&told(&pending, None)), recorded(recorded!("job_pending")));
    let stopped = JobRow { state: SubmissionState::Stopped, ended_ms: 9, ..running() };
    assert_eq!(shape(&told(&stopped, None)), recorded(recorded!("job_one_stopped")));
    let failed = JobRow {
        driver: None,
        state: SubmissionState::Failed,
        exit_code: Some(3),
        error: Some("JOB_ENTRYPOINT_COMMAND_ERROR".into()),
        ended_ms: 9,
        metadata: BTreeMap::new(),
        runtime_env: String::new(),
        ..running()
    };
    assert_eq!(shape(&told(&failed, Some("hi\n"))), recorded(recorded!("job_two")));
}

#[test]
fn messages_are_rays() {
    for (state, recorded) in [
        (SubmissionState::Running, recorded!("job_one")),
        (SubmissionState::Pending, recorded!("job_pending")),
        (SubmissionState::Stopped, recorded!("job_one_stopped")),
    ] {
        let theirs: Json = serde_json::from_str(recorded).expect("JSON");
        let ours = details(&JobRow { state, ..running() }, None, false, UPLOADS);
        assert_eq!(ours.message.as_deref(), theirs["message"].as_str());
    }
    let failed = JobRow { state: SubmissionState::Failed, exit_code: Some(3), ..running() };
    let printed = (0..30).fold(String::new(), |text, number| text + &format!("line {number}\n"));
    let message = details(&failed, Some(&printed), false, UPLOADS).message.expect("a message");
    let begin =
        "Job entrypoint command failed with exit code 3, last available logs (truncated to 20,000 chars):\nline 20\n";
    assert!(message.starts_with(begin) && message.ends_with("line 29\n"), "{message}");
    let long = "é".repeat(QUOTED_CHARACTERS + 5);
    assert_eq!(last_lines(&long).chars().count(), QUOTED_CHARACTERS);
    assert_eq!((last_lines(""), last_lines("a\nb")), ("", "a\nb"));
}

#[test]
fn a_browser_sees_no_values_and_nobody_sees_where_uploads_lie() {
    let row = JobRow {
        runtime_env: json!({
            "env_vars": {"X": "secret"},
            "working_dir": "/session/uploads/_ray_pkg_1.zip",
            "py_modules": ["/elsewhere/m.zip", "/session/uploads/_ray_pkg_2.zip"],
        })
        .to_string(),
        ..running()
    };
    let environment = |is_for_browser| details(&row, None, is_for_browser, UPLOADS).runtime_env.expect("one");
    assert_eq!(environment(true)["env_vars"], json!({"X": "<redacted>"}));
    assert_eq!(environment(false)["env_vars"], json!({"X": "secret"}));
    assert_eq!(environment(false)["working_dir"], json!("gcs://_ray_pkg_1.zip"));
    assert_eq!(environment(false)["py_modules"], json!(["/elsewhere/m.zip", "gcs://_ray_pkg_2.zip"]));
}

#[test]
fn a_failure_before_the_entrypoint_has_rays_name() {
    let of = |message: &str| {
        let row = JobRow { state: SubmissionState::Failed, message: Some(message.into()), ..running() };
        details(&row, None, false, UPLOADS).error_type
    };
    assert_eq!(of("RuntimeEnvSetupError: pip says no").as_deref(), Some("RUNTIME_ENV_SETUP_FAILURE"));
    assert_eq!(of("the process that ran it was killed").as_deref(), Some("JOB_SUPERVISOR_ACTOR_DIED"));
    assert_eq!(details(&running(), None, false, UPLOADS).error_type, None);
}

#[test]
fn a_request_is_read_and_its_packages_are_found() {
    let mut read = JobSubmitRequest::parse(json!({
        "entrypoint": "python x.py", "submission_id": null, "job_id": "old-name", "metadata": {"a": "b"},
        "entrypoint_num_cpus": 1, "entrypoint_num_gpus": 0, "entrypoint_memory": 1024, "entrypoint_resources": {"x": 0.5},
        "entrypoint_label_selector": {"zone": "a"},
        "runtime_env": {"working_dir": "gcs://_ray_pkg_1.zip", "py_modules": ["gcs://gone.zip", "s3://other.zip"]},
    }))
    .expect("a job");
    read.resolve_packages(|name| (name == "_ray_pkg_1.zip").then(|| format!("{UPLOADS}/{name}")));
    assert_eq!(read.submission_id.as_deref(), Some("old-name"));
    let SubmissionSpec { entrypoint, runtime_env, metadata, resources, label_selector } = read.spec;
    assert_eq!(
        (entrypoint.as_str(), metadata["a"].as_str(), label_selector["zone"].as_str()),
        ("python x.py", "b", "a")
    );
    let amounts: Vec<(String, f64)> = resources.into_iter().collect();
    assert_eq!(amounts, [("CPU".to_owned(), 1.0), ("memory".to_owned(), 1024.0), ("x".to_owned(), 0.5)]);
    let environment: Json = serde_json::from_str(&runtime_env).expect("JSON");
    assert_eq!(
        environment,
        json!({"working_dir": "/session/uploads/_ray_pkg_1.zip", "py_modules": ["gcs://gone.zip", "s3://other.zip"]})
    );
}

#[test]
fn what_is_wrong_with_a_request_is_said_in_rays_words() {
    let said = |sent: Json| JobSubmitRequest::parse(sent).expect_err("no job").to_string();
    let last_line = |text: &'static str| text.trim_end().lines().last().expect("a line");
    assert_eq!(said(json!({"entrypoint": 5})), last_line(recorded!("submit_bad")));
    assert_eq!(said(json!({"entrypoint": "x", "colour": 1})), last_line(recorded!("submit_unknown")));
    assert!(said(json!({})).contains("missing 1 required positional argument: 'entrypoint'"));
    assert!(said(json!([])).contains("list"));
    for (field, value) in [
        ("submission_id", json!(1)),
        ("runtime_env", json!("x")),
        ("metadata", json!({"a": 1})),
        ("entrypoint_num_cpus", json!("1")),
        ("entrypoint_resources", json!({"x": "1"})),
        ("entrypoint_label_selector", json!({"x": 1})),
    ] {
        assert!(said(json!({"entrypoint": "x", field: value})).contains(field), "{field}");
    }
}

#[test]
fn names_are_made_as_ray_makes_them_and_packages_are_files_of_one_folder() {
    let name = new_submission_id([255; 16]);
    assert!(name.starts_with("raysubmit_") && name.len() == 26, "{name}");
    assert!(!NAME_LETTERS.iter().any(|letter| b"IloO0".contains(letter)));
    assert!(is_package("gcs", "_ray_pkg_0123456789abcdef.zip") && is_package("gcs", "x-1.0.whl"));
    for (protocol, name) in
        [("s3", "a.zip"), ("gcs", "../a.zip"), ("gcs", ".zip"), ("gcs", "a/b.zip"), ("gcs", "a"), ("gcs", "a\0.zip")]
    {
        assert!(!is_package(protocol, name), "{name}");
    }
}
