//! The control plane's state machines: jobs, actors, published objects.
