use super::*;
use crate::table::TABLES;
use oxiray_network::porch::PorchRefusal;
use serde_json::Value as Json;
use std::path::PathBuf;

const PEER: &str = "10.1.2.3:4567";

fn refused(method: &str, path: &str, refusal: PorchRefusal) -> RefusedRequest {
    let (method, path) = (method.to_owned(), path.to_owned());
    RefusedRequest { peer: PEER.parse().expect("one"), local: None, method, path, key: None, refusal }
}

fn guess(method: &str, path: &str) -> RefusedRequest {
    refused(method, path, PorchRefusal { is_of_secret: true, ..PorchRefusal::MALFORMED })
}

struct Recorded {
    _folder: tempfile::TempDir,
    audit: Rc<Audit>,
    path: PathBuf,
}

impl Recorded {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        Self { audit: Audit::new(folder.path(), FILE), path, _folder: folder }
    }

    fn lines(&self) -> Vec<Json> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

#[test]
fn whatever_changes_something_is_an_act_and_has_a_route() {
    let routes: Vec<_> = TABLES.iter().copied().flatten().map(|route| (route.0, route.1)).collect();
    for (method, route) in routes.iter().filter(|(method, _)| *method != "GET") {
        assert!(act_of(method, &route.replace("{}", "x")).is_some(), "{method} {route}");
    }
    for (method, route, _) in ACTS {
        assert!(routes.contains(&(method, route)), "{method} {route}");
    }
    assert_eq!(act_of("HEAD", "/memory_profile"), Some("profile"), "it is taken for that as well");
    assert_eq!((act_of("GET", "/api/jobs/x"), act_of("DELETE", "/api/jobs/x")), (None, Some("delete_job")));
}

#[test]
fn strangers_have_few_lines_and_are_counted() {
    let recorded = Recorded::new();
    let (audit, now) = (Rc::clone(&recorded.audit), Instant::now());
    audit.refuse(&refused("GET", "/api/version", PorchRefusal::MALFORMED), now);
    assert_eq!(recorded.lines().len(), 0, "it did nothing, and guessed nothing");
    for _ in 0..100 {
        audit.refuse(&guess("GET", "/api/jobs/secret-of-somebody"), now);
    }
    let lines = recorded.lines();
    assert_eq!(lines.len(), REFUSED_LINES_MAX as usize, "AUDIT-3");
    assert_eq!((&lines[0]["act"], &lines[0]["peer"], &lines[0]["status"]), (&"read".into(), &PEER.into(), &400.into()));
    assert!(!lines[0].to_string().contains("secret-of-somebody"), "AUDIT-2");
    audit.refuse(&guess("DELETE", "/api/jobs/a"), now + REFUSED_WINDOW * 2);
    assert_eq!(recorded.lines()[10]["act"], "delete_job");
    assert_eq!(recorded.lines()[10]["left_out"], 90);
}

#[tokio::test]
async fn those_without_lines_are_told_of_once_others_stop_coming() {
    let recorded = Recorded::new();
    let audit = Rc::clone(&recorded.audit);
    let (mut tell, refused) = hear_refusals();
    // The porch tells of more at once than is heard.
    for _ in 0..200 {
        tell(guess("POST", "/api/jobs/"));
    }
    let all = async {
        while recorded.lines().len() <= REFUSED_LINES_MAX as usize {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        recorded.lines()
    };
    let lines = tokio::select! {
        never = refused.record(&audit) => match never {},
        lines = all => lines,
    };
    assert_eq!(lines.len(), REFUSED_LINES_MAX as usize + 1);
    let left_out: u64 = lines.iter().filter_map(|line| line["left_out"].as_u64()).sum();
    assert_eq!(left_out, 190);
    assert!(lines[10].get("peer").is_none());
}

#[test]
fn an_act_that_is_not_answered_has_its_line_and_what_is_noted_is_in_it() {
    let recorded = Recorded::new();
    let noted = Rc::new(Noted::default());
    let line = || Line { result: "unknown", ..Line::now("submit_job") };
    let act = || Act { audit: Rc::clone(&recorded.audit), noted: Rc::clone(&noted), line: line() };
    let dropped = act();
    noted.subject(&"x".repeat(10_000));
    noted.entrypoint("SECRET=12345 python train.py");
    drop(dropped);
    for (status, result) in [(200, "done"), (404, "refused"), (500, "failed")] {
        act().done(StatusCode::from_u16(status).expect("one"));
        assert_eq!(recorded.lines().last().expect("a line")["result"], result);
    }
    let lines = recorded.lines();
    assert_eq!((&lines[0]["result"], lines.len()), (&"unknown".into(), 4), "AUDIT-1");
    assert_eq!(lines[0]["subject"].as_str().map(str::len), Some(SUBJECT_MAX));
    assert_eq!(lines[0]["entrypoint_sha256"].as_str().map(str::len), Some(64));
    assert!(!lines[0].to_string().contains("12345"), "AUDIT-2");
    let time = lines[0]["time"].as_str().expect("a time");
    assert!(time.len() == 24 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
}
