//! Machines that are none: daemons on this one, each at a loopback address of its own.
//!
//! - LOCAL-1: a machine outlives the autoscaler that started it. Each is written down in a file before anything waits for
//!   it, and another autoscaler of the same cluster finds it there.
//! - LOCAL-2: a process is killed only where it is the one that was written down: its number and its start agree.

use crate::provider::{Failed, Instance, InstanceState, Provider, ProviderError};
use crate::{GROUP_LABEL, INSTANCE_LABEL};
use oxiray_processes::{kill_by_pidfd, pidfd_of};
use oxiray_scheduler::NodeGroup;
use oxiray_threads::Waker;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the store of a local machine has where its group says nothing, in bytes: several of them share this machine.
const STORE_BYTES: f64 = 150.0 * 1024.0 * 1024.0;
/// How long a daemon may take to end by itself.
const END_LIMIT: Duration = Duration::from_secs(10);
/// The most bytes that are told of why a daemon did not start.
const ERROR_BYTES_MAX: usize = 2000;

/// A machine, as its file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Its name.
    pub id: String,
    /// Its group.
    pub group: String,
    /// Its replica.
    pub replica: String,
    /// Which host of the replica it is.
    pub host: u32,
    /// The request that it came of.
    pub request: String,
    /// Its daemon's process.
    pub pid: u32,
    /// When that process started, in the kernel's ticks since the machine did.
    pub started: u64,
}

/// Brings daemons on this machine.
#[derive(Debug)]
pub struct Local {
    /// The program of daemons.
    program: PathBuf,
    /// The cluster's address.
    address: String,
    /// Where machines are written down.
    folder: PathBuf,
    groups: Vec<NodeGroup>,
    machines: BTreeMap<String, Machine>,
    /// How many replicas each request has brought (PROVIDER-2).
    brought: BTreeMap<String, u32>,
    /// The number of the last replica.
    last: u32,
    failed: Vec<Failed>,
    wake: Waker,
}

#[derive(Debug)]
struct Machine {
    recorded: Recorded,
    /// Where this autoscaler started it.
    child: Option<Child>,
    /// Since when it has been asked to end.
    ending: Option<Instant>,
}

