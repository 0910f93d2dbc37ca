//! What may go wrong, and how it travels.

use bytes::Bytes;
use oxiray_runtime::{RuntimeError, Unmet};
use oxiray_values::{Blob, Common, Decoded, Encoded, ValueError};
use oxiray_wire::message::{ActorDeath, ArgumentFailed, Content, Failure, FailureCode, Value};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The result of what this crate does.
pub type Result<T> = std::result::Result<T, Error>;

/// The most characters of an error's text that travel.
const TEXT_MAX: usize = 64 << 10;

/// Why something could not be had.
#[derive(Clone, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Error {
    /// The function, method or constructor failed: it returned an error, panicked, or raised.
    #[error(transparent)]
    Task(Box<TaskError>),
    /// The value was not there in time.
    #[error(
        "the value was not there in time: its task waits for resources or still runs. `oxiray status` shows what waits"
    )]
    TimedOut,
    /// The process that ran the task died.
    #[error("{0}")]
    WorkerDied(String),
    /// The actor is dead, for good.
    #[error("{0}")]
    ActorDied(String),
    /// The actor's process died, and another is being made.
    #[error("{0}")]
    ActorUnavailable(String),
    /// No machine of the cluster can ever do it.
    #[error("{0}")]
    Unschedulable(String),
    /// It was cancelled.
    #[error("{0}")]
    Cancelled(String),
    /// The value is gone, and cannot be made again.
    #[error("{0}")]
    Lost(String),
    /// The object store has no room, and neither has the disk.
    #[error("{0}")]
    StoreFull(String),
    /// The program or environment that it was to run in could not be had.
    #[error("{0}")]
    Environment(String),
    /// There is no such thing by this name.
    #[error("{0}")]
    NotFound(String),
    /// The value cannot be written, or is not of the type that was asked for.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// This process is not connected to a cluster.
    #[error("this process is not connected to a cluster: call oxiray::init() first, and keep what it returns")]
    NotConnected,
    /// There is no cluster to connect to, or it cannot be started.
    #[error("{0}")]
    Connect(String),
    /// The runtime failed; the code tells in what way.
    #[error("{text}")]
    System {
        /// What kind of failure it is.
        code: FailureCode,
        /// What happened.
        text: String,
    },
}

/// As a `main` that returns it prints it: its kind, and what it says.
impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Task(_) => "Task",
            Self::TimedOut => "TimedOut",
            Self::WorkerDied(_) => "WorkerDied",
            Self::ActorDied(_) => "ActorDied",
            Self::ActorUnavailable(_) => "ActorUnavailable",
            Self::Unschedulable(_) => "Unschedulable",
            Self::Cancelled(_) => "Cancelled",
            Self::Lost(_) => "Lost",
            Self::StoreFull(_) => "StoreFull",
            Self::Environment(_) => "Environment",
            Self::NotFound(_) => "NotFound",
            Self::Value(_) => "Value",
            Self::Invalid(_) => "Invalid",
            Self::NotConnected => "NotConnected",
            Self::Connect(_) => "Connect",
            Self::System { code, .. } => code.name(),
        };
        write!(formatter, "{kind}: {self}")
    }
}

/// An error of somebody's code, with where it came from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskError {
    /// The function or method that failed.
    pub function: String,
    /// What it said.
    pub message: String,
    /// The kind of error: `panic`, a Rust type's name, a Python class.
    pub kind: String,
    /// `rust` or `python`.
    pub language: String,
    /// The process that it ran in; 0 where that is not known.
    pub pid: u32,
    /// Where in the code: a Python traceback, or the place of a panic; may be empty.
    pub trace: String,
    pub(crate) cause: Option<Cause>,
    /// Which calls did not run, since this is an argument of theirs, as the error begins; empty for none.
    #[serde(default)]
    pub(crate) unrun: String,
}

/// The error itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cause {
    /// Its type's whole name.
    pub(crate) kind: String,
    /// As the program that it is of writes it.
    pub(crate) written: Blob,
}

