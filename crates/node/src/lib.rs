//! The daemon of one machine: ledger owner, worker pool, template processes, objects, logs.
