//! What fences cost on this machine: medians of 200, of what the kernel has here.
//!
//! `cargo run --release -p oxiray-fence --example cost`

#![expect(clippy::print_stdout, reason = "it prints its measurements")]

use oxiray_fence::{
    CgroupVersion, DaemonCgroup, DenyList, DenyRule, FenceError, Means, Mechanism, Node, NodeKind, Ruleset,
    WorkerCgroup, enter, restrict_self,
};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const TIMES: u32 = 200;
/// As long as a machine may be without a new worker.
const PAUSE: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 60_000_000 };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = format!("cost-{}", std::process::id());
    let started = Instant::now();
    let means = Means::probe(&name);
    println!("probing all mechanisms: {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    for mechanism in Mechanism::ALL {
        match (mechanism, means.of(mechanism)) {
            (_, Err(error)) => println!("{mechanism}: not here: {error}"),
            (Mechanism::Cgroup, Ok(())) => cgroup(CgroupVersion::Two, &name)?,
            (Mechanism::Cgroup1, Ok(())) => cgroup(CgroupVersion::One, &name)?,
            (Mechanism::Landlock, Ok(())) => landlock()?,
        }
    }
    Ok(())
}

/// A list of three nodes, one of them with this number.
fn list(number: u32) -> Result<DenyList, FenceError> {
    let node = |minor| DenyRule::from(Node { kind: NodeKind::Char, major: 195, minor });
    DenyList::new([node(1), node(2), node(1000 + number)])
}

fn cgroup(version: CgroupVersion, name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut daemon = DaemonCgroup::make(version, name)?;
    // The first program that is loaded takes longer.
    let mut worker = daemon.make_worker()?;
    daemon.refuse(&mut worker, &list(0)?)?;
    let mut workers = Vec::new();
    let mut made = Vec::new();
    let mut first = Vec::new();
    for number in 1..=TIMES {
        let list = list(number)?;
        let started = Instant::now();
        let mut worker = daemon.make_worker()?;
        made.push(started.elapsed());
        let started = Instant::now();
        daemon.refuse(&mut worker, &list)?;
        first.push(started.elapsed());
        workers.push(worker);
    }
    report(version, "make a cgroup", made);
    report(version, "refuse 3 nodes for the first time, load and attach", first);
    let known = [list(1)?, list(2)?];
    let known = (0..TIMES as usize).map(|time| known[time % 2].clone());
    report(version, "exchange for a list that is loaded", exchanges(&mut daemon, &mut worker, known)?);
    let new = (0..TIMES).map(|number| list(1000 + number)).collect::<Result<Vec<_>, _>>()?;
    report(version, "exchange for a list that is not", exchanges(&mut daemon, &mut worker, new.into_iter())?);
    let in_a_row = entries(&worker, || Ok(()))?;
    report(version, "enter, one after the other", in_a_row);
    report(version, "enter, after a pause of 60 ms", entries(&worker, || pause().map_err(Into::into))?);
    let mut removed = Vec::new();
    for worker in workers {
        let started = Instant::now();
        worker.remove()?;
        removed.push(started.elapsed());
    }
    report(version, "remove a cgroup", removed);
    daemon.remove()?;
    Ok(())
}

fn exchanges(
    daemon: &mut DaemonCgroup,
    worker: &mut WorkerCgroup,
    lists: impl Iterator<Item = DenyList>,
) -> Result<Vec<Duration>, FenceError> {
    let one = |list: DenyList| {
        let started = Instant::now();
        daemon.refuse(worker, &list)?;
        Ok(started.elapsed())
    };
    lists.map(one).collect()
}

fn entries(worker: &WorkerCgroup, between: impl Fn() -> std::io::Result<()>) -> std::io::Result<Vec<Duration>> {
    let one = |_| {
        between()?;
        in_a_child(|| enter(worker.directory()).is_ok())
    };
    (0..TIMES).map(one).collect()
}

fn pause() -> rustix::io::Result<()> {
    rustix::event::poll(&mut [], Some(&PAUSE)).map(drop)
}

fn landlock() -> Result<(), Box<dyn std::error::Error>> {
    // Any node that every machine has does.
    let paths = [PathBuf::from("/dev/full")];
    let mut made = Vec::new();
    for _ in 0..TIMES {
        let started = Instant::now();
        drop(Ruleset::all_but(&paths)?);
        made.push(started.elapsed());
    }
    report(Mechanism::Landlock, "make a ruleset", made);
    let ruleset = Ruleset::all_but(&paths)?;
    let mut looked = Vec::new();
    for _ in 0..TIMES {
        let started = Instant::now();
        assert!(ruleset.is_current(), "nothing was mounted or made in /dev meanwhile");
        looked.push(started.elapsed());
    }
    report(Mechanism::Landlock, "see that it is current", looked);
    let taken = (0..TIMES).map(|_| in_a_child(|| restrict_self(ruleset.as_fd()).is_ok()));
    report(Mechanism::Landlock, "take it on", taken.collect::<std::io::Result<_>>()?);
    Ok(())
}

/// How long something takes in a new process.
fn in_a_child(work: impl FnOnce() -> bool) -> std::io::Result<Duration> {
    let (mut reader, mut writer) = std::io::pipe()?;
    // SAFETY: this program has one thread, so that the child is as good as it.
    match unsafe { libc::fork() } {
        -1 => return Err(std::io::Error::last_os_error()),
        0 => {
            let started = Instant::now();
            let is_done = work();
            let taken = started.elapsed().as_nanos() as u64;
            let is_told = writer.write_all(&taken.to_ne_bytes()).is_ok();
            // SAFETY: it ends without running anything else of this program.
            unsafe { libc::_exit(i32::from(!(is_done && is_told))) }
        }
        _ => {}
    }
    drop(writer);
    let mut taken = [0; 8];
    let told = reader.read_exact(&mut taken);
    let status = rustix::process::wait(rustix::process::WaitOptions::empty())?.map(|(_, status)| status);
    if status.and_then(rustix::process::WaitStatus::exit_status) != Some(0) {
        return Err(std::io::Error::other("a child could not do what is measured"));
    }
    told.map(|()| Duration::from_nanos(u64::from_ne_bytes(taken)))
}

fn report(what: impl std::fmt::Display, step: &str, mut taken: Vec<Duration>) {
    taken.sort_unstable();
    let at = |part: f64| taken[(taken.len() as f64 * part) as usize].as_secs_f64() * 1e6;
    println!("{what}: {step}: median {:.1} us, 95 of 100 within {:.1} us", at(0.5), at(0.95));
}
