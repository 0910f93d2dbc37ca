//! Control groups of workers: each worker has one, which bounds its processes, and its memory where a lease asks for that.
//!
//! ```text
//! own group of the daemon
//!   ├─ oxiray.leaf        version 2 only: the daemon, and whoever else was in its group
//!   └─ oxiray-<pid>-<n>   this daemon's
//!        ├─ w1            a worker and all that it started
//!        └─ w2
//! ```
//!
//! - GROUPS-1: a group is made only where this process is, so that every limit above holds for workers too.
//! - GROUPS-2: nobody else's processes are moved: with version 2, where a group with processes cannot have groups with
//!   limits in it, only a group that is the daemon's own, or was delegated to its user, is divided.
//! - GROUPS-3: a group goes with its worker. What a killed daemon left is named in its session's directory, and removed
//!   by whoever removes that.
//! - GROUPS-4: a group serves a next worker only when it is empty and holds no memory to speak of.
//! - GROUPS-5: a daemon's group is locked as long as it lives. One that is not and whose daemon is dead is removed by the
//!   next daemon beside it, which ends whoever is still in it, whatever became of its session.
//! - GROUPS-6: a worker that is to be kept to memory of a device is in its group, and is told nothing where the kernel was not
//!   told of the limit; no limit of a device's memory outlives the worker.

mod cell;
#[cfg(test)]
mod tests;

use crate::limits::{Limits, Version, read};
use cell::{Cell, Places};
pub(crate) use cell::{Killed, end_all};
use oxiray_fence::{end_processes_in, processes_in};
use oxiray_machine::{DeviceMemoryLimit, Key};
use oxiray_processes::descendants_of;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, inotify, open};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many processes and threads a worker may have, with all that it starts, where nothing is said.
const PROCESSES_MAX: u64 = 4096;
/// The variable that says otherwise; 0 for as many as there may be.
const PROCESSES_VARIABLE: &str = "OXIRAY_WORKER_PIDS_MAX";
/// The variable that leaves `memory=` to the scheduler alone where it is 0.
const MEMORY_VARIABLE: &str = "OXIRAY_MEMORY_LIMITS";
/// The group that the daemon moves into, so that its own may have groups with limits.
const LEAF: &str = "oxiray.leaf";
/// How the groups of daemons are called.
const PREFIX: &str = "oxiray-";
/// A group that nobody has locked for so long is nobody's: who makes one locks it at once.
const UNLOCKED_MAX: Duration = Duration::from_secs(60);
/// The controller that keeps processes to memory of devices, of version 2 only.
const DEVICE_MEMORY: &str = "dmem";
/// The file of a session that names its groups.
const NAMES: &str = "control_groups";
/// Empty groups that are kept for the next workers.
const FREE_MAX: usize = 32;
/// How often processes are moved until no new ones turn up.
const MOVES_MAX: usize = 10;

/// What bounds workers, by the node's environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    /// Whether `memory=` is a limit.
    pub(crate) memory: bool,
    /// How many processes and threads each may have; 0 for as many as there may be.
    pub(crate) processes: u64,
    /// Whether memory of devices is limited.
    pub(crate) device_memory: bool,
}

impl Options {
    /// From variables; what is wrong with them comes along.
    pub(crate) fn of(variables: &BTreeMap<String, String>) -> (Self, Option<String>) {
        let memory = variables.get(MEMORY_VARIABLE).is_none_or(|given| given.trim() != "0");
        let given = variables.get(PROCESSES_VARIABLE).map(|given| given.trim());
        let processes = given.map_or(Ok(PROCESSES_MAX), str::parse);
        let wrong = processes.is_err().then(|| {
            format!(
                "{PROCESSES_VARIABLE} is `{}`: it is to be a number of processes, or 0 for no limit; it is {PROCESSES_MAX} now",
                given.unwrap_or_default()
            )
        });
        (Self { memory, processes: processes.unwrap_or(PROCESSES_MAX), device_memory: false }, wrong)
    }

    /// How many processes each worker may have where so many may be in all: others are left half of them.
    fn processes_within(self, tightest: Option<f64>) -> u64 {
        tightest.map_or(self.processes, |all| self.processes.min((all / 2.0) as u64)).max(1)
    }
}

/// Where the groups of workers are made, for one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    version: Version,
    /// This daemon's group.
    directory: PathBuf,
}

