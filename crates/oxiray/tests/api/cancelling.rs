//! Calls that nobody wants any more.

use crate::{GateHandle, LIMIT, gate};
use oxiray::{Error, ObjectRef, Result, block_on, runtime_context};
use std::time::Duration;

#[oxiray::remote]
fn same(number: i64) -> i64 {
    number
}

#[oxiray::remote(num_cpus = 0)]
fn passing(gate: GateHandle, number: i64) -> Result<i64> {
    gate.pass()?.get()?;
    Ok(number)
}

/// Goes on until somebody wants it no more.
#[oxiray::remote(num_cpus = 0)]
fn patient(gate: GateHandle) -> Result<()> {
    gate.pass()?.get()?;
    while !runtime_context()?.is_cancelled() {
        std::thread::yield_now();
    }
    Ok(())
}

/// Asks nobody, and never ends.
#[oxiray::remote(num_cpus = 0, max_retries = 0)]
fn stubborn(gate: GateHandle) -> Result<()> {
    gate.pass()?.get()?;
    loop {
        std::thread::park();
    }
}

/// Says through a gate what came of its wait for the other, twice.
#[oxiray::remote(num_cpus = 0)]
fn waiting(began: GateHandle, never: GateHandle, ended: GateHandle) -> Result<()> {
    began.pass()?.get()?;
    let first = never.pass()?.get();
    let second = block_on(async { never.pass()?.await });
    if matches!((&first, &second), (Err(Error::Cancelled(_)), Err(Error::Cancelled(_)))) {
        // Calls are made all the same.
        ended.open()?;
    }
    first
}

/// Opens its gate when it is dropped.
struct Opens(GateHandle);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open().unwrap();
    }
}

#[oxiray::remote(num_cpus = 0)]
async fn sleeping(began: GateHandle, ended: GateHandle) -> Result<()> {
    let _opens = Opens(ended);
    began.pass()?.await?;
    std::future::pending().await
}

/// Leans on tokio's timers and threads.
#[oxiray::remote(num_cpus = 0)]
async fn timed(number: i64) -> std::result::Result<i64, tokio::task::JoinError> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    tokio::spawn(async move { number + 1 }).await
}

struct Sleeping;

#[oxiray::remote(num_cpus = 0)]
impl Sleeping {
    pub fn new() -> Self {
        Self
    }

    pub async fn sleep(&self, began: GateHandle, ended: GateHandle) -> Result<()> {
        let _opens = Opens(ended);
        began.pass()?.await?;
        std::future::pending().await
    }
}

/// Has another call run, and waits for it.
#[oxiray::remote(num_cpus = 0)]
fn parent(began: GateHandle, ended: GateHandle) -> Result<()> {
    sleeping::remote(began, ended)?.get()
}

fn begun(gate: &GateHandle) {
    gate.come(1).unwrap().get_timeout(LIMIT).unwrap();
    gate.open().unwrap();
}

/// Whether the gate is open, or opens in that time.
fn opens(gate: &GateHandle, limit: Duration) -> bool {
    gate.pass().unwrap().get_timeout(limit).is_ok()
}

fn is_cancelled(call: &ObjectRef<()>) {
    let ended = call.get_timeout(LIMIT);
    assert!(matches!(ended, Err(Error::Cancelled(_))), "{ended:?}");
}

pub(crate) fn the_waits_of_a_cancelled_call_end() {
    let (began, never, ended) = (gate(), gate(), gate());
    let running = waiting::remote(began.clone(), never.clone(), ended.clone()).unwrap();
    begun(&began);
    never.come(1).unwrap().get_timeout(LIMIT).unwrap();
    oxiray::cancel(&running, false).unwrap();
    is_cancelled(&running);
    assert!(opens(&ended, LIMIT));
    never.open().unwrap();
}

pub(crate) fn an_async_call_is_dropped_where_it_awaits() {
    let (began, ended) = (gate(), gate());
    let running = sleeping::remote(began.clone(), ended.clone()).unwrap();
    begun(&began);
    oxiray::cancel(&running, false).unwrap();
    is_cancelled(&running);
    assert!(opens(&ended, LIMIT));
    // So is a method, and its actor goes on.
    let (began, ended, actor) = (gate(), gate(), Sleeping::remote().unwrap());
    let running = actor.sleep(began.clone(), ended.clone()).unwrap();
    begun(&began);
    oxiray::cancel(&running, false).unwrap();
    is_cancelled(&running);
    assert!(opens(&ended, LIMIT));
    let (began, ended) = (gate(), gate());
    let again = actor.sleep(began.clone(), ended.clone()).unwrap();
    begun(&began);
    oxiray::cancel(&again, false).unwrap();
    is_cancelled(&again);
}

pub(crate) fn an_async_call_is_within_tokio_where_that_is_asked_for() {
    assert_eq!(timed::remote(1).unwrap().get_timeout(LIMIT).unwrap(), 2);
}

pub(crate) fn what_a_call_has_called_goes_with_it_or_on() {
    let (began, ended) = (gate(), gate());
    let whole = parent::remote(began.clone(), ended.clone()).unwrap();
    begun(&began);
    oxiray::cancel(&whole, false).unwrap();
    is_cancelled(&whole);
    assert!(opens(&ended, LIMIT));
    // What it has called is not cancelled; that nobody wants its value does not end it either.
    let (began, ended) = (gate(), gate());
    let alone = parent::remote(began.clone(), ended.clone()).unwrap();
    begun(&began);
    oxiray::cancel_alone(&alone, false).unwrap();
    is_cancelled(&alone);
    assert!(!opens(&ended, crate::MOMENT));
}

pub(crate) fn a_running_task_that_asks_is_cancelled() {
    let gate = gate();
    let running = patient::remote(gate.clone()).unwrap();
    gate.come(1).unwrap().get_timeout(LIMIT).unwrap();
    gate.open().unwrap();
    oxiray::cancel(&running, false).unwrap();
    let ended = running.get_timeout(LIMIT);
    assert!(matches!(ended, Err(Error::Cancelled(_))), "{ended:?}");
}

pub(crate) fn a_task_that_waits_is_cancelled() {
    let gate = gate();
    let argument = passing::remote(gate.clone(), 1).unwrap();
    let waiting = same::remote(&argument).unwrap();
    assert!(matches!(waiting.get_timeout(Duration::ZERO), Err(Error::TimedOut)));
    oxiray::cancel(&waiting, false).unwrap();
    let ended = waiting.get_timeout(LIMIT);
    assert!(matches!(ended, Err(Error::Cancelled(_))), "{ended:?}");
    gate.open().unwrap();
    assert_eq!(argument.get_timeout(LIMIT).unwrap(), 1);
}

pub(crate) fn force_ends_a_task_that_never_asks() {
    let gate = gate();
    let running = stubborn::remote(gate.clone()).unwrap();
    gate.come(1).unwrap().get_timeout(LIMIT).unwrap();
    gate.open().unwrap();
    oxiray::cancel(&running, true).unwrap();
    let ended = running.get_timeout(LIMIT);
    assert!(matches!(ended, Err(Error::Cancelled(_) | Error::WorkerDied(_))), "{ended:?}");
    // A method's process serves others, too.
    let refused = oxiray::cancel(&gate.come(2).unwrap(), true);
    assert!(matches!(&refused, Err(Error::Invalid(text)) if text.contains("kill the actor")), "{refused:?}");
}
