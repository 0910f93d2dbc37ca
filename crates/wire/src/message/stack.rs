//! Stacks: what the threads of a process are at, now or over a time.

use crate::state::ProfileKind;
use oxiray_fields::Fields;
use serde::{Deserialize, Serialize};

/// daemon → client: what are your threads at? Answered by [`StackReport`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct StackQuery {
    /// Names the question.
    #[field(1)]
    pub number: u64,
    /// Over which time; left out for where they are now.
    #[field(2)]
    pub profile: Option<Profile>,
}

/// How a process is profiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Fields)]
pub struct Profile {
    /// What is measured.
    #[field(1)]
    pub kind: ProfileKind,
    /// For how long, in milliseconds: at most [`Profile::DURATION_MAX_MS`].
    #[field(2)]
    pub duration_ms: u32,
    /// How many times a second stacks are sampled: at most [`Profile::RATE_MAX_HZ`]. Memory is not sampled.
    #[field(3)]
    pub rate_hz: u32,
}

impl Profile {
    /// The longest time that a process is profiled for.
    pub const DURATION_MAX_MS: u32 = 60_000;
    /// The most samples of a second.
    pub const RATE_MAX_HZ: u32 = 1_000;
    /// The most stacks of one process: the heaviest are kept.
    pub const STACKS_MAX: usize = 2_000;
    /// The most bytes of names and files in the stacks of one process.
    pub const BYTES_MAX: usize = 1 << 20;

    /// # Errors
    /// Where it takes no time, too long, or too many samples.
    pub fn check(&self) -> Result<(), String> {
        let (seconds, longest) = (f64::from(self.duration_ms) / 1e3, Self::DURATION_MAX_MS / 1000);
        if !(1..=Self::DURATION_MAX_MS).contains(&self.duration_ms) {
            return Err(format!(
                "a profile of {seconds} s was asked for: it takes more than 0 s and at most {longest} s"
            ));
        }
        if !(1..=Self::RATE_MAX_HZ).contains(&self.rate_hz) && self.kind != ProfileKind::Memory {
            let (rate, most) = (self.rate_hz, Self::RATE_MAX_HZ);
            return Err(format!("a profile of {rate} samples a second was asked for: there are 1 to {most}"));
        }
        Ok(())
    }
}

/// client → daemon: its stacks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct StackReport {
    /// The question.
    #[field(1)]
    pub number: u64,
    /// Each of its threads and asyncio tasks, up to a limit.
    #[field(2)]
    pub stacks: Vec<Stack>,
    /// Why there are none, or what they lack; empty for nothing.
    #[field(3)]
    pub note: String,
}

/// Where a thread or an asyncio task is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// The thread's or the task's name.
    #[field(1)]
    pub name: String,
    /// Whether it is an asyncio task that waits.
    #[field(2)]
    pub is_task: bool,
    /// The innermost call first.
    #[field(3)]
    pub frames: Vec<StackFrame>,
    /// In a profile: how many microseconds the thread was there, or how many bytes were allocated there. Else 0.
    #[field(4)]
    pub weight: u64,
}

/// One call of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields, Serialize, Deserialize)]
#[serde(default)]
pub struct StackFrame {
    /// The function's name.
    #[field(1)]
    pub function: String,
    /// The file that it is in.
    #[field(2)]
    pub file: String,
    /// The line that it is at; 0 where that is not known.
    #[field(3)]
    pub line: u32,
}
