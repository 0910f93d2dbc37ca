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

impl StackReport {
    /// The most bytes of stacks as they are now, as [`Stack::bytes`] counts them: many processes are asked at once.
    pub const BYTES_MAX: usize = 256 << 10;
    /// The most bytes of a profile's stacks. An answer with those of one process has no more entries than a message may have.
    pub const PROFILE_BYTES_MAX: usize = 4 << 20;

    /// Takes the last stacks out of it, those that are beyond so many bytes.
    pub fn surplus(&mut self, bytes_max: usize) -> Vec<Stack> {
        let mut room = bytes_max;
        let fits = |stack: &&Stack| {
            let left = room.checked_sub(stack.bytes());
            room = left.unwrap_or(0);
            left.is_some()
        };
        let fitting = self.stacks.iter().take_while(fits).count();
        self.stacks.split_off(fitting)
    }
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

impl Stack {
    /// About the bytes that it takes in a message, or a little more.
    pub fn bytes(&self) -> usize {
        self.name.len() + 32 + self.frames.iter().map(StackFrame::bytes).sum::<usize>()
    }
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

impl StackFrame {
    /// About the bytes that it takes in a message, or a little more. Short ones count for more, since they take as much memory.
    pub fn bytes(&self) -> usize {
        (self.function.len() + self.file.len() + 16).max(112)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;
    use bytes::BytesMut;

    #[test]
    fn what_is_left_of_a_profile_is_a_message_that_is_read() {
        for (function, frames) in [("f", 100), ("a_function_with_a_long_name", 100), ("f", 1)] {
            let frame = StackFrame { function: function.into(), file: "<string>".into(), line: 300 };
            let stack = Stack { name: "MainThread".into(), frames: vec![frame; frames], weight: 1, ..Stack::default() };
            let mut report = StackReport { number: 7, stacks: vec![stack; 100_000], note: String::new() };
            let left_out = report.surplus(StackReport::PROFILE_BYTES_MAX);
            report.stacks.truncate(Profile::STACKS_MAX);
            assert!(!left_out.is_empty() && report.stacks.len() > 300, "{} stacks", report.stacks.len());
            let message = Message::from(report);
            let mut body = BytesMut::new();
            message.append_body(&mut body);
            assert!(body.len() <= StackReport::PROFILE_BYTES_MAX, "{} bytes", body.len());
            let read = Message::decode(message.kind(), body.freeze());
            assert!(read.is_ok_and(|read| read == Some(message)), "{function}: it is not read");
        }
    }
}
