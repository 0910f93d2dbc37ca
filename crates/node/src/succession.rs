//! What a member leaves to the process that is started in its place, should the switch end it (BEAT-2).

use crate::config::Config;
use crate::lifetime::Predecessor;
use crate::line_log::LineLog;
use oxiray_ids::NodeId;
use oxiray_network::LastCertificate;
use oxiray_processes::{ReaperError, leave_note, supervise};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What a member writes down while it lives, since it cannot say anything of itself once it is killed. It lies in memory
/// that nobody but its supervisor has.
#[derive(Serialize, Deserialize)]
struct Note {
    /// Its log.
    log: PathBuf,
    /// The node, in hexadecimal digits.
    node: String,
    /// How long its lease is.
    lease: Duration,
    /// Whether a head that was killed is started again.
    head_may_come_back: bool,
    /// By what the head knows the machine, whatever has become of the token, and until when.
    certificate: Option<([Vec<u8>; 3], Duration)>,
}

/// Gives a daemon that is to have a lease its supervisor, and goes on in a process of its own: whether that takes the place
/// of another, and who that one was.
pub(crate) fn begin(config: &Config, keeps_output: bool) -> Result<(bool, Option<Predecessor>), ReaperError> {
    let note = if config.has_lease() { supervise(keeps_output)? } else { None };
    Ok((note.is_some(), note.and_then(|note| Note::take_over(&note))))
}

/// Leaves a note of the member that logs to `log` and has such a `lease`, where this process has a supervisor.
pub(crate) fn leave(log: PathBuf, lease: Duration, own: Predecessor) -> io::Result<()> {
    let Predecessor { node, certificate, head_may_come_back } = own;
    let certificate = certificate.map(|certificate| certificate.to_parts());
    let note = Note { log, node: node.hex(), lease, head_may_come_back, certificate };
    serde_json::to_vec(&note).map_err(io::Error::from).and_then(|note| leave_note(&note))
}

impl Note {
    /// In the process that takes the place of the one that left it: writes down how that one ended, and returns who it was.
    /// `None` where it had left nothing that can be read.
    fn take_over(note: &[u8]) -> Option<Predecessor> {
        let Self { log, node, lease, head_may_come_back, certificate } = serde_json::from_slice(note).ok()?;
        let node = NodeId::from_hex(&node).ok()?;
        // Where its log is gone, nobody reads it.
        if let Ok(mut log) = LineLog::open(&log) {
            let lease = lease.as_secs_f64();
            log.line(&format!(
                "the member said nothing for longer than its lease of {lease} s, since it was stopped or suspended: the \
                 kernel ended it and its work, and it joins anew as another node"
            ));
        }
        let certificate = certificate.map(|(parts, until)| LastCertificate::from_parts(parts, until));
        Some(Predecessor { node, certificate, head_may_come_back })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_becomes_the_last_line_of_the_log_of_the_one_that_left_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("daemon.log");
        LineLog::open(&log).expect("a log").line("before");
        let (node, lease) = (NodeId::generate(), Duration::from_millis(2500));
        let certificate = Some(([vec![1], vec![2], vec![3]], Duration::from_secs(9)));
        let note = Note { log: log.clone(), node: node.hex(), lease, head_may_come_back: true, certificate };
        let before = Note::take_over(&serde_json::to_vec(&note).expect("JSON")).expect("it can be read");
        assert_eq!((before.node, before.head_may_come_back), (node, true));
        assert_eq!(before.certificate.map(|one| one.to_parts()), note.certificate);
        let text = std::fs::read_to_string(log).expect("it is there");
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().last().is_some_and(|line| line.contains("lease of 2.5 s")), "{text}");
        assert!(Note::take_over(b"").is_none());
    }
}
