//! Labels that somebody else finds out about the machine, and writes into a file: in a pod, what the machine under it is
//! labelled with, which the operator tells when the pod has one.
//!
//! They hold where neither the machine itself nor whoever starts the node says otherwise.

use crate::config::PlanError;
use oxiray_accelerators::Host;
use oxiray_machine::Plan;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Names the file, a JSON object of texts.
const FILE_VARIABLE: &str = "OXIRAY_MACHINE_LABELS_FILE";
/// For how long the node waits for something to be in it.
const WAIT: Duration = Duration::from_secs(60);

/// What was found of the machine.
#[derive(Debug, Default)]
pub(crate) struct MachineLabels {
    labels: BTreeMap<String, String>,
    /// What is to be said of the file.
    warning: Option<String>,
}

/// This machine, or the recorded one that the environment names, and what is in the file that a variable names: waits until
/// something is in it, until `stop` is readable, or until it takes too long.
pub(crate) fn look(stop: &OwnedFd) -> Result<(Host, MachineLabels), PlanError> {
    let host = Host::from_environment()?;
    let Some(file) = host.variable(FILE_VARIABLE).filter(|file| !file.is_empty()) else {
        return Ok((host, MachineLabels::default()));
    };
    let read = match wait_for(Path::new(&file), stop, WAIT) {
        Ok(Some(text)) => serde_json::from_str(&text).map_err(|why| format!("is no JSON object of texts: {why}")),
        Ok(None) => Err(format!(
            "had nothing in it for {} s: the node starts without the labels of its machine, and has them when it is started \
             anew",
            WAIT.as_secs()
        )),
        Err(why) => Err(format!("cannot be waited for: {why}")),
    };
    let found = match read {
        Ok(labels) => MachineLabels { labels, warning: None },
        Err(why) => MachineLabels { labels: BTreeMap::new(), warning: Some(format!("{file} ({FILE_VARIABLE}) {why}")) },
    };
    Ok((host, found))
}

impl MachineLabels {
    /// Adds what nobody else says.
    pub(crate) fn complete(self, plan: &mut Plan) {
        for (key, value) in self.labels {
            plan.labels.entry(key).or_insert(value);
        }
        plan.warnings.extend(self.warning);
    }
}

/// What is in a file, once something is; nothing where that takes too long.
fn wait_for(file: &Path, stop: &OwnedFd, limit: Duration) -> io::Result<Option<String>> {
    let until = Instant::now() + limit;
    let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    // Whoever writes it replaces it, or what it is a link to, within the folder.
    inotify::add_watch(&changes, folder, WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE)?;
    loop {
        // The watch came first: what is written from here on is told.
        match std::fs::read_to_string(file) {
            Ok(text) if !text.trim().is_empty() => return Ok(Some(text)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut watched = [PollFd::new(&changes, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !watched[1].revents().is_empty() {
            return Ok(None);
        }
        let mut told = [0; 4096];
        while rustix::io::read(&changes, &mut told).is_ok_and(|count| count > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    #[test]
    fn a_file_is_waited_for_until_something_is_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (stop, stopper) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let file = folder.path().join("labels");
        let brief = Duration::from_millis(1);
        assert_eq!(wait_for(&file, &stop, brief).expect("no error"), None, "it is not there");
        std::fs::write(&file, "").expect("written");
        assert_eq!(wait_for(&file, &stop, brief).expect("no error"), None, "nothing is in it");
        // As kubelets do: a link to a folder is replaced by another.
        let script = r#"mkdir 2 && echo '{"zone": "a"}' > 2/labels && ln -s 2/labels next && mv -T next labels"#;
        let writer = std::process::Command::new("/bin/sh").args(["-c", script]).current_dir(&folder).spawn();
        let mut writer = writer.expect("a shell");
        let found = wait_for(&file, &stop, Duration::from_secs(60)).expect("no error");
        assert_eq!(found.as_deref().map(str::trim), Some(r#"{"zone": "a"}"#));
        assert!(writer.wait().expect("it has ended").success());
        std::fs::remove_file(&file).expect("removed");
        drop(stopper);
        let begun = Instant::now();
        assert_eq!(wait_for(&file, &stop, Duration::from_secs(60)).expect("no error"), None);
        assert!(begun.elapsed() < Duration::from_secs(30), "who stops the node does not wait");
        let missing = folder.path().join("no/such/folder/labels");
        assert!(wait_for(&missing, &stop, brief).is_err(), "nothing will ever be there");
    }
}