impl Local {
    /// The provider of the cluster at `address`, with the machines that are written down in `folder`.
    pub fn new(
        program: PathBuf,
        address: &str,
        folder: PathBuf,
        groups: Vec<NodeGroup>,
        wake: Waker,
    ) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut local = Self {
            program,
            address: address.to_owned(),
            folder,
            groups,
            machines: BTreeMap::new(),
            brought: BTreeMap::new(),
            last: 0,
            failed: Vec::new(),
            wake,
        };
        local.find_recorded()?;
        Ok(local)
    }

    /// Ends all machines, and waits until they have, since their cluster has.
    pub fn end_all(&mut self) {
        for machine in self.machines.values_mut() {
            machine.end();
        }
        let until = Instant::now() + END_LIMIT;
        while self.machines.values_mut().any(Machine::lives) && Instant::now() < until {
            let fds: Vec<_> =
                self.machines.values().filter_map(|machine| pidfd_of(machine.recorded.pid).ok()).collect();
            let mut watched: Vec<_> =
                fds.iter().map(|fd| rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)).collect();
            let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            // Whatever comes of it, it is looked again.
            let _ = rustix::event::poll(&mut watched, Some(&wait));
        }
        for machine in self.machines.values_mut() {
            machine.kill();
        }
        self.forget_dead();
    }

    /// LOCAL-1: takes on machines that another autoscaler started.
    fn find_recorded(&mut self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let is_new = path.extension().is_some_and(|extension| extension == "json")
                && path.file_stem().is_some_and(|id| !self.machines.contains_key(&*id.to_string_lossy()));
            let text = if is_new { fs::read_to_string(&path).ok() } else { None };
            if let Some(recorded) = text.and_then(|text| serde_json::from_str::<Recorded>(&text).ok()) {
                let number = recorded.replica.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
                self.last = self.last.max(number.unwrap_or_default());
                let machine = Machine { recorded, child: None, ending: None };
                self.machines.insert(machine.recorded.id.clone(), machine);
            }
        }
        Ok(())
    }

    fn path(&self, id: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{id}.{extension}"))
    }

    fn start(&self, group: &NodeGroup, replica: &str, host: u32, request: &str) -> io::Result<Machine> {
        let id = if group.hosts == 1 { replica.to_owned() } else { format!("{replica}-{host}") };
        let output = File::create(self.path(&id, "out"))?;
        let errors = File::create(self.path(&id, "err"))?;
        let mut child = Command::new(&self.program)
            .args(["daemon", "--config", &config(group, &self.address, &id, host)])
            .env("RAY_NODE_TYPE_NAME", &group.name)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()?;
        let pid = child.id();
        let recorded = Recorded {
            id: id.clone(),
            group: group.name.clone(),
            replica: replica.to_owned(),
            host,
            request: request.to_owned(),
            pid,
            started: started(pid).unwrap_or_default(),
        };
        let written = serde_json::to_string(&recorded).map_err(io::Error::from);
        if let Err(error) = written.and_then(|text| write_whole(&self.path(&id, "json"), &text)) {
            // LOCAL-1: nobody would find it again.
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok(Machine { recorded, child: Some(child), ending: None })
    }

    /// Forgets what is dead, and tells of what died before it served.
    fn forget_dead(&mut self) {
        let dead: Vec<String> =
            self.machines.iter_mut().filter_map(|(id, machine)| (!machine.lives()).then(|| id.clone())).collect();
        for id in dead {
            let Some(machine) = self.machines.remove(&id) else { continue };
            let served = fs::metadata(self.path(&id, "out")).is_ok_and(|file| file.len() > 0);
            if !served && machine.ending.is_none() {
                let said = fs::read_to_string(self.path(&id, "err")).unwrap_or_default();
                let said: String = said.trim().chars().take(ERROR_BYTES_MAX).collect();
                self.failed.push(Failed::Stuck {
                    group: machine.recorded.group,
                    replica: machine.recorded.replica,
                    text: format!("the daemon of {id} did not start: {said}"),
                });
            }
            for extension in ["json", "out", "err"] {
                // What is gone already need not be removed.
                let _ = fs::remove_file(self.path(&id, extension));
            }
        }
    }
}

impl Provider for Local {
    fn groups(&mut self) -> Result<Vec<NodeGroup>, ProviderError> {
        Ok(self.groups.clone())
    }

    fn instances(&mut self) -> Result<Vec<Instance>, ProviderError> {
        self.find_recorded().map_err(|error| ProviderError {
            text: format!("the machines in {} cannot be listed: {error}", self.folder.display()),
            is_passing: true,
        })?;
        for machine in self.machines.values_mut() {
            machine.kill_where_late();
        }
        self.forget_dead();
        let instance = |machine: &Machine| {
            let recorded = &machine.recorded;
            let serves = fs::metadata(self.path(&recorded.id, "out")).is_ok_and(|file| file.len() > 0);
            let state = match (machine.ending, serves) {
                (Some(_), _) => InstanceState::Terminating,
                (None, true) => InstanceState::Running,
                (None, false) => InstanceState::Pending,
            };
            Instance {
                id: recorded.id.clone(),
                group: recorded.group.clone(),
                replica: recorded.replica.clone(),
                host: recorded.host,
                request: Some(recorded.request.clone()),
                state,
                detail: format!("pid {}", recorded.pid),
            }
        };
        Ok(self.machines.values().map(instance).collect())
    }

