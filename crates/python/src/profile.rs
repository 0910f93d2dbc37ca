//! What this process's Python threads do over a time, for whoever asks the cluster.
//!
//! - PROFILE-1: one profile at most is taken at a time: a second one would count the first one's work.
//! - PROFILE-2: the interpreter is asked for at each sample, and not kept: where it ends meanwhile, nothing is told.
//! - PROFILE-3: a sample that comes late is not made up for: each weighs the time since the one before.

use crate::stacks;
use oxiray_client::process;
use oxiray_wire::message::{Profile, Stack, StackFrame, StackReport};
use oxiray_wire::state::ProfileKind;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// What samples in Python.
const MODULE: &str = "oxiray._profile";

/// What stands for the stacks that are left out.
const LEFT_OUT: &str = "(many stacks, each with little)";

/// PROFILE-1.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// A profile is asked for. Called by a thread that must not wait.
///
/// # Errors
/// Why none is taken.
pub(crate) fn wanted(number: u64, profile: Profile) -> Result<(), String> {
    profile.check()?;
    if IS_TAKEN.swap(true, Ordering::AcqRel) {
        return Err("another profile of it is being taken: ask again when that is over".to_owned());
    }
    let taking = oxiray_threads::spawn(oxiray_threads::PROFILE, move || take(number, profile));
    taking.map(drop).map_err(|error| {
        IS_TAKEN.store(false, Ordering::Release);
        format!("the thread that samples could not be started: {error}")
    })
}

fn take(number: u64, profile: Profile) {
    let taken = sampled(profile);
    IS_TAKEN.store(false, Ordering::Release);
    let Some(taken) = taken else { return };
    let (stacks, note) = taken.unwrap_or_else(|error| (Vec::new(), format!("it could not be profiled: {error}")));
    let mut report = StackReport { number, stacks, note };
    let left_out = report.surplus(StackReport::PROFILE_BYTES_MAX);
    if !left_out.is_empty() {
        let weight = left_out.iter().map(|stack| stack.weight).fold(0, u64::saturating_add);
        let frame = StackFrame { function: LEFT_OUT.to_owned(), ..StackFrame::default() };
        report.stacks.push(Stack { frames: vec![frame], weight, ..Stack::default() });
    }
    if let Some(runtime) = process::current() {
        runtime.tell_stacks(&report);
    }
}

/// Nothing where the interpreter ends (PROFILE-2).
fn sampled(profile: Profile) -> Option<PyResult<(Vec<Stack>, String)>> {
    let begin = |py: Python<'_>| Ok(py.import(MODULE)?.getattr("begin")?.call1((profile.kind.name(),))?.unbind());
    let sampler: Py<PyAny> = match Python::try_attach(begin)? {
        Ok(sampler) => sampler,
        Err(error) => return Some(Err(error)),
    };
    let until = Instant::now() + Duration::from_millis(profile.duration_ms.into());
    let period = match profile.kind {
        ProfileKind::Memory => Duration::MAX,
        ProfileKind::Cpu | ProfileKind::Wall => Duration::from_secs(1) / profile.rate_hz.max(1),
    };
    let mut next = Instant::now();
    while next < until {
        // PROFILE-3.
        next = next.max(Instant::now()).checked_add(period).map_or(until, |next| next.min(until));
        wait_until(next);
        if let Err(error) = Python::try_attach(|py| sampler.call_method0(py, "sample").map(drop))? {
            return Some(Err(error));
        }
    }
    Python::try_attach(|py| result(sampler.bind(py)))
}

/// There is nothing to wait for but the time.
fn wait_until(then: Instant) {
    let (nobody, rings) = (Mutex::new(()), Condvar::new());
    let mut guard = nobody.lock().expect("nobody else has it");
    while let Some(left) = then.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        guard = rings.wait_timeout(guard, left).expect("nobody else has it").0;
    }
}

type Weighed = (String, Vec<stacks::Frame>, u64);

fn result(sampler: &Bound<'_, PyAny>) -> PyResult<(Vec<Stack>, String)> {
    let (weighed, note): (Vec<Weighed>, String) = sampler.call_method0("result")?.extract()?;
    let stack = |(name, frames, weight): Weighed| Stack {
        name,
        frames: frames.into_iter().map(stacks::frame_of).collect(),
        weight,
        ..Stack::default()
    };
    Ok((weighed.into_iter().map(stack).collect(), note))
}