/// The control groups of a daemon's workers.
#[derive(Debug)]
pub(crate) struct ControlGroups {
    /// Where memory is limited, or why it is not.
    memory: Result<Place, String>,
    /// Where processes are limited, or why they are not.
    processes: Result<Place, String>,
    /// Where the memory of devices is limited, or why it is not.
    device_memory: Result<Place, String>,
    /// How many each worker may have.
    processes_max: u64,
    of: BTreeMap<Key, Cell>,
    free: Vec<Cell>,
    /// Groups of dead workers in which something still is.
    lingering: Vec<(Key, Cell)>,
    /// Workers that are to be told nothing (GROUPS-6).
    failed: BTreeSet<Key>,
    /// Tells of groups that met a limit of processes.
    events: Option<OwnedFd>,
    last_number: u64,
    /// GROUPS-5.
    _locks: Vec<OwnedFd>,
}

impl ControlGroups {
    /// As the variables say, in this session. Lines for the log come along: what can be limited, and what is wrong with the
    /// variables.
    pub(crate) fn begin(
        limits: Option<&Limits>,
        (variables, limits_device_memory): (&BTreeMap<String, String>, bool),
        session: &Path,
    ) -> (Self, Vec<String>) {
        let (mut options, wrong) = Options::of(variables);
        options.device_memory = limits_device_memory;
        let groups = Self::make(limits, options, session);
        let [memory, processes] = groups.described();
        let found = [format!("memory= of workers: {memory}"), format!("processes of workers: {processes}")];
        let of_devices = limits_device_memory.then(|| match &groups.device_memory {
            Ok(place) => format!("memory of devices: kept by the kernel, {}", place.directory.display()),
            Err(why) => format!("memory of devices: not kept by the kernel: {why}"),
        });
        (groups, wrong.into_iter().chain(found).chain(of_devices).collect())
    }

