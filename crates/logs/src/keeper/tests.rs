//! What is kept of what workers print, and read again.

use super::*;
use oxiray_ids::TaskId;
use oxiray_wire::message::{ListedLog, LogAction, LogAnswer, LogQuery, LogSelector};

const LIMITS: LogLimits =
    LogLimits { file_bytes: 100, backups: 1, job_bytes: 10_000, node_bytes: 100_000, age_ms: 1_000_000, files: 100 };

fn name(worker: u8, job: u32) -> FileName {
    FileName { worker: WorkerId::new([worker; 28]), job: JobId::from_number(job), pid: 7, is_error: false }
}

fn task(number: u8, job: u32) -> TaskId {
    let job = JobId::from_number(job);
    let mut bytes = *ActorId::nil_of(job).creation_task().as_bytes();
    bytes[0] = number;
    TaskId::new(bytes)
}

fn span(number: u8, attempt: u32) -> Span {
    Span { task: task(number, 1), attempt, shared: false }
}

fn lines(text: &str) -> Printed {
    Printed::Lines { name: "f".into(), lines: Bytes::copy_from_slice(text.as_bytes()) }
}

struct Place {
    folder: tempfile::TempDir,
    keeper: Keeper,
}

fn place(limits: LogLimits) -> Place {
    let folder = tempfile::tempdir().expect("a folder");
    let keeper = Keeper::new(folder.path(), limits, false);
    Place { folder, keeper }
}

fn listed(archive: &Archive, wanted: LogSelector) -> Vec<ListedLog> {
    let asked = LogQuery { action: LogAction::List, wanted: Some(wanted), ..LogQuery::default() };
    archive.answer(&asked).expect("a list waits for nothing").files
}

fn read(archive: &Archive, file: &str, offset: u64, limit: Option<u64>, tail: Option<u64>) -> LogAnswer {
    let asked = LogQuery { action: LogAction::Read, file: file.to_owned(), offset, limit, tail, ..LogQuery::default() };
    archive.answer(&asked).expect("who reads waits for nothing")
}

/// What an attempt printed, from each of its parts.
fn printed(archive: &Archive, number: u8, attempt: Option<u32>) -> Vec<(u32, String, bool)> {
    let wanted = LogSelector { task: Some(task(number, 1)), attempt, ..LogSelector::default() };
    let files = listed(archive, wanted);
    let parts = files.iter().flat_map(|file| file.parts.iter().map(move |part| (file, part)));
    let read = parts.map(|(file, part)| {
        let text = read(archive, &file.name, part.from, part.to, None).bytes;
        (part.attempt, String::from_utf8_lossy(&text).into_owned(), part.shared)
    });
    read.collect()
}

#[test]
fn a_file_has_ray_s_name_and_first_line_and_its_attempts_are_found() {
    let Place { folder, mut keeper } = place(LIMITS);
    let file = name(1, 1);
    let pieces = [
        lines("before\n"),
        Printed::Begins(span(1, 0)),
        lines("one\n"),
        lines("two\n"),
        Printed::Ends(span(1, 0)),
        Printed::Begins(span(2, 0)),
        Printed::Ends(span(2, 0)),
        Printed::Begins(span(1, 1)),
    ];
    keeper.append(file, &pieces, 0, 5);
    keeper.append(file, &[lines("again\n")], 0, 6);
    let text = fs::read_to_string(folder.path().join(file.to_string())).expect("there");
    assert_eq!(text, ":job_id:01000000\nbefore\none\ntwo\nagain\n");
    let open = || (1, "again\n".to_owned(), false);
    assert_eq!(printed(keeper.archive(), 1, None), [(0, "one\ntwo\n".into(), false), open()]);
    assert_eq!(printed(keeper.archive(), 1, Some(1)), [open()]);
    assert_eq!(printed(keeper.archive(), 2, None), [], "it printed nothing");
    // Its process dies: what it printed last is of the attempt that it ran.
    let words = keeper.end(file.worker, true, 9).expect("it said something");
    assert_eq!(words, folder.path().join(file.to_string()));
    drop(keeper);
    let ended = Archive::of_ended(folder.path());
    assert_eq!(printed(&ended, 1, Some(1)), [], "what was not written down is lost with the daemon");
    let [known] = &listed(&ended, LogSelector { pid: Some(7), ..LogSelector::default() })[..] else { panic!("one") };
    assert_eq!((known.label.as_str(), known.began_ms, known.ended_ms), ("f", 5, Some(9)));
}

