//! Hostile processes beside an honest load (`make chaos`): a stranger, a worker and a member, each a process that says
//! anything for a while and ends. Who starts them renews them.
//!
//! - HOSTILE-1: what each did stands in its report, a line of JSON about once a second, so that one that is killed has told
//!   of all but its last moment.
//! - HOSTILE-2: nothing is said faster than a [`Pace`] allows: what is looked for is harm by what is said, not by how much.
//! - HOSTILE-3: what the trust model allows is not said ([`left_out`]), since nobody could tell it from a fault.

pub mod left_out;
pub mod member;
pub mod speech;
pub mod stranger;
pub mod worker;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a report is written.
const TELLING_PERIOD: Duration = Duration::from_secs(1);
/// How long a peer may read nothing before what is to be written to it is given up.
const WRITE_LIMIT: Duration = Duration::from_millis(500);

/// What a hostile process did, counted by what it was (HOSTILE-1).
#[derive(Debug)]
pub struct Report {
    file: File,
    untold: BTreeMap<&'static str, u64>,
    due: Instant,
}

impl Report {
    /// Goes on with the report in that file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file, untold: BTreeMap::new(), due: Instant::now() + TELLING_PERIOD })
    }

    /// Counts so many more of these.
    pub fn count(&mut self, what: &'static str, more: u64) {
        *self.untold.entry(what).or_default() += more;
        if Instant::now() >= self.due {
            self.tell();
        }
    }

    /// Writes down what has been counted.
    pub fn tell(&mut self) {
        if let Ok(mut line) = serde_json::to_vec(&self.untold) {
            line.push(b'\n');
            // In one piece, since several may write into one file.
            if self.file.write_all(&line).is_ok() {
                self.untold.clear();
            }
        }
        self.due = Instant::now() + TELLING_PERIOD;
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.tell();
    }
}

/// So many things in a second, and no more (HOSTILE-2).
#[derive(Debug)]
pub struct Pace {
    per_second: u32,
    began: Instant,
    said: u32,
}

impl Pace {
    /// From now on.
    pub fn new(per_second: u32) -> Self {
        Self { per_second, began: Instant::now(), said: 0 }
    }

    /// Counts so many more, and waits until that many may have been said.
    pub fn keep(&mut self, more: u32) {
        self.said += more;
        let due = Duration::from_secs(u64::from(self.said)) / self.per_second;
        pause(due.saturating_sub(self.began.elapsed()));
    }
}

/// Lets that much time pass.
pub fn pause(time: Duration) {
    if !time.is_zero() {
        // A signal ends it early, which does no harm.
        let _ = poll(&mut [], Some(&limit(time)));
    }
}

fn limit(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// Writes all of it to a socket that may be non-blocking. The error says that the peer is gone or reads nothing.
pub fn write_whole(socket: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::net::send(&socket, bytes, rustix::net::SendFlags::NOSIGNAL).map_err(io::Error::from) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut room = [PollFd::new(&socket, PollFlags::OUT)];
                if poll(&mut room, Some(&limit(WRITE_LIMIT)))? == 0 {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether there is something to be read within that time.
pub fn is_readable(socket: impl AsFd, within: Duration) -> bool {
    poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&limit(within))).is_ok_and(|count| count > 0)
}