    /// Finds out whether groups can be made, by making them.
    fn make(limits: Option<&Limits>, options: Options, session: &Path) -> Self {
        let name = new_name();
        let place = |controller: &str| -> Result<Place, String> {
            let limits = limits.ok_or("the limits of this process cannot be read")?;
            if !limits.are_real() {
                return Err("the machine is a recorded one".to_owned());
            }
            let (version, own) =
                limits.own_group(controller).ok_or("no control groups are mounted, or this process is in none")?;
            place_in(version, &own, controller, &name)
        };
        let memory = if options.memory { place("memory") } else { Err(format!("{MEMORY_VARIABLE} is 0")) };
        let processes = match options.processes {
            0 => Err(format!("{PROCESSES_VARIABLE} is 0")),
            _ => place("pids"),
        };
        let device_memory = if options.device_memory {
            place(DEVICE_MEMORY)
        } else {
            Err("no worker is to be kept to some by the kernel".to_owned())
        };
        let processes_max = options.processes_within(limits.and_then(Limits::pids).map(|bound| bound.limit));
        let places = [&memory, &processes, &device_memory].into_iter().flatten();
        let places: BTreeSet<&Path> = places.map(|place: &Place| place.directory.as_path()).collect();
        let locks = places.iter().filter_map(|place| locked(place)).collect();
        for above in places.into_iter().filter_map(Path::parent) {
            sweep(above);
        }
        let events = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).ok();
        let groups = Self {
            memory,
            processes,
            device_memory,
            processes_max,
            of: BTreeMap::new(),
            free: Vec::new(),
            lingering: Vec::new(),
            failed: BTreeSet::new(),
            events,
            last_number: 0,
            _locks: locks,
        };
        groups.write_down(session);
        groups
    }

    /// GROUPS-3.
    fn write_down(&self, session: &Path) {
        let names: Vec<String> = self.places().iter().map(|directory| directory.display().to_string()).collect();
        if names.is_empty() {
            return;
        }
        let file = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(session.join(NAMES));
        let written = file.and_then(|mut file| writeln!(file, "{}", names.join("\n")));
        // Without it they are left where this daemon is killed, empty.
        drop(written);
    }

    fn all(&self) -> [&Result<Place, String>; 3] {
        [&self.memory, &self.processes, &self.device_memory]
    }

    /// The directories of this daemon.
    fn places(&self) -> Vec<PathBuf> {
        let mut places: Vec<PathBuf> = self.all().into_iter().flatten().map(|place| place.directory.clone()).collect();
        places.sort();
        places.dedup();
        places
    }

    /// Readable when [`ControlGroups::met_limits`] has news.
    pub(crate) fn watch_fd(&self) -> Option<&OwnedFd> {
        self.events.as_ref()
    }

    /// What is enforced for memory and for processes, or why it is not, in words.
    pub(crate) fn described(&self) -> [String; 2] {
        let said = |place: &Result<Place, String>, what: &str| match place {
            Ok(Place { version, directory }) => {
                let version = if *version == Version::One { "v1" } else { "v2" };
                format!("{what}: cgroup {version}, {}", directory.display())
            }
            Err(why) => format!("not enforced: {why}"),
        };
        let each = format!("enforced, {} for each worker", self.processes_max);
        [said(&self.memory, "enforced"), said(&self.processes, &each)]
    }

    /// A group for a worker that is about to be forked: the files by which it enters. Nothing where none can be made.
    pub(crate) fn take(&mut self, worker: Key) -> io::Result<Vec<String>> {
        if self.all().into_iter().all(Result::is_err) {
            return Ok(Vec::new());
        }
        let mut cell = if let Some(cell) = self.free.pop() {
            cell
        } else {
            self.last_number += 1;
            let [memory, processes, device_memory] = self.all().map(|place| place.as_ref().ok());
            let places = Places { memory, processes, device_memory };
            Cell::make(places, &format!("w{}", self.last_number), self.processes_max)?
        };
        cell.begin();
        if cell.watched.is_none()
            && let (Some(events), Some(file)) = (&self.events, cell.process_events())
        {
            // Where it cannot be watched it is looked at with memory.
            cell.watched = inotify::add_watch(events, file, inotify::WatchFlags::MODIFY).ok();
        }
        let doors = cell.doors();
        self.of.insert(worker, cell);
        Ok(doors)
    }

    /// The worker's group of version 2, where it is in one.
    pub(crate) fn unified(&self, worker: Key) -> Option<PathBuf> {
        let is_unified =
            |place: &Result<Place, String>| place.as_ref().is_ok_and(|place| place.version == Version::Two);
        let cell = self.of.get(&worker)?;
        let memory = cell.memory_directory().filter(|_| is_unified(&self.memory));
        let processes = || cell.processes_directory().filter(|_| is_unified(&self.processes));
        memory.or_else(processes).or_else(|| cell.device_memory_directory()).map(Path::to_owned)
    }

    /// The worker's group.
    pub(crate) fn of(&mut self, worker: Key) -> Option<&mut Cell> {
        self.of.get_mut(&worker)
    }

    /// GROUPS-6: a worker may have so much of a device's memory from now on.
    pub(crate) fn limit_device_memory(&mut self, told: &DeviceMemoryLimit) -> Result<(), String> {
        let limited = match self.of.get_mut(&told.worker) {
            Some(cell) => cell.limit_device_memory(&told.region, told.bytes),
            None => Err("it is in no control group".to_owned()),
        };
        if limited.is_err() {
            self.failed.insert(told.worker);
        }
        limited
    }

    /// The file by which a worker enters where it may be kept to memory of a device (GROUPS-6).
    pub(crate) fn device_memory_door(&self, worker: Key) -> Option<String> {
        self.of.get(&worker)?.device_memory_door()
    }

    /// Whether a worker is to be told nothing, since the kernel does not keep it to its memory of a device.
    pub(crate) fn has_failed(&self, worker: Key) -> bool {
        self.failed.contains(&worker)
    }

    /// Workers whose groups have a limit of memory.
    pub(crate) fn limited(&self) -> Vec<Key> {
        self.of.iter().filter(|(_, cell)| cell.is_limited()).map(|(key, _)| *key).collect()
    }

    /// How many processes each worker may have.
    pub(crate) fn processes_max(&self) -> u64 {
        self.processes_max
    }

    /// Workers whose forks have failed since this was asked last: of those that the kernel told of, or of all, since with
    /// version 1 it may not tell.
    pub(crate) fn met_limits(&mut self, of_all: bool) -> Vec<Key> {
        let told = self.events.as_ref().map(told_of).unwrap_or_default();
        let is_asked = |cell: &Cell| of_all || cell.watched.is_some_and(|watched| told.contains(&watched));
        let asked = self.of.iter_mut().filter(|(_, cell)| is_asked(cell));
        asked.filter_map(|(key, cell)| cell.meets_process_limit().then_some(*key)).collect()
    }

    /// Ends whatever else is in the group of a worker that met its limit of processes.
    pub(crate) fn end(&self, worker: Key) {
        if let Some(cell) = self.of.get(&worker).filter(|cell| cell.has_met_process_limit()) {
            cell.end();
        }
    }

    /// The worker is gone: so is its group, or it waits for the next one.
    pub(crate) fn release(&mut self, worker: Key, is_left_empty: bool) {
        self.failed.remove(&worker);
        if let Some(cell) = self.of.remove(&worker) {
            self.retire(worker, cell, is_left_empty);
        }
    }

    /// The processes that are in a worker's group.
    pub(crate) fn left(&self, worker: Key) -> Vec<u32> {
        let lingering = self.lingering.iter().filter(|(key, _)| *key == worker).map(|(_, cell)| cell);
        let cells = self.of.get(&worker).into_iter().chain(lingering);
        cells.flat_map(Cell::directories).flat_map(processes_in).collect()
    }

    /// GROUPS-4.
    fn retire(&mut self, worker: Key, mut cell: Cell, is_left_empty: bool) {
        if self.free.len() < FREE_MAX && cell.is_clean(is_left_empty) {
            return self.free.push(cell);
        }
        if let (Some(events), Some(watched)) = (&self.events, cell.watched.take()) {
            let _ = inotify::remove_watch(events, watched);
        }
        if !cell.remove() {
            cell.end();
            self.lingering.push((worker, cell));
        }
    }

    /// Tries again to remove what could not be.
    pub(crate) fn look_again(&mut self) {
        self.lingering.retain(|(_, cell)| {
            let is_gone = cell.remove();
            if !is_gone {
                cell.end();
            }
            !is_gone
        });
    }

    /// Removes everything, after every process is dead.
    pub(crate) fn remove(self) {
        for place in self.places() {
            remove_tree(&place);
        }
    }
}

