//! How a worker begins, and how it ends.
//!
//! - WORKER-1: before anything of the user's runs, the environment that the daemon assigned is in force, and so is the fence
//!   around devices that were not granted.

use crate::{assigned, process};
use oxiray_fence::{DenyList, DenyRule, NodeKind, close_strays, restrict_self};
use oxiray_ids::TaskId;
use oxiray_runtime::{Identity, Runtime};
use oxiray_wire::message::{Assign, DeviceNumber, Fence};
use oxiray_wire::{Connection, Message, Received};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long calls in other threads of an actor that ends have to finish; half of what the daemon leaves it.
const FINISHING_LIMIT: Duration = Duration::from_secs(5);

/// A worker that was told who it is, and has yet to become that.
#[derive(Debug)]
pub struct Newborn {
    /// What the daemon assigned to it.
    pub assign: Box<Assign>,
    identity: Identity,
    connection: Connection,
    early: Vec<Received>,
}

impl Newborn {
    /// Waits for the daemon at the other end to say who this worker is; `None` where it went away before.
    ///
    /// # Errors
    /// Where the stream is none, or what the daemon says makes no sense.
    pub fn await_assignment(stream: OwnedFd) -> io::Result<Option<Self>> {
        let mut connection = Connection::new(stream)?;
        let Ok(Some((first, early))) = connection.first_message(None) else { return Ok(None) };
        let Message::Assign(assign) = first.message else { return Ok(None) };
        if let Some(fence) = &assign.fence {
            take_on(fence, first.descriptors.into_iter().next())?;
        }
        let identity = assign
            .welcome
            .as_ref()
            .map(Identity::from_welcome)
            .ok_or_else(|| io::Error::other("the daemon did not say who this worker is"))?;
        Ok(Some(Self { assign, identity, connection, early }))
    }

    /// Where the session lies that it works for.
    pub fn session(&self) -> &str {
        &self.identity.session
    }

    /// Starts the runtime of this process. WORKER-1: its environment is in force by now.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn begin(self) -> io::Result<(Runtime, Box<Assign>)> {
        let Self { assign, identity, connection, early } = self;
        let runtime = Runtime::start(identity, connection, early, Some(&assign), None)?;
        process::set(Some(runtime.clone()));
        oxiray_runtime::begin_metrics(&runtime);
        Ok((runtime, assign))
    }
}

/// A device that a process is kept from.
pub(crate) fn rule(of: DeviceNumber) -> DenyRule {
    DenyRule { kind: NodeKind::Char, major: of.major, minor: Some(of.minor) }
}

/// Closes what this process has inherited of devices that it is kept from, and holds it to the ruleset that refuses them where
/// its cgroup does not. It has one thread.
fn take_on(fence: &Fence, ruleset: Option<OwnedFd>) -> io::Result<()> {
    let denied = DenyList::new(fence.denied.iter().copied().map(rule)).map_err(io::Error::other)?;
    for stray in close_strays(&denied).map_err(io::Error::other)? {
        let _ = writeln!(
            io::stderr(),
            "descriptor {} of {} was closed: this process inherited it, and was not granted the device",
            stray.descriptor,
            stray.path.display()
        );
    }
    if fence.paths.is_empty() {
        return Ok(());
    }
    let ruleset =
        ruleset.ok_or_else(|| io::Error::other("the daemon passed no ruleset for the devices to be refused"))?;
    restrict_self(ruleset).map_err(io::Error::other)
}

/// The thread that attends has left: the others are told to, and an actor's are waited for.
pub fn end(runtime: &Runtime, is_actor: bool) {
    runtime.tell_all();
    if !is_actor {
        runtime.finish_own();
    }
    runtime.stop_serving();
    if is_actor {
        runtime.actor_leaving("it was asked to end".into(), false);
        runtime.finish_calls(FINISHING_LIMIT);
    }
}

/// What drivers reported of this worker's devices while a call ran that has raised, in lines for its error. One without
/// devices asks nobody.
pub fn device_errors(runtime: &Runtime, task: TaskId) -> Vec<String> {
    if assigned::current().devices.is_empty() {
        return Vec::new();
    }
    runtime.device_errors(task).into_iter().map(|text| format!("Oxiray: {text}\n")).collect()
}

/// What is wrong with a call's concurrency group, where the actor has none of that name.
pub fn group_flaw(group: &str, groups: &[String]) -> Option<String> {
    let is_known = group.is_empty() || groups.iter().any(|known| known == group);
    (!is_known).then(|| format!("the actor has no concurrency group `{group}`; it has: {}", groups.join(", ")))
}
