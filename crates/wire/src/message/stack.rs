//! Stacks: what the threads of a process are at.

use oxiray_fields::Fields;
use serde::{Deserialize, Serialize};

/// daemon → client: what are your threads at? Answered by [`StackReport`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct StackQuery {
    /// Names the question.
    #[field(1)]
    pub number: u64,
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
