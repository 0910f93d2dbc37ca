//! The register of threads, by the process that has them.

use crate::Thread;

/// Asks one vendor's library which processes hold memory of a device, or waits for the process that checks one.
pub const DEVICE_CHECK: Thread =
    Thread { name: "device check", owner: "daemon, devices", ends: "with its desk, after the question under way" };
/// Has one vendor's library measure how much devices are used.
pub const DEVICE_USE: Thread =
    Thread { name: "device use", owner: "daemon, devices", ends: "with its desk, after the measuring under way" };
/// Hears of the errors that one vendor's driver reports of devices.
pub const DEVICE_ERRORS: Thread =
    Thread { name: "device errors", owner: "daemon, devices", ends: "two seconds after its desk at the latest" };
/// Looks which device nodes workers have open.
pub const DEVICE_WATCH: Thread =
    Thread { name: "device watch", owner: "daemon, devices", ends: "with its desk, after the look under way" };
/// Measures the machine, and the processes of workers.
pub const STATISTICS: Thread =
    Thread { name: "statistics", owner: "daemon, machine", ends: "with its desk, after the measuring under way" };
/// Writes the head's journal.
pub const JOURNAL: Thread =
    Thread { name: "journal", owner: "daemon, journal", ends: "with its desk, which waits for what is under way" };
/// Keeps the lease by which a process is the head.
pub const ETCD_LEASE: Thread =
    Thread { name: "etcd-lease", owner: "daemon, journal", ends: "with the store, after the question under way" };
/// Writes what workers print, and reads it again.
pub const LOGS: Thread =
    Thread { name: "logs", owner: "daemon, workers", ends: "with its client, which waits for it a while" };
/// Carries streams to and from other machines.
pub const NETWORK: Thread =
    Thread { name: "network", owner: "daemon or visitor, gateway", ends: "with its handle, which waits for it" };
/// Dials a head that is to come back.
pub const RETURN: Thread =
    Thread { name: "return", owner: "daemon, member", ends: "when the head has answered, or the dialling has failed" };
/// Waits for the lock of a daemon that was killed.
pub const SESSION_LOCK: Thread = Thread { name: "session lock", owner: "daemon, start", ends: "when it has the lock" };
/// Copies objects to disk and back.
pub const STORE_SPILL: Thread =
    Thread { name: "store-spill", owner: "daemon, store", ends: "with the store, which waits for it" };
/// Hears what the program says that copies objects to storage beyond the disk.
pub const STORE_STORAGE: Thread =
    Thread { name: "store-storage", owner: "daemon, store", ends: "with the program, for which the store waits" };
/// Copies a part of a large buffer.
pub const COPY: Thread = Thread { name: "oxiray-copy", owner: "any, copy", ends: "with the copy" };
/// Reads the sockets of a driver or worker when no other thread does.
pub const ATTEND: Thread =
    Thread { name: "oxiray", owner: "driver or worker, runtime", ends: "when the connection is closed" };
/// Looks for the daemon of a driver that has lost it.
pub const RUNTIME_RETURN: Thread =
    Thread { name: "oxiray-return", owner: "driver, runtime", ends: "when the daemon is back or given up" };
/// Runs calls of an actor of a Rust program beside the first thread.
pub const CALL: Thread = Thread { name: "oxiray-call", owner: "Rust worker", ends: "when the worker serves no more" };
/// Hears the news of a Rust program: output, notices, values that futures wait for.
pub const NEWS: Thread = Thread { name: "oxiray-news", owner: "Rust driver or worker", ends: "with the connection" };
/// Takes the stacks of a program for whoever asks, or waits for Python's interpreter for that.
pub const STACKS: Thread =
    Thread { name: "oxiray-stacks", owner: "driver or worker", ends: "when all who asked are answered" };
/// Samples a Python program's stacks over a time for whoever asks.
pub const PROFILE: Thread =
    Thread { name: "oxiray-profile", owner: "Python driver or worker", ends: "when the profile's time is over" };
/// Runs the autoscaler of one cluster.
pub const AUTOSCALER: Thread =
    Thread { name: "autoscaler", owner: "operator", ends: "when the operator stops it, or its cluster is gone" };
/// Runs Slurm's commands, one after the other.
pub const SLURM: Thread =
    Thread { name: "slurm", owner: "autoscaler, Slurm", ends: "with its provider, after the command under way" };
/// Hears who asks the dashboard, and hands inwards those that may.
pub const PORCH: Thread = Thread { name: "porch", owner: "dashboard", ends: "with its handle, which waits for it" };
