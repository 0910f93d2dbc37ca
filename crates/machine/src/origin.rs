//! What a template process is started as.

use oxiray_wire::message::Variable;

/// What a template is: two that are the same may share one process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The interpreter, or a command that starts one; a program of the user's own where it is `native`.
    pub command: Vec<String>,
    /// Whether the command is such a program, which needs no telling how to serve.
    pub native: bool,
    /// What it starts with besides the daemon's own variables.
    pub variables: Vec<Variable>,
    /// The modules that it imports.
    pub preload: Vec<String>,
    /// Where it finds them.
    pub preload_path: Vec<String>,
}

impl Origin {
    /// An interpreter, and nothing else.
    pub fn plain(interpreter: &str) -> Self {
        Self { command: vec![interpreter.to_owned()], ..Self::default() }
    }

    /// Whether it is a driver's own interpreter, as it is.
    pub(crate) fn is_plain(&self) -> bool {
        self.preload.is_empty() && self.variables.is_empty()
    }
}
