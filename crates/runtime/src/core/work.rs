//! Calls as the language front describes them.

use bytes::Bytes;
use oxiray_ids::{ObjectId, TaskId};
use oxiray_wire::CallFrame;
use oxiray_wire::message::{ArgumentReference, Call, Environment, Reference, Strategy, StrategyKind, Value};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Where an argument given as a reference stands in the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Among the positional arguments, counted from 0.
    Position(u32),
    /// By keyword.
    Keyword(String),
    /// The object is the serialized arguments themselves, too large to travel with the call.
    Everything,
}

impl Place {
    /// The argument as it travels.
    pub(crate) fn argument(&self, reference: Reference, value: Option<Value>, losses: u32) -> ArgumentReference {
        let (position, keyword) = match self {
            Self::Position(position) => (*position, String::new()),
            Self::Keyword(keyword) => (0, keyword.clone()),
            Self::Everything => (EVERYTHING, String::new()),
        };
        ArgumentReference { position, keyword, reference: Some(reference), value, losses }
    }
}

/// The place that stands for [`Place::Everything`] on the wire.
pub const EVERYTHING: u32 = u32::MAX;

/// Arguments of a call.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    /// Serialized, with holes where references stand; empty for none.
    pub payload: Bytes,
    /// What fills the holes.
    pub references: Vec<(Place, ObjectId)>,
    /// References inside of the payload.
    pub contained: Vec<ObjectId>,
}

/// What all calls of one function, or of one method of an actor, have in common: shared by them, not copied.
#[derive(Debug, Clone, Default)]
pub struct Routine {
    /// Hash of the function; empty for an actor's method.
    pub function: Bytes,
    /// The function itself, serialized; empty for an actor's method.
    pub code: Bytes,
    /// The function's or method's name.
    pub name: String,
    /// The class whose method it is, where that is known; empty for a function.
    pub class_name: String,
    /// How many results it has.
    pub results: u32,
    /// After how many calls of it a worker exits; 0 for never.
    pub max_calls: u32,
    /// Which exceptions are retried, as the worker reads it; empty for none.
    pub retry_exceptions: Bytes,
    /// Set where its results come one by one; it then has one result besides, which tells how it ended.
    pub stream: Option<Streaming>,
    /// What the call is named in logs, errors and its own context; empty for the name of what it calls.
    pub label: String,
    /// The actor's concurrency group in which it runs; empty for the default one.
    pub group: String,
    /// Whether a call of an actor may overtake earlier ones that wait for their arguments.
    pub unordered: bool,
    /// The call is refused where this many of this process to the same actor are not answered; 0 for no limit.
    pub pending_limit: usize,
    /// How calls of it begin on the wire, once one was sent.
    pub written: OnceLock<Bytes>,
}

impl Routine {
    /// What errors name a call of it, as the process does in which it runs.
    pub(crate) fn title(&self) -> String {
        match (self.label.as_str(), self.class_name.as_str()) {
            ("", "") => self.name.clone(),
            ("", class_name) => format!("{class_name}.{}", self.name),
            (label, _) => label.to_owned(),
        }
    }

    /// What all calls of it have in common, as it travels.
    pub(crate) fn written(&self) -> &[u8] {
        self.written.get_or_init(|| {
            CallFrame::common(&Call {
                function: self.function.clone(),
                name: self.name.clone(),
                results: self.results,
                max_calls: self.max_calls,
                retry_exceptions: self.retry_exceptions.clone(),
                group: self.group.clone(),
                label: self.label.clone(),
                ..Call::default()
            })
        })
    }
}

/// A call to be made.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// What is called.
    pub routine: Arc<Routine>,
    /// Its arguments.
    pub arguments: Arguments,
    /// How often it is run again after its worker died; negative for always.
    pub retries: i32,
    /// The task that calls; nil in a driver. It takes what it called with it when it is cancelled.
    pub parent: TaskId,
}

impl Deref for Work {
    type Target = Routine;

    fn deref(&self) -> &Routine {
        &self.routine
    }
}

/// How a call's results come one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streaming {
    /// The call pauses while this many are not read; 0 for no limit.
    pub ahead: u32,
    /// How many each yield has.
    pub per_yield: u32,
}

/// What tasks of one class share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Class {
    /// Resource names and 1/10,000s, by name.
    pub demand: Vec<(String, u64)>,
    /// Variables set for the task, by name.
    pub environment: Environment,
    /// Whether each task wants a worker that has run nothing before.
    pub fresh: bool,
    /// Where its tasks are to run; nothing for anywhere.
    pub strategy: Option<Strategy>,
    /// The large objects that its tasks read, and their bytes: each task with others asks for a machine of its own.
    pub near: Vec<(ObjectId, u64)>,
    /// How urgent they are; the higher one goes first.
    pub priority: i32,
    /// Whether they may end early for what is more urgent; then they are run again.
    pub preemptible: bool,
}

impl Class {
    /// Whether each task asks for a machine anew.
    pub(crate) fn is_spread(&self) -> bool {
        self.strategy.as_ref().is_some_and(|strategy| strategy.kind == StrategyKind::Spread)
    }
}

/// Names a [`Class`] within this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClassIndex(pub(crate) usize);
