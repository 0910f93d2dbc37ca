//! Python bindings: the module oxiray._core.
