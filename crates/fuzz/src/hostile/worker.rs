//! A worker that lies to its daemon and to its owners: started by a task, with one of that worker's own streams as its
//! standard input, it says on it what no worker says, beside what the worker itself says.
//!
//! Its output is the worker's: it floods that as well.

use super::speech::{self, Speech};
use super::{Pace, Report, is_readable, left_out, pause, write_whole};
use crate::frames;
use oxiray_wire::Connection;
use oxiray_wire::message::ClientToDaemon;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Frames that are said in a second at most.
const FRAMES_PER_SECOND: u32 = 1000;
/// How much is printed at once.
const FLOOD_BYTES: usize = 64 << 10;

/// Lies on standard input's socket for that long; at times it goes earlier, or stops within a frame.
pub fn run(seed: u64, lasts: Duration, report: &Path) -> io::Result<()> {
    let (until, mut report) = (Instant::now() + lasts, Report::open(report)?);
    let (mut speech, mut pace) = (Speech::new(seed), Pace::new(FRAMES_PER_SECOND));
    let socket = rustix::io::dup(io::stdin())?;
    // What is read here its own worker does not hear: that is one more fault of that worker.
    let mut heard = Connection::new(rustix::io::dup(&socket)?)?;
    let mut inbox = Vec::new();
    report.count("streams", 1);
    while Instant::now() < until {
        pace.keep(1);
        match speech.chance.u16(..1024) {
            0..12 => {
                flood(&mut speech)?;
                report.count("floods", 1);
            }
            12..32 => {
                let header = frames::header(speech.chance.u32(1..), frames::kind(&mut speech.chance));
                report.count("frames that never come", 1);
                // Most of them are killed while they wait.
                report.tell();
                write_whole(&socket, &header)?;
                pause(until.saturating_duration_since(Instant::now()));
            }
            32 => return Ok(()),
            33..65 if is_readable(&socket, Duration::ZERO) => {
                let ends = heard.receive(&mut inbox).is_err();
                inbox.drain(..).for_each(|received| speech.learn(&received.message));
                if ends {
                    return Ok(());
                }
            }
            _ => {
                let frame = speech.next(left_out::of_client, speech::said_frame::<ClientToDaemon>);
                write_whole(&socket, &frame)?;
                report.count("frames", 1);
            }
        }
    }
    Ok(())
}

/// Lines, bytes that are no text, and what looks like the mark that names whose output follows.
fn flood(speech: &mut Speech) -> io::Result<()> {
    let chance = &mut speech.chance;
    let mut bytes = vec![chance.u8(..); FLOOD_BYTES];
    for _ in 0..chance.usize(..64) {
        bytes[chance.usize(..FLOOD_BYTES)] = [b'\n', 0x1e, 0][chance.usize(..3)];
    }
    io::stdout().write_all(&bytes)
}
