//! What a caller has of an error: its words, and where it can be written, the error itself.

use crate::LIMIT;
use oxiray::{Error, FailureCode, Items, ObjectRef, Result, ValueError};
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct TooFew {
    wanted: u32,
    names: Vec<String>,
}

impl fmt::Display for TooFew {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} are wanted, and there are {}", self.wanted, self.names.len())
    }
}

fn too_few(wanted: u32) -> TooFew {
    TooFew { wanted, names: vec!["one".into()] }
}

#[oxiray::remote(num_cpus = 0)]
fn gather(wanted: u32) -> std::result::Result<u32, TooFew> {
    Err(too_few(wanted))
}

#[oxiray::remote(num_cpus = 0)]
async fn gather_slowly(wanted: u32) -> std::result::Result<u32, TooFew> {
    Err(too_few(wanted))
}

#[oxiray::remote(num_cpus = 0)]
fn gather_each(wanted: u32) -> impl Iterator<Item = std::result::Result<u32, TooFew>> {
    [Ok(1), Err(too_few(wanted))].into_iter()
}

/// Fails with whatever its own call failed with.
#[oxiray::remote(num_cpus = 0)]
fn gather_elsewhere(wanted: u32) -> Result<u32> {
    gather::remote(wanted)?.get()
}

/// Fails on its way in.
#[oxiray::remote(num_cpus = 0)]
fn takes(count: u32) -> u32 {
    count
}

struct Gatherer;

#[oxiray::remote(num_cpus = 0)]
impl Gatherer {
    pub fn new(least: u32) -> std::result::Result<Self, TooFew> {
        if least > 1 { Err(too_few(least)) } else { Ok(Self) }
    }

    pub fn gather(&self, wanted: u32) -> std::result::Result<u32, TooFew> {
        Err(too_few(wanted))
    }
}

fn error_of(called: Result<ObjectRef<u32>>) -> Error {
    called.unwrap().get_timeout(LIMIT).unwrap_err()
}

pub(crate) fn an_error_of_the_programs_own_arrives_whole() {
    let gatherer = Gatherer::remote(1).unwrap();
    let mut items: Items<u32> = gather_each::remote(3).unwrap();
    assert_eq!(items.next().unwrap().unwrap().get_timeout(LIMIT).unwrap(), 1);
    let last = items.next().unwrap().unwrap().get_timeout(LIMIT).unwrap_err();
    let made = error_of(Gatherer::remote(3).unwrap().gather(0));
    let taken = error_of(takes::remote(takes::remote(gather::remote(3).unwrap()).unwrap()));
    let unrun = "takes` did not run, since an argument failed: ";
    assert_eq!(taken.to_string().matches(unrun).count(), 2, "{taken}");
    assert!(taken.to_string().contains("gather` failed in process"), "{taken}");
    for error in [
        error_of(gather::remote(3)),
        error_of(gather_slowly::remote(3)),
        error_of(gatherer.gather(3)),
        last,
        made,
        taken,
    ] {
        assert_eq!(error.cause(), Some(too_few(3)), "{error}");
        assert_eq!(error.cause::<String>(), None, "it is of another type");
        let Error::Task(task) = &error else { panic!("{error:?}") };
        assert_eq!((task.message.as_str(), task.kind.as_str()), ("3 are wanted, and there are 1", "TooFew"));
    }
}

pub(crate) fn an_error_of_a_call_within_a_call_is_there_below() {
    let outer = error_of(gather_elsewhere::remote(3));
    let inner: Error = outer.cause().expect("what its own call failed with");
    assert_eq!(inner.cause(), Some(too_few(3)));
    let (Error::Task(outer), Error::Task(inner)) = (outer, inner) else { panic!("both are of functions") };
    assert_eq!((outer.function.as_str(), inner.function.as_str()), ("gather_elsewhere", "gather"));
}

#[oxiray::remote(num_cpus = 0)]
fn throws(error: Error) -> Result<()> {
    Err(error)
}

pub(crate) fn each_kind_of_error_is_told_from_the_others() {
    let text = || "why".to_owned();
    for error in [
        Error::TimedOut,
        Error::WorkerDied(text()),
        Error::ActorDied(text()),
        Error::ActorUnavailable(text()),
        Error::Unschedulable(text()),
        Error::Cancelled(text()),
        Error::Lost(text()),
        Error::StoreFull(text()),
        Error::Environment(text()),
        Error::NotFound(text()),
        Error::Invalid(text()),
        Error::Value(ValueError::Unfit(text())),
        Error::NotConnected,
        Error::Connect(text()),
        Error::System { code: FailureCode::DaemonDied, text: text() },
    ] {
        let thrown = throws::remote(error.clone()).unwrap().get_timeout(LIMIT).unwrap_err();
        let cause: Error = thrown.cause().expect("the error that it returned");
        assert_eq!(format!("{cause:?}"), format!("{error:?}"));
    }
}

/// It cannot be written.
struct Unwritten;

impl fmt::Display for Unwritten {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("only in words")
    }
}

#[oxiray::remote(num_cpus = 0)]
fn mutters() -> std::result::Result<u32, Unwritten> {
    Err(Unwritten)
}

#[oxiray::remote(num_cpus = 0)]
fn rambles() -> std::result::Result<u32, String> {
    Err("on and on ".repeat(1 << 20))
}

#[oxiray::remote(num_cpus = 0)]
fn refers(to: Vec<ObjectRef<u32>>) -> std::result::Result<u32, Lists> {
    Err(Lists(to))
}

/// Its references would have to be kept for whoever reads it.
#[derive(Serialize, Deserialize)]
struct Lists(Vec<ObjectRef<u32>>);

impl fmt::Display for Lists {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} references", self.0.len())
    }
}

pub(crate) fn what_cannot_travel_is_told_in_words() {
    let muttered = error_of(mutters::remote());
    assert!(muttered.to_string().contains("only in words"), "{muttered}");
    let rambled = error_of(rambles::remote());
    assert!(rambled.to_string().contains("on and on") && rambled.cause::<String>().is_none());
    let referred = error_of(refers::remote(vec![takes::remote(1).unwrap()]));
    assert!(referred.to_string().contains("1 references") && referred.cause::<Lists>().is_none(), "{referred}");
}