impl fmt::Display for TaskError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, message, kind, language, pid, trace, unrun, .. } = self;
        write!(formatter, "{unrun}`{function}` failed in process {pid} ({language}): ")?;
        if !kind.is_empty() {
            write!(formatter, "{kind}: ")?;
        }
        formatter.write_str(message)?;
        let trace = trace.trim_end();
        if trace.is_empty() { Ok(()) } else { write!(formatter, "\n{trace}") }
    }
}

impl std::error::Error for TaskError {}

fn clipped(text: &str) -> Common {
    Common::Text(text.chars().take(TEXT_MAX).collect())
}

impl TaskError {
    /// As every language reads it; the error itself is for Rust.
    fn common(&self) -> Common {
        let cause = self.cause.as_ref().map_or(Common::Null, |cause| {
            Common::record([
                ("kind", Common::Text(cause.kind.clone())),
                ("written", Common::Bytes(cause.written.clone())),
            ])
        });
        Common::record([
            ("error", clipped(&self.kind)),
            ("message", clipped(&self.message)),
            ("function", clipped(&self.function)),
            ("language", clipped(&self.language)),
            ("pid", Common::Int(self.pid.into())),
            ("trace", clipped(&self.trace)),
            ("cause", cause),
        ])
    }

    fn from_blob(blob: &Bytes) -> Self {
        let read = Decoded::new(blob).and_then(Decoded::common);
        match read {
            Ok(record) => {
                let text = |name| record.text(name).unwrap_or_default().to_owned();
                let pid = match record.field("pid") {
                    Some(Common::Int(pid)) => u32::try_from(*pid).unwrap_or_default(),
                    _ => 0,
                };
                Self {
                    function: text("function"),
                    message: text("message"),
                    kind: text("error"),
                    language: text("language"),
                    pid,
                    trace: text("trace"),
                    cause: record.field("cause").and_then(Cause::from_common),
                    unrun: String::new(),
                }
            }
            Err(error) => Self {
                function: "a Python function".into(),
                message: format!("it raised an exception that only Python can read ({error})"),
                language: "python".into(),
                ..Self::default()
            },
        }
    }
}

impl Cause {
    fn from_common(record: &Common) -> Option<Self> {
        let Some(Common::Bytes(written)) = record.field("written") else { return None };
        Some(Self { kind: record.text("kind")?.to_owned(), written: written.clone() })
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        use FailureCode as Code;
        if let Some(argument) = failure.argument_failed() {
            return Self::of_argument(&argument);
        }
        let death = failure.actor_death();
        let Failure { code, text, cause } = failure;
        match death {
            // The constructor of an actor failed.
            Some(death) if !death.raised.is_empty() => {
                return Self::Task(Box::new(TaskError::from_blob(&death.raised)));
            }
            Some(death) => return Self::ActorDied(format!("{text}{}", described(&death))),
            None if !cause.is_empty() && code != FailureCode::Cancelled => {
                return Self::Task(Box::new(TaskError::from_blob(&cause)));
            }
            None => {}
        }
        match code {
            Code::WorkerCrashed | Code::NodeDied | Code::OutOfMemory | Code::DeviceMemory | Code::DeviceFailed => {
                Self::WorkerDied(text)
            }
            Code::ActorDied | Code::ActorLeft | Code::ActorGroupRemoved => Self::ActorDied(text),
            Code::ActorUnavailable => Self::ActorUnavailable(text),
            Code::TaskUnschedulable | Code::DeviceDeadlock | Code::ActorUnschedulable | Code::TaskGroupRemoved => {
                Self::Unschedulable(text)
            }
            Code::Cancelled => Self::Cancelled(text),
            Code::OwnerDied | Code::ObjectLost | Code::ObjectFreed => Self::Lost(text),
            Code::StoreFull | Code::OutOfDisk => Self::StoreFull(text),
            Code::RuntimeEnv => Self::Environment(text),
            Code::ActorNotFound => Self::NotFound(text),
            Code::ActorNameTaken | Code::Invalid | Code::PendingCalls => Self::Invalid(text),
            Code::System
            | Code::DeviceIsolation
            | Code::DeviceViolation
            | Code::State
            | Code::NotFound
            | Code::Unreadable
            | Code::Token
            | Code::ArgumentFailed
            | Code::DaemonDied
            | Code::ObjectSealed
            | Code::ObjectNotReady
            | Code::GivenBack
            | Code::StreamReplay
            | Code::StreamEnd
            | Code::AttemptsExceeded
            | Code::LineageEvicted
            | Code::LostPut
            | Code::RetriesDisabled
            | Code::LostCancelled
            | Code::LostBorrowed
            | Code::LostUnknown
            | Code::LineageDisabled => Self::System { code, text },
        }
    }
}

