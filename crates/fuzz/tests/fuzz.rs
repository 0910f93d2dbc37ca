//! A fixed part of what `make fuzz` says.

use oxiray_fuzz::hostile::left_out;
use oxiray_fuzz::hostile::speech::{self, Speech};
use oxiray_fuzz::porch::PorchEnd;
use oxiray_fuzz::{frames, journal, porch, run};
use oxiray_ids::WorkerNumber;
use oxiray_wire::Message;
use oxiray_wire::frame::HEADER_BYTES;
use oxiray_wire::message::{ActorAnswer, Amount, ChronicleBatch, ClusterQuery, NodeState, StateReport, Stop};
use std::collections::{BTreeMap, BTreeSet};

/// Seeds that did harm once.
const HARMFUL: [u64; 1] = [0];

#[test]
fn nothing_that_peers_say_ends_the_core() {
    let mut frames = 0;
    for seed in HARMFUL.into_iter().chain(1_000..1_010) {
        let told = run(seed).unwrap_or_else(|failed| panic!("{failed:#?}"));
        assert!(told.messages > told.frames / 2, "hardly anything could be read: {told:?}");
        assert!(told.effective.len() > 15, "hardly anything had an effect: {told:?}");
        frames += told.frames;
    }
    assert!(frames >= 55_000);
}

#[test]
fn nothing_that_comes_over_a_connection_ends_its_reader() {
    // A frame with a malformed identifier ends its connection, too; and one whose header was changed may announce so much that
    // all that follows is taken for its body.
    let heard: u64 = (1..=8).map(|seed| frames::run(seed, 5_000)).sum();
    assert!(heard > 1_000, "{heard} messages came of 40,000 frames");
}

#[test]
fn a_changed_journal_holds_what_it_held_or_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut total = journal::Tally::default();
    for seed in 0..300 {
        let told = journal::run(seed, folder.path());
        total.whole += told.whole;
        total.shorter += told.shorter;
        total.refused += told.refused;
    }
    assert!(total.whole > 50 && total.shorter > 100 && total.refused > 100, "{total:?}");
}

#[test]
fn who_asks_at_the_porch_is_let_in_with_the_token_alone() {
    let mut total = porch::PorchTally::default();
    for seed in 0..20 {
        let told = porch::run(seed, 5_000);
        total.proven += told.proven;
        total.open += told.open;
        total.refused += told.refused;
        total.malformed += told.malformed;
        total.partial += told.partial;
    }
    assert!(
        total.proven > 200
            && total.open > 200
            && total.refused > 10_000
            && total.malformed > 10_000
            && total.partial > 100,
        "{total:?}"
    );
}

/// What coverage begins with reaches whatever can become of a request.
#[test]
fn the_seeds_of_requests_come_to_every_end() {
    let (rules, folder) = (porch::rules(), concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/porch"));
    let mut found: Vec<(String, PorchEnd)> = std::fs::read_dir(folder)
        .expect("the seeds are there")
        .map(|entry| {
            let path = entry.expect("a file").path();
            let bytes = std::fs::read(&path).expect("it is read");
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, porch::look_at(&bytes, &rules, &mut fastrand::Rng::with_seed(0)))
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        ("bare", PorchEnd::Malformed),
        ("elsewhere", PorchEnd::Refused),
        ("open", PorchEnd::Open),
        ("page", PorchEnd::Proven),
        ("partial", PorchEnd::Partial),
        ("public", PorchEnd::Proven),
        ("reads", PorchEnd::Refused),
        ("smuggled", PorchEnd::Malformed),
        ("submit", PorchEnd::Proven),
        ("token", PorchEnd::Proven),
        ("upload", PorchEnd::Proven),
    ];
    assert_eq!(found, expected.map(|(name, end)| (name.to_owned(), end)));
}

/// The message of a frame; nothing where it cannot be read.
fn message_of(frame: &[u8]) -> Option<Message> {
    let kind = u16::from_le_bytes([frame[4], frame[5]]);
    Message::decode(kind, frame[HEADER_BYTES..].to_vec().into()).ok().flatten()
}

#[test]
fn the_hostile_say_everything_but_what_is_left_out_and_some_of_it_again() {
    for is_left_out in [left_out::of_client, left_out::of_member] {
        let (mut speech, mut frames, mut kinds) = (Speech::new(1), BTreeMap::new(), BTreeSet::new());
        for _ in 0..20_000 {
            let frame = speech.next(is_left_out, speech::any_frame);
            if let Some(message) = message_of(&frame) {
                assert!(!is_left_out(&message), "{message:?}");
                kinds.insert(message.kind());
            }
            *frames.entry(frame).or_insert(0) += 1;
        }
        assert!(
            kinds.len() + 15 >= Message::KINDS.len(),
            "more kinds than those that are left out are not said: {kinds:?}"
        );
        assert!(frames.values().any(|count| *count > 1));
    }
}

#[test]
fn what_names_others_actors_is_heard_and_not_remembered() {
    let found = |existed| Message::from(ActorAnswer { existed, ..ActorAnswer::default() });
    for answer in [StateReport::default().into(), ChronicleBatch::default().into(), found(true)] {
        assert!(left_out::names_what_is_others(&answer) && !left_out::of_client(&answer), "{answer:?}");
    }
    assert!(!left_out::names_what_is_others(&found(false)), "it is an actor of one's own");
}

#[test]
fn a_relay_is_judged_by_what_is_within() {
    let stop = Message::from(Stop {});
    let relayed = Message::from(stop.relayed(WorkerNumber(1)));
    assert!(left_out::of_client(&stop) && left_out::of_member(&relayed));
    let query = Message::from(ClusterQuery { request: 1 });
    assert!(!left_out::of_member(&query.relayed(WorkerNumber(1)).into()));
    let offers = |resource: &str| {
        let free = vec![Amount { resource: resource.to_owned(), units: 1 }];
        Message::from(NodeState { free, ..NodeState::default() })
    };
    assert!(left_out::of_member(&offers("CPU")) && !left_out::of_member(&offers(left_out::RESOURCE)));
}
