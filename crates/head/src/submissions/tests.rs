use super::*;

fn spec(entrypoint: &str) -> SubmissionSpec {
    SubmissionSpec { entrypoint: entrypoint.to_owned(), ..SubmissionSpec::default() }
}

fn with(id: &str) -> Submissions {
    let mut all = Submissions::default();
    assert_eq!(all.submit(id, &spec("true"), 5), Ok(Submitted::New));
    all
}

#[test]
fn a_job_is_submitted_once() {
    let mut all = with("a");
    assert_eq!(all.submit("a", &spec("true"), 9), Ok(Submitted::Known));
    assert_eq!(all.get("a").map(|job| job.submitted_ms), Some(5));
    let refused = all.submit("a", &spec("false"), 9).expect_err("another job");
    assert_eq!(
        refused.to_string(),
        "the submission id `a` is that of another job, whose entrypoint is `true`: give another id, or none"
    );
    for name in ["", "../a", ".a", "a b", &"a".repeat(129)] {
        assert_eq!(all.submit(name, &spec("true"), 9), Err(NotSubmitted::Name(name.to_owned())), "{name}");
    }
    assert_eq!(all.submit("b", &spec(" "), 9), Err(NotSubmitted::Empty));
    let long = spec(&"x".repeat(SUBMISSION_BYTES_MAX + 1));
    assert!(matches!(all.submit("b", &long, 9), Err(NotSubmitted::TooLarge(_))));
}

#[test]
fn what_is_heard_decides_and_the_end_is_final() {
    use SubmissionState::{Failed, Running, Stopped, Succeeded};
    for (words, stop_after, state, code, message) in [
        (vec![Word::Started], None, Running, None, "its entrypoint runs"),
        (vec![Word::Started, Word::Ended(0)], None, Succeeded, Some(0), "its entrypoint ended with status 0"),
        (vec![Word::Started, Word::Ended(3)], None, Failed, Some(3), "its entrypoint ended with status 3"),
        (vec![Word::Started, Word::Ended(-9)], None, Failed, Some(-9), "its entrypoint was killed by signal 9"),
        (vec![Word::Failed("no room".into())], None, Failed, None, "no room"),
        (vec![Word::Failed("no room".into()), Word::Ended(0)], None, Failed, None, "no room"),
        (vec![Word::Started, Word::Ended(-15)], Some(1), Stopped, Some(-15), "it was stopped on request"),
        (vec![Word::Started, Word::Failed("gone".into())], Some(0), Stopped, None, "it was stopped on request"),
        (vec![Word::Started, Word::Ended(0)], Some(2), Succeeded, Some(0), "its entrypoint ended with status 0"),
    ] {
        let mut all = with("a");
        for (number, word) in words.iter().cloned().enumerate() {
            if stop_after == Some(number) {
                assert_eq!(all.stop("a"), Some(Stopping::Tell));
                assert_eq!(all.stop("a"), Some(Stopping::Nothing));
            }
            all.heard("a", word, 10 + number as u64);
        }
        if stop_after == Some(words.len()) {
            assert_eq!(all.stop("a"), Some(Stopping::Nothing));
        }
        let job = all.get("a").expect("it is remembered");
        assert_eq!((job.state, job.exit_code, job.message.as_str()), (state, code, message), "{words:?}");
        assert_eq!(job.ended_ms > 0, state.is_final());
    }
    assert_eq!(Submissions::default().stop("a"), None);
}

#[test]
fn a_head_that_comes_back_tells_of_the_end() {
    let mut all = with("a");
    all.heard("a", Word::Started, 6);
    let told = all.get("a").expect("it is there").clone();
    let mut again = Submissions::default();
    again.restore(told.clone());
    assert_eq!(again.get("a"), Some(&told));
    assert_eq!(again.head_ended(), ["a"]);
    let job = again.get("a").expect("it is there").clone();
    let why = "the head that ran it ended, and it with the head";
    assert_eq!((job.state, job.message.as_str()), (SubmissionState::Failed, why));
    assert!(again.head_ended().is_empty());
    assert!(!again.heard("a", Word::Ended(0), 9), "SUBMIT-2");
}

#[test]
fn the_ended_are_forgotten_in_time_and_the_living_are_bounded() {
    let mut all = with("living");
    for number in 0..=ENDED_SUBMISSIONS_KEPT {
        let id = format!("{number:05}");
        assert_eq!(all.submit(&id, &spec("true"), 9), Ok(Submitted::New));
        all.heard(&id, Word::Ended(0), number as u64 + 10);
    }
    assert_eq!(all.forget_old(), ["00000"]);
    assert!(all.get("living").is_some());
    for number in 1..LIVING_SUBMISSIONS_MAX {
        assert_eq!(all.submit(&format!("l{number}"), &spec("true"), 9), Ok(Submitted::New));
    }
    assert_eq!(all.submit("more", &spec("true"), 9), Err(NotSubmitted::TooMany));
    assert_eq!(all.all().first().map(|job| job.id.as_str()), Some("living"));
}