/// What is known of a dead actor, behind what became of it.
fn described(death: &ActorDeath) -> String {
    let ActorDeath { class_name, name, namespace, ip, pid, never_ran, .. } = death;
    let named = if name.is_empty() { String::new() } else { format!(" named `{name}` in namespace `{namespace}`") };
    let place = match (pid, never_ran) {
        (_, true) => ", which never ran".to_owned(),
        (0, false) => String::new(),
        (pid, false) => format!(", process {pid} on {ip}"),
    };
    format!(" (`{class_name}`{named}{place})")
}

impl From<RuntimeError> for Error {
    fn from(error: RuntimeError) -> Self {
        match error {
            RuntimeError::Unmet(Unmet::TimedOut | Unmet::Interrupted) => Self::TimedOut,
            RuntimeError::Failed(failure) => failure.into(),
        }
    }
}

impl Error {
    /// The error that a value is, where it is one.
    pub(crate) fn of(content: &Content) -> Option<Self> {
        match content {
            Content::Raised(blob) => Some(Self::Task(Box::new(TaskError::from_blob(blob)))),
            Content::Failed(failure) => Some(failure.clone().into()),
            Content::Inline(_) | Content::Stored(_) => None,
        }
    }

    /// What a task failed with that did not run, since an argument of it is an error: that error, which says so.
    fn of_argument(argument: &ArgumentFailed) -> Self {
        let error = argument.value.as_ref().and_then(|value| value.content.as_ref()).and_then(Self::of);
        let unrun = argument.tasks.iter().rev().map(|task| format!("`{task}` did not run, since an argument failed: "));
        let unrun = unrun.collect::<String>();
        match error
            .unwrap_or_else(|| Self::System { code: FailureCode::System, text: "the error is unreadable".to_owned() })
        {
            Self::Task(mut error) => {
                error.unrun = unrun;
                Self::Task(error)
            }
            Self::WorkerDied(text) => Self::WorkerDied(unrun + &text),
            Self::ActorDied(text) => Self::ActorDied(unrun + &text),
            Self::ActorUnavailable(text) => Self::ActorUnavailable(unrun + &text),
            Self::Unschedulable(text) => Self::Unschedulable(unrun + &text),
            Self::Cancelled(text) => Self::Cancelled(unrun + &text),
            Self::Lost(text) => Self::Lost(unrun + &text),
            Self::StoreFull(text) => Self::StoreFull(unrun + &text),
            Self::Environment(text) => Self::Environment(unrun + &text),
            Self::System { code, text } => Self::System { code, text: unrun + &text },
            other => other,
        }
    }

    fn code(&self) -> FailureCode {
        match self {
            Self::WorkerDied(_) => FailureCode::WorkerCrashed,
            Self::ActorDied(_) => FailureCode::ActorDied,
            Self::ActorUnavailable(_) => FailureCode::ActorUnavailable,
            Self::Unschedulable(_) => FailureCode::TaskUnschedulable,
            Self::Cancelled(_) => FailureCode::Cancelled,
            Self::Lost(_) => FailureCode::ObjectLost,
            Self::StoreFull(_) => FailureCode::StoreFull,
            Self::Environment(_) => FailureCode::RuntimeEnv,
            Self::System { code, .. } => *code,
            _ => FailureCode::System,
        }
    }

    /// The value that a call has which failed with this.
    pub(crate) fn into_value(self) -> Value {
        let content = match &self {
            Self::Task(error) => {
                let blob = Encoded::common(&error.common()).map(Encoded::into_bytes);
                Content::Raised(blob.expect("texts and numbers can be written"))
            }
            other => Content::Failed(other.code().because(other.to_string())),
        };
        Value { content: Some(content), contained: Vec::new() }
    }
}