/// The watches of which the kernel has told something.
fn told_of(events: &OwnedFd) -> Vec<i32> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(events, &mut buffer);
    std::iter::from_fn(|| reader.next().ok().map(|event| event.wd())).collect()
}

/// What the group of a daemon is called.
fn new_name() -> String {
    format!("{PREFIX}{}-{:08x}", std::process::id(), u32::from_ne_bytes(oxiray_ids::random()))
}

/// Why the kernel keeps nobody to memory of a device; nothing where it may. It is tried.
pub(crate) fn why_no_device_memory(limits: &Limits) -> Option<String> {
    let Some(own) = limits.unified_group() else {
        return Some("no control groups of version 2 are mounted, or this process is in none".to_owned());
    };
    match place_in(Version::Two, &own, DEVICE_MEMORY, &new_name()) {
        Ok(place) => {
            remove_tree(&place.directory);
            None
        }
        Err(why) => Some(why),
    }
}

/// Makes a daemon's group within its own (GROUPS-1, GROUPS-2), or tells why it cannot.
fn place_in(version: Version, own: &Path, controller: &str, name: &str) -> Result<Place, String> {
    let pid = std::process::id();
    if !pids_in(own).contains(&pid) {
        return Err(format!("the control group of this process is not visible in {}", own.display()));
    }
    let above = match version {
        Version::One => {
            if read(&own.join("memory.use_hierarchy")).is_some_and(|is_so| is_so.trim() == "0") {
                return Err(format!("limits of {} do not hold for groups in it", own.display()));
            }
            own.to_owned()
        }
        Version::Two => divided(own, controller, pid)?,
    };
    let directory = above.join(name);
    match fs::create_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(in_words(&error, &directory)),
        Ok(()) => {}
    }
    if version == Version::Two {
        let file = directory.join("cgroup.subtree_control");
        fs::write(&file, format!("+{controller}")).map_err(|error| in_words(&error, &file))?;
    }
    let place = Place { version, directory };
    // What is promised is tried once.
    let places = match controller {
        DEVICE_MEMORY => Places { device_memory: Some(&place), ..Places::default() },
        _ => Places { memory: Some(&place), ..Places::default() },
    };
    let try_out = Cell::make(places, "w0", 1).and_then(|cell| {
        let file = match controller {
            "memory" => cell.limit_file(&place),
            DEVICE_MEMORY => cell.device_memory_file(),
            _ => cell.processes_file(&place),
        };
        // A kernel makes no file for whoever asks: where a folder stands for a group, there is one then.
        let tried = fs::OpenOptions::new().write(true).create(controller == DEVICE_MEMORY).truncate(false).open(&file);
        cell.remove();
        tried.map(drop).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
    });
    match try_out {
        Ok(()) => Ok(place),
        Err(error) => {
            remove_tree(&place.directory);
            Err(in_words(&error, &place.directory))
        }
    }
}

