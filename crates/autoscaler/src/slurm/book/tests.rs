use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn book() -> Book {
    Book::new("c1", BTreeMap::from([("short".to_owned(), 30 * SECOND)]))
}

fn row(job: u64, stage: Stage, reason: &str, name: &str) -> Row {
    let state = format!("{stage:?}").to_uppercase();
    Row { job, stage, state, reason: reason.to_owned(), limit_s: None, left_s: None, name: name.to_owned() }
}

/// A book with one job of group `g`, which Slurm calls 7.
fn with_one() -> (Book, String) {
    let mut book = book();
    let tickets = book.missing("g", 1, "r");
    let [ticket] = &tickets[..] else { panic!("one: {tickets:?}") };
    let name = book.name(ticket);
    book.asked(SECOND, ticket.clone(), Asked::Taken(7));
    (book, name)
}

fn states(book: &Book) -> Vec<(String, InstanceState, String)> {
    book.instances().into_iter().map(|one| (one.id, one.state, one.detail)).collect()
}

#[test]
fn a_request_that_is_made_again_brings_what_is_missing_of_it() {
    let mut book = book();
    assert_eq!(book.missing("g", 2, "r").len(), 2);
    assert_eq!(book.missing("g", 2, "r"), []);
    let more = book.missing("g", 3, "r");
    assert_eq!(more.iter().map(|ticket| book.name(ticket)).collect::<Vec<_>>(), ["oxiray.c1.r.2.g"]);
    assert_eq!(book.missing("g", 1, "r"), []);
}

#[test]
fn a_job_is_queued_with_the_reason_runs_and_is_gone_when_it_was_cancelled() {
    let (mut book, name) = with_one();
    assert!(book.look(SECOND, &[row(7, Stage::Queued, "Resources", &name)]).is_empty());
    assert_eq!(states(&book), [("g-7".to_owned(), InstanceState::Queued, "Resources".to_owned())]);
    book.look(SECOND, &[row(7, Stage::Running, "None", &name)]);
    assert_eq!(states(&book)[0].1, InstanceState::Running);
    assert_eq!(book.active(), [7]);
    assert_eq!(book.cancel(&["g-7".to_owned(), "g-8".to_owned()]), [7]);
    assert_eq!(states(&book)[0].1, InstanceState::Terminating);
    book.look(SECOND, &[row(7, Stage::Completing, "None", &name)]);
    assert_eq!((states(&book)[0].1, book.active().len()), (InstanceState::Terminating, 0));
    assert!(book.look(SECOND, &[row(7, Stage::Ended, "None", &name)]).is_empty());
    assert!(states(&book).is_empty() && book.take_failed().is_empty() && !book.is_moving());
}

#[test]
fn the_jobs_of_this_cluster_are_found_and_no_others() {
    let mut book = book();
    let rows = [
        row(1, Stage::Running, "None", "oxiray.c1.r-9.0.g.x"),
        row(2, Stage::Running, "None", "oxiray.c2.r-9.0.g"),
        row(3, Stage::Running, "None", "oxiray.c1x.r-9.0.g"),
        row(4, Stage::Running, "None", "train"),
        row(5, Stage::Ended, "None", "oxiray.c1.r-9.1.g"),
    ];
    assert!(book.look(SECOND, &rows).is_empty());
    let found = book.instances();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&*found[0].group, found[0].request.as_deref()), ("g.x", Some("r-9")));
}

#[test]
fn a_job_that_ends_by_itself_is_listed_once_more_and_told_with_what_it_printed() {
    let (mut book, name) = with_one();
    book.look(SECOND, &[row(7, Stage::Running, "None", &name)]);
    book.look(SECOND, &[row(7, Stage::Completing, "None", &name)]);
    assert_eq!(states(&book)[0].1, InstanceState::Running, "it may be one whose node never joined");
    let ended = [row(7, Stage::Ended, "NonZeroExitCode", &name)];
    assert_eq!(book.look(SECOND, &ended), [7]);
    assert!(book.look(SECOND, &ended).is_empty(), "once");
    book.add_output(7, "no such file");
    assert_eq!(book.take_instances().len(), 1);
    let text = "job 7 ended by itself (ENDED, NonZeroExitCode: no such file)".to_owned();
    assert_eq!(book.take_failed(), [Failed::Stuck { group: "g".into(), replica: "g-7".into(), text }]);
    assert!(book.take_instances().is_empty());
    assert!(book.look(SECOND, &ended).is_empty() && !book.is_moving(), "it does not come back");
}

