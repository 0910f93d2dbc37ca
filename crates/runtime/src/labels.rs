//! Whose output follows, and what the process is called meanwhile.
//!
//! Calls may be many in a millisecond, and most print nothing: two labels in each pipe for every one of them would cost more
//! than the call. So the first calls of a while are labelled as they begin; of those beyond, whoever writes for the program
//! asks first ([`label_print`]), and what is written past that is nobody's, rather than another's.
//!
//! - PRINTS-1: a call whose beginning was written into a stream has its end written there, unless its process ends with it.
//! - PRINTS-2: a call without a label of its own lies in no other's part of the stream, unless both run at once.

use oxiray_ids::TaskId;
use oxiray_wire::labels::{Label, Span, mark};
use parking_lot::Mutex;
use rustix::io::fcntl_dupfd_cloexec;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// So many calls are labelled as they begin, one after the other.
const CALLS_AT_ONCE: u32 = 16;
/// After that one more for each of these: what a call costs its worker is little, but each label wakes the daemon, which
/// takes a processor from those that run calls.
const CALL_PERIOD: Duration = Duration::from_millis(100);
/// The most calls under way whose labels are remembered.
const CALLS_MAX: usize = 1024;

/// The ends of a worker's output that the daemon reads, whatever the program makes of descriptors 1 and 2.
struct Streams {
    mark: String,
    ends: [OwnedFd; 2],
    calls: Mutex<Calls>,
}

static STREAMS: OnceLock<Streams> = OnceLock::new();

/// The calls under way, as far as their output is concerned.
#[derive(Debug, Default)]
struct Calls {
    under_way: Vec<UnderWay>,
    /// The name of what follows, which is written with the beginning of the next call.
    name: Option<String>,
    /// How many calls were labelled lately, and until when they are counted.
    labelled: u32,
    counted: Option<Instant>,
}

#[derive(Debug)]
struct UnderWay {
    span: Span,
    /// Whether its beginning is written, to standard output and to standard error.
    is_written: [bool; 2],
}

impl Streams {
    /// Each write wakes the daemon: labels that follow each other are one (LABELS-2 holds for it as a whole).
    fn write(&self, labels: &[Label], streams: [bool; 2]) {
        let mut lines = String::new();
        for label in labels {
            lines += &self.mark;
            lines += &label.text();
            lines.push('\n');
        }
        for (end, _) in self.ends.iter().zip(streams).filter(|(_, is_meant)| *is_meant) {
            // Where the daemon no longer reads, nobody needs it.
            let _ = rustix::io::write(end, lines.as_bytes());
        }
    }
}

impl Calls {
    /// Whether one more call may be labelled as it begins.
    fn may_label(&mut self, now: Instant) -> bool {
        let since = *self.counted.get_or_insert(now);
        let periods =
            (now.saturating_duration_since(since).as_nanos() / CALL_PERIOD.as_nanos()).min(u128::from(u32::MAX));
        self.labelled = self.labelled.saturating_sub(periods as u32);
        self.counted = if self.labelled == 0 { Some(now) } else { Some(since + CALL_PERIOD * periods as u32) };
        let may = self.labelled < CALLS_AT_ONCE;
        self.labelled += u32::from(may);
        may
    }

    fn begin(&mut self, span: Span, now: Instant) -> bool {
        let may = self.under_way.len() < CALLS_MAX && self.may_label(now);
        // One among others is found again by nobody who prints.
        if may || !span.shared {
            self.under_way.push(UnderWay { span, is_written: [may; 2] });
        }
        may
    }

    fn end(&mut self, task: TaskId, attempt: u32) -> Option<UnderWay> {
        let is_it = |call: &UnderWay| call.span.task == task && call.span.attempt == attempt;
        let at = self.under_way.iter().rposition(is_it)?;
        Some(self.under_way.swap_remove(at))
    }

    /// The call to be labelled before something is written to a stream.
    fn print(&mut self, stream: usize) -> Option<Span> {
        let [call] = &mut self.under_way[..] else { return None };
        (!std::mem::replace(&mut call.is_written[stream], true)).then_some(call.span)
    }
}

/// LABELS-1, in a new worker, before anything of the user's runs.
pub fn begin_output() -> std::io::Result<()> {
    // Above those that programs take for their standard streams.
    let ends = [fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?, fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?];
    let mark = mark(u128::from_ne_bytes(oxiray_ids::random()));
    let streams = STREAMS.get_or_init(|| Streams { mark, ends, calls: Mutex::default() });
    streams.write(&[Label::Name(String::new())], [true; 2]);
    Ok(())
}