#[test]
fn what_is_remembered_is_in_files_when_nothing_is_to_be_done() {
    let Place { folder, mut keeper } = place(LIMITS);
    let file = name(1, 1);
    keeper.append(file, &[Printed::Begins(span(1, 0)), lines("one\n"), Printed::Ends(span(1, 0))], 0, 5);
    keeper.rest(5);
    keeper.append(file, &[Printed::Begins(span(2, 3)), lines("two\n")], 0, 5);
    keeper.end(file.worker, true, 6);
    keeper.rest(6);
    let ended = Archive::of_ended(folder.path());
    assert_eq!(printed(&ended, 1, None), [(0, "one\n".into(), false)]);
    assert_eq!(printed(&ended, 2, Some(3)), [(3, "two\n".into(), false)]);
    // A head that goes on knows them, too, and adds to them.
    let mut resumed = Keeper::new(folder.path(), LIMITS, true);
    resumed.append(name(2, 1), &[Printed::Begins(span(1, 1)), lines("anew\n"), Printed::Ends(span(1, 1))], 0, 7);
    assert_eq!(printed(resumed.archive(), 1, None), [(0, "one\n".into(), false), (1, "anew\n".into(), false)]);
}

#[test]
fn calls_at_once_share_what_they_print() {
    let Place { folder: _folder, mut keeper } = place(LIMITS);
    let both = [
        Printed::Begins(span(1, 0)),
        lines("a\n"),
        Printed::Begins(span(2, 0)),
        lines("b\n"),
        Printed::Ends(span(1, 0)),
    ];
    keeper.append(name(1, 1), &both, 0, 5);
    assert_eq!(printed(keeper.archive(), 1, None), [(0, "a\nb\n".into(), true)]);
    assert_eq!(printed(keeper.archive(), 2, None), [(0, "b\n".into(), true)]);
}

#[test]
fn a_full_file_is_set_aside_and_offsets_stay() {
    let Place { folder, mut keeper } = place(LogLimits { file_bytes: 200, ..LIMITS });
    let file = name(1, 1);
    let text = "x".repeat(59) + "\n";
    for number in 0..9 {
        keeper.append(file, &[Printed::Begins(span(number, 0)), lines(&text), Printed::Ends(span(number, 0))], 0, 5);
    }
    // Each file has its first line and four of those, and is full then; the first one is gone.
    let wanted = LogSelector { pid: Some(7), ..LogSelector::default() };
    let [known] = &listed(keeper.archive(), wanted)[..] else { panic!("one") };
    assert_eq!(known.begin, 257);
    assert_eq!(printed(keeper.archive(), 0, None), [(0, String::new(), false)], "it is not kept any more");
    assert_eq!(printed(keeper.archive(), 4, None), [(0, text.clone(), false)], "it is in a file that was set aside");
    assert_eq!(printed(keeper.archive(), 8, None), [(0, text.clone(), false)]);
    let there = |name: String| fs::read_to_string(folder.path().join(name)).expect("there");
    let last = there(file.to_string());
    assert!(last.starts_with(":job_id:01000000\n[oxiray] the first 257 bytes"), "{last}");
    assert_eq!(there(format!("{file}.1")), format!(":job_id:01000000\n{}", text.repeat(4)));
    let all = read(keeper.archive(), &file.to_string(), 0, None, None);
    assert_eq!((all.offset, all.bytes.len() as u64), (257, all.end - 257), "a piece goes over both");
    let tail = read(keeper.archive(), &file.to_string(), 0, Some(514), Some(2));
    assert_eq!(tail.bytes, text.repeat(2).as_bytes());
    keeper.end(file.worker, true, 6);
    keeper.rest(6);
    let ended = Archive::of_ended(folder.path());
    assert_eq!(printed(&ended, 4, None), [(0, text, false)]);
}