#[test]
fn a_job_that_ended_before_it_was_cancelled_is_no_failure() {
    let (mut book, name) = with_one();
    book.look(SECOND, &[row(7, Stage::Running, "None", &name)]);
    book.look(SECOND, &[row(7, Stage::Ended, "None", &name)]);
    assert_eq!(book.cancel(&["g-7".to_owned()]), [7]);
    assert_eq!(book.take_instances().len(), 1);
    assert_eq!((book.take_failed(), book.is_moving()), (Vec::new(), false));
}

#[test]
fn a_job_that_slurm_forgot_has_ended() {
    let (mut book, _) = with_one();
    assert_eq!(book.look(SECOND, &[]), [7]);
    book.take_instances();
    assert!(matches!(&book.take_failed()[..], [Failed::Stuck { text, .. }] if text.contains("does not list it")));
}

#[test]
fn what_sbatch_did_not_answer_for_is_found_or_has_failed() {
    let mut book = book();
    let tickets = book.missing("g", 2, "r");
    let names: Vec<String> = tickets.iter().map(|ticket| book.name(ticket)).collect();
    for ticket in tickets {
        book.asked(SECOND, ticket, Asked::Unknown("too slow".to_owned()));
    }
    assert!(book.is_moving() && book.take_failed().is_empty());
    book.look(SECOND, &[row(9, Stage::Queued, "Priority", &names[1])]);
    assert_eq!(states(&book)[0].0, "g-9");
    let text = "too slow".to_owned();
    assert_eq!(book.take_failed(), [Failed::Launch { group: "g".into(), request: "r".into(), replicas: 1, text }]);
}

#[test]
fn a_refusal_is_a_failed_launch_of_its_request() {
    let mut book = book();
    let ticket = book.missing("g", 1, "r").remove(0);
    book.asked(SECOND, ticket, Asked::Refused("invalid partition".to_owned()));
    assert!(
        matches!(&book.take_failed()[..], [Failed::Launch { request, text, .. }] if request == "r" && text == "invalid partition")
    );
    assert!(!book.is_moving());
}

#[test]
fn a_job_may_be_queued_for_as_long_as_its_group_says() {
    let mut book = book();
    for (number, group) in [(1, "short"), (2, "long")] {
        let ticket = book.missing(group, 1, group).remove(0);
        book.asked(SECOND, ticket, Asked::Taken(number));
    }
    let rows = [
        row(1, Stage::Queued, "Priority", "oxiray.c1.short.0.short"),
        row(2, Stage::Queued, "Priority", "oxiray.c1.long.0.long"),
    ];
    book.look(30 * SECOND, &rows);
    assert_eq!(book.take_failed(), []);
    book.look(31 * SECOND, &rows);
    assert!(matches!(&book.take_failed()[..], [Failed::Stuck { replica, text, .. }]
        if replica == "short-1" && text == "job 1 was queued for 30 s (Priority)"));
    book.look(32 * SECOND, &rows);
    assert_eq!(book.take_failed(), [], "once");
}

#[test]
fn a_job_that_cannot_be_cancelled_is_told_where_it_is_still_there() {
    let (mut book, name) = with_one();
    book.cancel(&["g-7".to_owned()]);
    book.not_cancelled(&[7], "permission denied");
    book.look(SECOND, &[row(7, Stage::Running, "None", &name)]);
    assert!(matches!(&book.take_failed()[..], [Failed::Terminate { replica, .. }] if replica == "g-7"));
    book.not_cancelled(&[7], "no such job");
    book.look(SECOND, &[]);
    assert_eq!(book.take_failed(), []);
}

#[test]
fn a_node_is_to_be_empty_before_the_time_of_its_job_is_over() {
    let (mut book, name) = with_one();
    for (limit, left, expected) in [
        (Some(86_400), Some(301), InstanceState::Running),
        (Some(86_400), Some(300), InstanceState::Expiring),
        (Some(600), Some(61), InstanceState::Running),
        (Some(600), Some(60), InstanceState::Expiring),
        (None, None, InstanceState::Running),
    ] {
        let row = Row { limit_s: limit, left_s: left, ..row(7, Stage::Running, "None", &name) };
        book.look(SECOND, &[row]);
        assert_eq!(states(&book)[0].1, expected, "{limit:?} {left:?}");
    }
}