    fn launch(&mut self, group: &NodeGroup, replicas: u32, request: &str) -> Result<(), ProviderError> {
        while self.brought.get(request).copied().unwrap_or_default() < replicas {
            *self.brought.entry(request.to_owned()).or_default() += 1;
            self.last += 1;
            let replica = format!("{}-{}", group.name, self.last);
            for host in 0..group.hosts {
                let machine = self.start(group, &replica, host, request).map_err(|error| ProviderError {
                    text: format!("the daemon of {replica} cannot be started: {error}"),
                    is_passing: false,
                })?;
                self.machines.insert(machine.recorded.id.clone(), machine);
            }
        }
        self.wake.ring();
        Ok(())
    }

    fn terminate(&mut self, replicas: &[String], _request: &str) -> Result<(), ProviderError> {
        for machine in self.machines.values_mut().filter(|machine| replicas.contains(&machine.recorded.replica)) {
            machine.end();
        }
        self.wake.ring();
        Ok(())
    }

    fn errors(&mut self) -> Vec<Failed> {
        std::mem::take(&mut self.failed)
    }
}

impl Machine {
    /// LOCAL-2.
    fn lives(&mut self) -> bool {
        match &mut self.child {
            Some(child) => child.try_wait().is_ok_and(|status| status.is_none()),
            None => started(self.recorded.pid).is_some_and(|started| started == self.recorded.started),
        }
    }

    fn end(&mut self) {
        if self.ending.is_none() {
            self.ending = Some(Instant::now());
        }
        if self.lives()
            && let Ok(process) = pidfd_of(self.recorded.pid)
        {
            // Where it fails it is dead.
            let _ = rustix::process::pidfd_send_signal(process, Signal::TERM);
        }
    }

    fn kill_where_late(&mut self) {
        if self.ending.is_some_and(|since| since.elapsed() > END_LIMIT) {
            self.kill();
        }
    }

    fn kill(&mut self) {
        if self.lives()
            && let Ok(process) = pidfd_of(self.recorded.pid)
        {
            // Where it fails it is dead.
            let _ = kill_by_pidfd(process);
        }
    }
}

/// What the daemon is told at its start.
fn config(group: &NodeGroup, address: &str, id: &str, host: u32) -> String {
    let all = if host == 0 { group.first_host_offers() } else { group.resources.clone() };
    let mut resources: BTreeMap<String, f64> = BTreeMap::from([("CPU".to_owned(), 0.0), ("memory".to_owned(), 0.0)]);
    resources.extend(all.offers().map(|(name, total)| (name.to_string(), total.as_f64())));
    let store = resources.remove("object_store_memory").unwrap_or(STORE_BYTES);
    let mut labels = group.labels.clone();
    labels.insert(GROUP_LABEL.to_owned(), group.name.clone());
    labels.insert(INSTANCE_LABEL.to_owned(), id.to_owned());
    let config = serde_json::json!({
        "machine": {
            "resources": resources,
            "labels": labels,
            "object_store_memory": store as u64,
            "node_name": id,
        },
        "member": {"join": address},
    });
    config.to_string()
}

/// When a process started, in ticks since the machine did; nothing where it is dead.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the state comes after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, text)?;
    fs::rename(unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = std::process::id();
        assert!(started(own).is_some_and(|ticks| ticks > 0));
        assert_eq!(started(own), started(own));
        assert_eq!(started(u32::MAX), None);
    }

    #[test]
    fn a_machine_offers_what_its_group_says_and_nothing_else() {
        let groups =
            crate::read_file("groups: [{name: g, max: 1, hosts: 2, resources: {GPU: 1}, first_host: {head: 1}}]");
        let group = &groups.expect("groups").groups[0];
        let parsed =
            |host| serde_json::from_str::<serde_json::Value>(&config(group, "a:1", "g-1-0", host)).expect("JSON");
        assert_eq!(
            parsed(0)["machine"]["resources"],
            serde_json::json!({"CPU": 0.0, "GPU": 1.0, "memory": 0.0, "head": 1.0})
        );
        assert_eq!(parsed(1)["machine"]["resources"], serde_json::json!({"CPU": 0.0, "GPU": 1.0, "memory": 0.0}));
        assert_eq!(parsed(0)["machine"]["labels"]["oxiray.io/instance"], "g-1-0");
    }
}