/// The group of version 2 in which groups with limits by a controller can be made (GROUPS-2).
fn divided(own: &Path, controller: &str, pid: u32) -> Result<PathBuf, String> {
    // Another daemon moved all of us here, or this one did for another controller.
    let above = own.parent().filter(|_| own.file_name().is_some_and(|name| name == LEAF)).unwrap_or(own);
    let lists = |file: &str| read(&above.join(file)).unwrap_or_default();
    let names = |list: &str| list.split_whitespace().any(|name| name == controller);
    if !names(&lists("cgroup.controllers")) {
        return Err(format!("{} has no controller `{controller}`", above.display()));
    }
    let control = above.join("cgroup.subtree_control");
    if names(&lists("cgroup.subtree_control")) {
        return Ok(above.to_owned());
    }
    // The root of all groups, which has no type, may have both processes and groups with limits.
    if above.join("cgroup.type").exists() && above == own {
        let ours = descendants_of(pid);
        let others = pids_in(own).into_iter().filter(|other| *other != pid && !ours.contains(other)).count();
        if others > 0 && !is_delegated(own) {
            return Err(format!(
                "{} holds {others} other processes, which are not Oxiray's to move. Start the node in a group of its own, as \
                 with `systemd-run --user --scope -p Delegate=yes …`",
                own.display()
            ));
        }
        move_all(own, &own.join(LEAF))?;
    }
    fs::write(&control, format!("+{controller}")).map_err(|error| in_words(&error, &control))?;
    Ok(above.to_owned())
}

/// Whether the group's processes may be moved: systemd says so of it, or it belongs to a user that is not root.
fn is_delegated(group: &Path) -> bool {
    let mut value = [0; 8];
    let says_so = ["trusted.delegate", "user.delegate"].into_iter().any(|name| {
        rustix::fs::getxattr(group, name, &mut value).is_ok_and(|length| value.get(..length) == Some(b"1"))
    });
    let owner = fs::metadata(group).map_or(0, |metadata| metadata.uid());
    says_so || owner != 0 && owner == rustix::process::getuid().as_raw()
}

fn move_all(from: &Path, to: &Path) -> Result<(), String> {
    match fs::create_dir(to) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(in_words(&error, to)),
        _ => {}
    }
    let listener = to.join("cgroup.procs");
    for _ in 0..MOVES_MAX {
        let pids = pids_in(from);
        if pids.is_empty() {
            return Ok(());
        }
        for pid in pids {
            match fs::write(&listener, pid.to_string()) {
                Err(error) if error.raw_os_error() != Some(Errno::SRCH.raw_os_error()) => {
                    return Err(in_words(&error, &listener));
                }
                _ => {}
            }
        }
    }
    Err(format!("new processes turn up in {} all the time", from.display()))
}

/// The processes of a group.
fn pids_in(group: &Path) -> Vec<u32> {
    let list = read(&group.join("cgroup.procs")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn in_words(error: &io::Error, file: &Path) -> String {
    let way = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "control groups are mounted read-only here",
        io::ErrorKind::PermissionDenied => {
            "that takes root, or a group that is delegated, as with `systemd-run --user --scope -p Delegate=yes …`"
        }
        _ => return format!("{}: {error}", file.display()),
    };
    format!("{}: {error}; {way}", file.display())
}

/// Removes a group of a daemon and those of its workers, as far as nothing is in them.
fn remove_tree(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// The lock of a daemon's group; nothing where another has it.
fn locked(group: &Path) -> Option<OwnedFd> {
    let group = open(group, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    flock(&group, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(group)
}

/// GROUPS-5: removes what dead daemons left in a group.
fn sweep(above: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<i32>().ok());
        // One that was made just now is not locked yet. Of a daemon in another namespace of processes the number says nothing here.
        let is_dead = pid.and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH));
        let made = entry.metadata().and_then(|about| about.modified());
        let is_old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > UNLOCKED_MAX));
        let has_number = pid.is_some();
        if let Some(_lock) = (has_number && (is_dead || is_old)).then(|| locked(&entry.path())).flatten() {
            // Where somebody does not die, the group stays for the next daemon.
            let _ = end_processes_in(&entry.path());
            remove_tree(&entry.path());
        }
    }
}

/// GROUPS-3: ends and removes what the daemon of a session left that is dead.
pub(crate) fn remove_left(session: &Path) {
    let Some(names) = read(&session.join(NAMES)) else { return };
    for name in names.lines().map(Path::new) {
        let is_ours = name.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if !is_ours || !name.is_absolute() {
            continue;
        }
        for entry in fs::read_dir(name).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                end_all(&entry.path());
            }
        }
        remove_tree(name);
    }
}