/// Says that what this process prints from here on is of that task or actor, to the daemon that reads it, and names the
/// thread after it.
pub fn label_output(label: &str) {
    label_next_call(label);
    if let Some(streams) = STREAMS.get() {
        let name = streams.calls.lock().name.take();
        streams.write(&name.map(Label::Name).into_iter().collect::<Vec<_>>(), [true; 2]);
    }
}

/// As [`label_output`], from the next call on, which [`begin_prints`] is told of before anything of it runs.
pub fn label_next_call(label: &str) {
    if let Ok(title) = CString::new(format!("ray::{label}")) {
        // What `top` shows; the kernel cuts it at 15 bytes.
        let _ = rustix::thread::set_name(&title);
    }
    if let Some(streams) = STREAMS.get() {
        streams.calls.lock().name = Some(label.to_owned());
    }
}

/// An attempt of a task begins. Returns whether that was said; where it was not, [`label_print`] says it.
pub fn begin_prints(task: TaskId, attempt: u32, shared: bool) -> bool {
    let Some(streams) = STREAMS.get() else { return true };
    let span = Span { task, attempt, shared };
    let mut calls = streams.calls.lock();
    let is_said = calls.begin(span, Instant::now());
    let name = calls.name.take().map(Label::Name);
    let labels: Vec<Label> = name.into_iter().chain(is_said.then_some(Label::Begins(span))).collect();
    if !labels.is_empty() {
        streams.write(&labels, [true; 2]);
    }
    is_said
}

/// Something is about to be written: has the one call that runs own it.
pub fn label_print(is_error: bool) {
    let Some(streams) = STREAMS.get() else { return };
    let stream = usize::from(is_error);
    let mut calls = streams.calls.lock();
    if let Some(span) = calls.print(stream) {
        streams.write(&[Label::Begins(span)], [stream == 0, stream == 1]);
    }
}

/// Whether an attempt of a task has a label: what it printed is to be written out before it ends.
pub fn has_prints(task: TaskId, attempt: u32) -> bool {
    let Some(streams) = STREAMS.get() else { return false };
    let calls = streams.calls.lock();
    let is_it = |call: &&UnderWay| call.span.task == task && call.span.attempt == attempt;
    calls.under_way.iter().rfind(is_it).is_some_and(|call| call.is_written != [false; 2])
}

/// An attempt of a task is over (PRINTS-1), and failed or did not.
pub fn end_prints(task: TaskId, attempt: u32, has_failed: bool) {
    let Some(streams) = STREAMS.get() else { return };
    let mut calls = streams.calls.lock();
    if let Some(call) = calls.end(task, attempt)
        && call.is_written != [false; 2]
    {
        let end = if has_failed { Label::Fails(call.span) } else { Label::Ends(call.span) };
        streams.write(&[end], call.is_written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(number: u8, shared: bool) -> Span {
        Span { task: TaskId::new([number; 24]), attempt: 0, shared }
    }

    #[test]
    fn the_first_calls_of_a_while_are_labelled_as_they_begin() {
        let (mut calls, now) = (Calls::default(), Instant::now());
        let mut run = |now: Instant| {
            let is_said = calls.begin(span(1, false), now);
            let printed = calls.print(0).is_some();
            let ended = calls.end(span(1, false).task, 0).expect("it is under way");
            assert_eq!(
                (printed, ended.is_written),
                (!is_said, [true, is_said]),
                "it has one label for what it printed"
            );
            is_said
        };
        assert_eq!((0..CALLS_AT_ONCE + 9).filter(|_| run(now)).count(), CALLS_AT_ONCE as usize);
        let later = now + CALL_PERIOD * 5 / 2;
        assert_eq!((0..9).filter(|_| run(later)).count(), 2);
        let much_later = now + Duration::from_secs(100_000);
        assert_eq!((0..CALLS_AT_ONCE + 9).filter(|_| run(much_later)).count(), CALLS_AT_ONCE as usize);
    }

    #[test]
    fn one_among_others_is_given_no_line_that_may_be_another_s() {
        let (mut calls, now) = (Calls::default(), Instant::now());
        assert!(calls.begin(span(1, true), now) && calls.begin(span(2, true), now));
        assert_eq!(calls.print(1), None);
        calls.labelled = CALLS_AT_ONCE;
        assert!(!calls.begin(span(3, true), now));
        assert!(calls.end(span(3, true).task, 0).is_none() && calls.end(span(1, true).task, 0).is_some());
        assert_eq!(calls.under_way.len(), 1);
    }
}
