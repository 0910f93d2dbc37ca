//! What the daemon assigned to this worker: which devices it may use, which actor it is.

use crate::pinning::pin;
use oxiray_ids::{ActorId, PlacementGroupId, WorkerId};
use oxiray_wire::message::{Amount, Assign, Devices};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// What the daemon assigned to this worker; in a driver, nothing of it.
#[derive(Debug, Default)]
pub struct Assigned {
    /// The devices granted.
    pub devices: Vec<Devices>,
    /// Everything granted.
    pub resources: Vec<Amount>,
    /// The actor that this process is.
    pub actor: Option<ActorId>,
    /// That actor's name.
    pub actor_name: String,
    /// How often that was made anew.
    pub restarts: u32,
    /// The job's driver.
    pub driver: Option<WorkerId>,
    /// Whether this process is a worker.
    pub is_worker: bool,
    /// The placement group that it runs in.
    pub group: Option<PlacementGroupId>,
    /// Whether what is made here runs in that group, too.
    pub captures: bool,
}

static ASSIGNED: RwLock<Option<Arc<Assigned>>> = RwLock::new(None);
/// Whether what is made here runs in this worker's placement group: some languages ask with each call.
static CAPTURES: AtomicBool = AtomicBool::new(false);

impl From<&Assign> for Assigned {
    fn from(assign: &Assign) -> Self {
        let actor = assign.actor.as_ref();
        Self {
            devices: assign.devices.clone(),
            resources: assign.resources.clone(),
            actor: actor.map(|actor| actor.actor),
            actor_name: actor.map(|actor| actor.name.clone()).unwrap_or_default(),
            restarts: actor.map_or(0, |actor| actor.restarts),
            driver: Some(assign.driver),
            is_worker: true,
            group: assign.group,
            captures: assign.captures,
        }
    }
}

/// How urgent what this process makes is, unless something else is said of it.
static PRIORITY: AtomicI32 = AtomicI32::new(0);

/// The least and the most urgent that anything may be.
pub const PRIORITIES: std::ops::RangeInclusive<i32> = -1000..=1000;
/// How urgent what a driver makes is, where its program does not say.
pub const PRIORITY_VARIABLE: &str = "OXIRAY_JOB_PRIORITY";

/// The priority of a job, as its program says it, or else the variable.
///
/// # Errors
/// Where that is no priority; the text says what is.
pub fn job_priority(given: Option<i32>) -> Result<i32, String> {
    let (least, most) = (PRIORITIES.start(), PRIORITIES.end());
    let named = std::env::var(PRIORITY_VARIABLE).ok().filter(|text| given.is_none() && !text.trim().is_empty());
    let asked = match &named {
        Some(text) => text.trim().parse().ok(),
        None => Some(given.unwrap_or(0)),
    };
    asked.filter(|asked| PRIORITIES.contains(asked)).ok_or_else(|| {
        let said =
            named.map_or_else(|| given.unwrap_or(0).to_string(), |text| format!("`{text}` ({PRIORITY_VARIABLE})"));
        format!("a job's priority is a whole number from {least} to {most}, the higher one first, and not {said}")
    })
}

/// From here on, what this process makes is so urgent, unless something else is said of it.
pub fn set_priority(priority: i32) {
    PRIORITY.store(priority, Ordering::Relaxed);
}

/// How urgent what this process makes is, unless something else is said of it.
#[inline]
pub fn priority() -> i32 {
    PRIORITY.load(Ordering::Relaxed)
}

/// From here on, this process is that worker.
pub fn assign(assign: &Assign) {
    set_priority(assign.priority);
    if !assign.cpus.is_empty() {
        let cpus = assign.resources.iter().find(|amount| amount.resource == "CPU").map_or(0, |amount| amount.units);
        pin(&assign.cpus, cpus.div_ceil(10_000) as usize);
    }
    let assigned = Assigned::from(assign);
    CAPTURES.store(assigned.captures && assigned.group.is_some(), Ordering::Relaxed);
    *ASSIGNED.write() = Some(Arc::new(assigned));
}

/// What this process was assigned last.
pub fn current() -> Arc<Assigned> {
    ASSIGNED.read().clone().unwrap_or_default()
}

/// Whether this process is an actor.
pub fn is_actor() -> bool {
    ASSIGNED.read().as_ref().is_some_and(|assigned| assigned.actor.is_some())
}

/// Whether what is made here runs in this worker's placement group.
#[inline]
pub fn captures() -> bool {
    CAPTURES.load(Ordering::Relaxed)
}