#[test]
fn what_is_over_a_limit_goes_and_the_index_says_so() {
    let Place { folder, mut keeper } = place(LogLimits { job_bytes: 200, ..LIMITS });
    for worker in 1..=4 {
        keeper.append(name(worker, 1), &[Printed::Begins(span(worker, 0)), lines(&"y".repeat(70))], 0, 5);
        keeper.end(name(worker, 1).worker, true, worker.into());
        keeper.rest(worker.into());
    }
    let left: Vec<String> =
        listed(keeper.archive(), LogSelector { job: Some(JobId::from_number(1)), ..LogSelector::default() })
            .into_iter()
            .map(|file| file.name)
            .collect();
    assert_eq!(left, [3, 4].map(|worker| name(worker, 1).to_string()));
    let index = fs::read_to_string(folder.path().join("index.jsonl")).expect("there");
    assert_eq!(index.lines().filter(|line| line.contains("\"removed\":true")).count(), 2, "{index}");
    assert!(folder.path().join("tasks-01000000.jsonl").exists());
    keeper.rest(2_000_000);
    assert!(!folder.path().join("tasks-01000000.jsonl").exists(), "nothing of the job is kept");
}

#[test]
fn what_cannot_be_written_is_counted_and_told_once() {
    let Place { folder, mut keeper } = place(LogLimits { file_bytes: 10_000, ..LIMITS });
    let (file, other) = (name(1, 1), name(2, 1));
    fs::create_dir(folder.path().join(file.to_string())).expect("nothing can be written there");
    keeper.append(file, &[lines("lost\n")], 0, 5);
    keeper.append(other, &[lines("kept\n")], 0, 5);
    keeper.append(file, &[lines("lost\n")], 3, 5);
    let trouble = keeper.new_trouble().expect("something went wrong");
    assert!(trouble.text.contains("cannot be written to") && keeper.new_trouble().is_none(), "{trouble:?}");
    assert_eq!(keeper.trouble().map(|trouble| trouble.count), Some(2));
    fs::remove_dir(folder.path().join(file.to_string())).expect("it is empty");
    keeper.append(file, &[lines("kept\n")], 0, 5);
    let text = fs::read_to_string(folder.path().join(file.to_string())).expect("there");
    assert!(text.contains("bytes that were printed here are not kept: ") && text.ends_with("\nkept\n"), "{text}");
}

#[test]
fn a_name_is_no_path() {
    let Place { folder, mut keeper } = place(LIMITS);
    fs::write(folder.path().join("daemon.log"), "told\n").expect("written");
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).expect("a link");
    fs::create_dir(folder.path().join("inner")).expect("a folder");
    fs::write(folder.path().join("inner/secret"), "secret").expect("written");
    assert_eq!(read(keeper.archive(), "daemon.log", 0, None, None).bytes, "told\n");
    for name in ["/etc/passwd", "link", "inner/secret", "../x", "inner/../daemon.log", "", ".", "inner"] {
        assert!(read(keeper.archive(), name, 0, None, None).failure.is_some(), "{name}");
    }
}

#[test]
fn who_follows_waits_until_there_is_more_or_never_will_be() {
    let Place { folder: _folder, mut keeper } = place(LIMITS);
    let file = name(1, 1);
    keeper.append(file, &[lines("one\n")], 0, 5);
    let asked = |offset| LogQuery { action: LogAction::Follow, file: file.to_string(), offset, ..LogQuery::default() };
    let end = keeper.archive().answer(&asked(0)).expect("there is something").end;
    assert_eq!(keeper.archive().answer(&asked(end)), None);
    keeper.append(file, &[lines("two\n")], 0, 5);
    let more = keeper.archive().answer(&asked(end)).expect("there is more");
    assert_eq!((&more.bytes[..], more.is_over), (&b"two\n"[..], false));
    keeper.end(file.worker, true, 6);
    let over = keeper.archive().answer(&asked(more.end)).expect("there never will be");
    assert!(over.bytes.is_empty() && over.is_over);
}
