//! Has what workers print written by a thread, which also answers what is asked about files of logs.
//!
//! - LOGS-1: the loop waits for no disk. While much is not written yet, pipes are not read: who prints faster than the disk
//!   takes it is slowed down. Where the disk hangs they are read on after [`DISK_LIMIT`]; what is too much then is counted and
//!   told of in the file, and its driver sees it all the same.
//! - LOGS-2: what a worker printed is handed over before its driver is told. That a worker is gone which printed something,
//!   and did not end as it was asked to, is told with the file's name when all of it is written, or [`LEAVING_LIMIT`] later:
//!   a disk that hangs keeps no share.
//! - LOGS-3: who follows a file is answered when there is more of it. At most [`FOLLOWERS_MAX`] do, each for
//!   [`FOLLOW_LIMIT`] before it has to ask again.
//! - LOGS-4: what was printed before somebody asked is in what he is told, unless LOGS-1 keeps it in its pipe.

use crate::turn::now_ms;
use oxiray_ids::WorkerId;
use oxiray_logs::{FileName, Keeper, LogLimits, Printed};
use oxiray_machine::Key;
use oxiray_threads::{LOGS, Mailbox, Post, mailbox, spawn};
use oxiray_wire::message::{FailureCode, LogAction, LogAnswer, LogQuery};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// LOGS-1: so many bytes wait for the disk before no pipe is read, and so many are kept for it at most.
const READING_BYTES_MAX: u64 = 16 << 20;
const WAITING_BYTES_MAX: u64 = 64 << 20;
/// For how long a disk that takes nothing keeps pipes from being read.
const DISK_LIMIT: Duration = Duration::from_secs(2);
/// LOGS-2.
pub(crate) const LEAVING_LIMIT: Duration = Duration::from_secs(5);
/// How long the daemon's end waits for what is to be written.
const FINISH_LIMIT: Duration = Duration::from_secs(5);
/// LOGS-3.
const FOLLOWERS_MAX: usize = 64;
const FOLLOW_LIMIT: Duration = Duration::from_secs(20);
/// How often files are looked at that this thread does not write, while somebody follows one.
const OTHERS_PERIOD: Duration = Duration::from_millis(250);
/// How often it is looked whether files are too old where nothing is printed.
const REST_PERIOD: Duration = Duration::from_secs(600);
/// The most questions that members have not answered.
const PASSED_MAX: usize = 4096;

/// For how long, and up to how many, marks of calls and ends of workers wait for something that is urgent.
const MARKS_LIMIT: Duration = Duration::from_millis(100);
const MARKS_MAX: usize = 256;

/// 0: what workers print is not kept.
const SWITCH: &str = "OXIRAY_WORKER_LOGS";

#[derive(Debug)]
enum Order {
    Keep {
        name: FileName,
        pieces: Vec<Printed>,
        missed: u64,
        bytes: u64,
    },
    /// The worker has printed its last; which file says how it ended is told to whom it is known by that key.
    End {
        worker: WorkerId,
        awaited: Option<Key>,
    },
    Ask {
        asker: Key,
        query: Box<LogQuery>,
    },
    Forget {
        asker: Key,
    },
    Finish,
}

impl Order {
    /// Whether anything waits for it to be carried out, or would be lost with the daemon.
    fn is_urgent(&self) -> bool {
        match self {
            Self::Keep { bytes, missed, .. } => *bytes > 0 || *missed > 0,
            Self::End { awaited, .. } => awaited.is_some(),
            Self::Ask { .. } | Self::Forget { .. } | Self::Finish => true,
        }
    }
}

/// What is to be handed over together.
#[derive(Debug, Default)]
struct Batch {
    orders: Vec<Order>,
    is_urgent: bool,
    /// When it is handed over at the latest.
    until: Option<Instant>,
}

impl Batch {
    fn push(&mut self, order: Order) {
        self.is_urgent |= order.is_urgent();
        self.orders.push(order);
    }

    /// What is to be handed over now.
    fn take_due(&mut self, now: Instant) -> Option<Vec<Order>> {
        if self.orders.is_empty() {
            return None;
        }
        let until = *self.until.get_or_insert(now + MARKS_LIMIT);
        let is_due = self.is_urgent || self.orders.len() >= MARKS_MAX || now >= until;
        is_due.then(|| std::mem::take(self).orders)
    }
}

/// What the thread tells.
#[derive(Debug)]
pub(crate) enum LogTold {
    /// All that a worker printed is written, and this file tells how it ended.
    Ended(Key, Option<PathBuf>),
    /// For who asked.
    Answer(Key, Box<LogAnswer>),
    /// Much less waits than did: pipes are read again.
    HasRoom,
    /// For the daemon's own log.
    Trouble(String),
}

/// How much waits for the disk.
#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicU64,
    /// Whether the loop waits for it to shrink.
    is_awaited: AtomicBool,
}

impl Backlog {
    fn has_room(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) <= READING_BYTES_MAX / 2
    }

    /// Bytes are written. Whether the loop is to be told that there is room.
    fn shrink(&self, bytes: u64) -> bool {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.has_room() && self.is_awaited.swap(false, Ordering::SeqCst)
    }
}

/// A question that a member is to answer.
#[derive(Debug, Clone, Copy)]
struct Passed {
    member: Key,
    asker: Key,
    request: u64,
}

/// Whether too much waits for the disk.
#[derive(Debug, Clone, Copy)]
enum Behind {
    No,
    /// Pipes are not read since then.
    Since(Instant),
    /// It takes nothing, and is waited for no more.
    ForLong,
}

/// The loop's end.
#[derive(Debug)]
pub(crate) struct LogClient {
    orders: Sender<Vec<Order>>,
    told: Mailbox<LogTold>,
    batch: Batch,
    backlog: Arc<Backlog>,
    behind: Behind,
    is_kept: bool,
    passed: BTreeMap<u64, Passed>,
    last: u64,
}

impl LogClient {
    /// Keeps what workers print in that folder, where another daemon was before if it is resumed.
    pub(crate) fn start(directory: &Path, is_resumed: bool) -> io::Result<Self> {
        let variable = |name: &str| std::env::var(name).ok();
        let is_kept = variable(SWITCH).is_none_or(|text| text.trim() != "0");
        let disk = rustix::fs::statvfs(directory).map_or(u64::MAX, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
        let keeper = Keeper::new(directory, LogLimits::of(variable, disk), is_resumed);
        let (post, told) = mailbox()?;
        let (orders, received) = channel();
        let backlog = Arc::new(Backlog::default());
        let desk = Desk { keeper, post, backlog: Arc::clone(&backlog), followers: Vec::new() };
        spawn(LOGS, move || desk.serve(&received))?;
        Ok(Self {
            orders,
            told,
            batch: Batch::default(),
            backlog,
            behind: Behind::No,
            is_kept,
            passed: BTreeMap::new(),
            last: 0,
        })
    }

    /// Has what a worker printed written, and that so many bytes before it are missing. Returns how many are now.
    pub(crate) fn keep(&mut self, name: FileName, pieces: &[Printed], missed: u64) -> u64 {
        if !self.is_kept || pieces.is_empty() {
            return 0;
        }
        let bytes: u64 = pieces.iter().map(length).sum();
        if bytes > 0 && self.backlog.bytes.load(Ordering::SeqCst) + bytes > WAITING_BYTES_MAX {
            // Where calls begin and end is known all the same.
            let pieces: Vec<Printed> = pieces.iter().filter(|piece| length(piece) == 0).cloned().collect();
            self.batch.push(Order::Keep { name, pieces, missed, bytes: 0 });
            return bytes;
        }
        self.backlog.bytes.fetch_add(bytes, Ordering::SeqCst);
        self.batch.push(Order::Keep { name, pieces: pieces.to_vec(), missed, bytes });
        0
    }

    /// Whether pipes are not to be read now, as too much waits for the disk (LOGS-1). It is told when there is room.
    pub(crate) fn is_behind(&mut self, now: Instant) -> bool {
        if self.backlog.bytes.load(Ordering::SeqCst) <= READING_BYTES_MAX {
            self.behind = Behind::No;
            return false;
        }
        match self.behind {
            Behind::ForLong => return false,
            Behind::Since(_) => {}
            Behind::No => self.behind = Behind::Since(now),
        }
        self.backlog.is_awaited.store(true, Ordering::SeqCst);
        // The thread may have looked whether somebody waits a moment before.
        !self.backlog.has_room()
    }

    /// Until when pipes are not read at the latest.
    pub(crate) fn behind_deadline(&self) -> Option<Instant> {
        match self.behind {
            Behind::Since(since) => Some(since + DISK_LIMIT),
            Behind::No | Behind::ForLong => None,
        }
    }

    /// Whether it was waited long enough, which is told once: pipes are read although there is no room.
    pub(crate) fn gives_up(&mut self, now: Instant) -> bool {
        let is_overdue = self.behind_deadline().is_some_and(|until| until <= now);
        if is_overdue {
            self.behind = Behind::ForLong;
        }
        is_overdue
    }

    /// A worker has printed its last. LOGS-2 is told of where somebody waits for that, who knows the worker by this key.
    pub(crate) fn end(&mut self, worker: WorkerId, awaited: Option<Key>) {
        self.batch.push(Order::End { worker, awaited });
    }

    /// Somebody asks about the files of this node.
    pub(crate) fn ask(&mut self, asker: Key, query: LogQuery) {
        self.batch.push(Order::Ask { asker, query: Box::new(query) });
    }

    /// A member is to answer somebody. Returns the number by which it does; nothing where too many wait for members.
    pub(crate) fn pass(&mut self, member: Key, asker: Key, request: u64) -> Option<u64> {
        if self.passed.len() >= PASSED_MAX {
            return None;
        }
        self.last += 1;
        self.passed.insert(self.last, Passed { member, asker, request });
        Some(self.last)
    }

    /// A member answered: whom, and under which number.
    pub(crate) fn passed_back(&mut self, member: Key, number: u64) -> Option<(Key, u64)> {
        self.passed.get(&number).filter(|passed| passed.member == member)?;
        self.passed.remove(&number).map(|passed| (passed.asker, passed.request))
    }

    /// Somebody is gone: who asked is not answered any more. Returns those whom a member does not answer any more.
    pub(crate) fn forget(&mut self, key: Key) -> Vec<(Key, u64)> {
        self.batch.push(Order::Forget { asker: key });
        self.passed.retain(|_, passed| passed.asker != key);
        let of_member = self.passed.values().filter(|passed| passed.member == key);
        let unanswered = of_member.map(|passed| (passed.asker, passed.request)).collect();
        self.passed.retain(|_, passed| passed.member != key);
        unanswered
    }

    /// Hands over what came in this turn, and before it. Marks alone wait for what is printed, for a while: to wake the thread
    /// for each takes longer than to write them.
    pub(crate) fn hand_over(&mut self, now: Instant) {
        if let Some(orders) = self.batch.take_due(now) {
            // Where the thread has ended, nothing is kept any more.
            let _ = self.orders.send(orders);
        }
    }

    /// When marks that wait are handed over.
    pub(crate) fn batch_deadline(&self) -> Option<Instant> {
        self.batch.until
    }

    /// What the thread has told.
    pub(crate) fn take(&mut self) -> Vec<LogTold> {
        let told = self.told.take().unwrap_or_default();
        if told.iter().any(|one| matches!(one, LogTold::HasRoom)) {
            self.behind = Behind::No;
        }
        told
    }

    /// Waits until everything is written, for a while. Returns lines for the daemon's own log.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.batch.push(Order::Finish);
        self.hand_over(Instant::now());
        let until = Instant::now() + FINISH_LIMIT;
        let mut lines = Vec::new();
        while let Ok(told) = self.told.wait(until.saturating_duration_since(Instant::now())) {
            if let LogTold::Trouble(line) = told {
                lines.push(line);
            }
        }
        lines
    }
}

impl AsFd for LogClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.told.as_fd()
    }
}

fn length(piece: &Printed) -> u64 {
    match piece {
        Printed::Lines { lines, .. } => lines.len() as u64,
        Printed::Begins(_) | Printed::Ends(_) => 0,
    }
}

/// Somebody who waits for more of a file.
struct Follower {
    asker: Key,
    query: Box<LogQuery>,
    until: Instant,
}

/// The thread.
struct Desk {
    keeper: Keeper,
    post: Post<LogTold>,
    backlog: Arc<Backlog>,
    followers: Vec<Follower>,
}

impl Desk {
    fn serve(mut self, orders: &Receiver<Vec<Order>>) {
        loop {
            let mut next = match orders.recv_timeout(self.patience()) {
                Ok(batch) => Some(batch),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while let Some(batch) = next {
                for order in batch {
                    if matches!(order, Order::Finish) {
                        return self.finish();
                    }
                    self.carry_out(order);
                }
                next = orders.try_recv().ok();
            }
            self.serve_followers();
            self.keeper.rest(now_ms());
            if let Some(trouble) = self.keeper.new_trouble() {
                let text =
                    format!("{}. What workers print is shown all the same; this is not told again", trouble.text);
                self.post.post(LogTold::Trouble(text));
            }
        }
    }

    fn patience(&self) -> Duration {
        let until = self.followers.iter().map(|follower| follower.until).min();
        let left = until.map_or(REST_PERIOD, |until| until.saturating_duration_since(Instant::now()));
        let follows_others = self.followers.iter().any(|follower| FileName::read(&follower.query.file).is_none());
        if follows_others { left.min(OTHERS_PERIOD) } else { left.min(REST_PERIOD) }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Keep { name, pieces, missed, bytes } => {
                self.keeper.append(name, &pieces, missed, now_ms());
                if self.backlog.shrink(bytes) {
                    self.post.post(LogTold::HasRoom);
                }
            }
            Order::End { worker, awaited } => {
                let file = self.keeper.end(worker, now_ms());
                if let Some(key) = awaited {
                    self.post.post(LogTold::Ended(key, file));
                }
            }
            Order::Ask { asker, query } => self.answer(asker, query),
            Order::Forget { asker } => self.followers.retain(|follower| follower.asker != asker),
            Order::Finish => {}
        }
    }

    fn answer(&mut self, asker: Key, query: Box<LogQuery>) {
        let answer = match self.keeper.archive().answer(&query) {
            Some(answer) => answer,
            None if self.followers.len() < FOLLOWERS_MAX => {
                let until = Instant::now() + FOLLOW_LIMIT;
                return self.followers.push(Follower { asker, query, until });
            }
            None => {
                let text =
                    format!("{FOLLOWERS_MAX} others follow logs of that node already: wait until one of them ends");
                LogAnswer {
                    request: query.request,
                    failure: Some(FailureCode::Unreadable.because(text)),
                    ..LogAnswer::default()
                }
            }
        };
        self.post.post(LogTold::Answer(asker, Box::new(answer)));
    }

    /// LOGS-3.
    fn serve_followers(&mut self) {
        if self.followers.is_empty() {
            return;
        }
        let (archive, now) = (self.keeper.archive(), Instant::now());
        self.followers.retain(|Follower { asker, query, until }| {
            let answer = archive.answer(query).or_else(|| {
                // The question is answered with nothing, and may be asked again.
                let read = LogQuery { action: LogAction::Read, ..(**query).clone() };
                (*until <= now).then(|| archive.answer(&read)).flatten()
            });
            let is_served = answer.is_some();
            if let Some(answer) = answer {
                self.post.post(LogTold::Answer(*asker, Box::new(answer)));
            }
            !is_served
        });
    }

    fn finish(mut self) {
        self.keeper.rest(now_ms());
        if let Some(trouble) = self.keeper.trouble().filter(|trouble| trouble.count > 1) {
            let text = format!("logs could not be written {} times, first since {}", trouble.count, trouble.text);
            self.post.post(LogTold::Trouble(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::JobId;

    const NAME: FileName = FileName { worker: WorkerId::NIL, job: JobId::NIL, pid: 7, is_error: false };

    fn lines(text: &str) -> Printed {
        Printed::Lines { name: "f".into(), lines: text.as_bytes().to_vec().into() }
    }

    fn told(client: &LogClient) -> LogTold {
        client.told.wait(Duration::from_secs(60)).expect("it is told")
    }

    #[test]
    fn a_worker_s_end_is_told_when_what_it_printed_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut client = LogClient::start(folder.path(), false).expect("a thread");
        assert_eq!(client.keep(NAME, &[lines("last words\n")], 0), 0);
        client.end(NAME.worker, Some(3));
        client.hand_over(Instant::now());
        let LogTold::Ended(3, Some(file)) = told(&client) else { panic!("it ended") };
        assert!(std::fs::read_to_string(file).expect("there").ends_with("last words\n"));
        assert_eq!(client.backlog.bytes.load(Ordering::SeqCst), 0);
        assert!(client.finish().is_empty());
    }

    #[test]
    fn marks_wait_for_what_is_printed_or_for_a_moment() {
        let now = Instant::now();
        let keep = |piece: Printed| Order::Keep { name: NAME, bytes: length(&piece), pieces: vec![piece], missed: 0 };
        let span = oxiray_wire::labels::Span { task: oxiray_ids::TaskId::NIL, attempt: 0, shared: false };
        let mark = || keep(Printed::Ends(span));
        let mut batch = Batch::default();
        assert!(batch.take_due(now).is_none() && batch.until.is_none());
        batch.push(mark());
        assert!(batch.take_due(now).is_none());
        batch.push(Order::End { worker: NAME.worker, awaited: None });
        assert!(batch.take_due(now + MARKS_LIMIT / 2).is_none());
        assert_eq!(batch.take_due(now + MARKS_LIMIT).map(|orders| orders.len()), Some(2));
        assert!(batch.until.is_none());
        batch.push(mark());
        batch.push(keep(lines("urgent\n")));
        assert_eq!(batch.take_due(now).map(|orders| orders.len()), Some(2));
        batch.push(Order::End { worker: NAME.worker, awaited: Some(3) });
        assert!(batch.take_due(now).is_some());
        for _ in 0..MARKS_MAX {
            batch.push(mark());
        }
        assert_eq!(batch.take_due(now).map(|orders| orders.len()), Some(MARKS_MAX));
    }

    #[test]
    fn who_follows_is_answered_when_there_is_more_and_few_may() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut client = LogClient::start(folder.path(), false).expect("a thread");
        client.keep(NAME, &[lines("one\n")], 0);
        let query = |request, offset| LogQuery {
            request,
            action: LogAction::Follow,
            file: NAME.to_string(),
            offset,
            ..LogQuery::default()
        };
        client.ask(9, query(1, 0));
        client.hand_over(Instant::now());
        let LogTold::Answer(9, first) = told(&client) else { panic!("an answer") };
        for request in 2..=FOLLOWERS_MAX as u64 + 2 {
            client.ask(9, query(request, first.end));
        }
        client.hand_over(Instant::now());
        let LogTold::Answer(9, refused) = told(&client) else { panic!("an answer") };
        assert!(refused.failure.is_some() && refused.request == FOLLOWERS_MAX as u64 + 2);
        client.keep(NAME, &[lines("two\n")], 0);
        client.hand_over(Instant::now());
        for request in 2..=FOLLOWERS_MAX as u64 + 1 {
            let LogTold::Answer(9, answer) = told(&client) else { panic!("an answer") };
            assert_eq!((answer.request, &answer.bytes[..]), (request, &b"two\n"[..]));
        }
        assert!(client.finish().is_empty());
    }

    #[test]
    fn what_the_disk_does_not_take_is_bounded_and_told_of() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut client = LogClient::start(folder.path(), false).expect("a thread");
        client.backlog.bytes.store(WAITING_BYTES_MAX - 3, Ordering::SeqCst);
        assert_eq!(client.keep(NAME, &[lines("lost\n")], 0), 5);
        client.backlog.bytes.store(0, Ordering::SeqCst);
        assert_eq!(client.keep(NAME, &[lines("kept\n")], 5), 0);
        client.end(NAME.worker, Some(3));
        client.hand_over(Instant::now());
        let LogTold::Ended(3, Some(file)) = told(&client) else { panic!("it ended") };
        let text = std::fs::read_to_string(file).expect("there");
        assert!(text.contains("5 bytes that were printed here are not kept") && !text.contains("lost"), "{text}");
        assert!(client.finish().is_empty());
    }

    #[test]
    fn pipes_wait_for_a_disk_that_is_slow_and_not_for_one_that_hangs() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut client = LogClient::start(folder.path(), false).expect("a thread");
        let now = Instant::now();
        assert!(!client.is_behind(now));
        client.backlog.bytes.store(READING_BYTES_MAX + 1, Ordering::SeqCst);
        assert!(client.is_behind(now) && !client.gives_up(now));
        assert_eq!(client.behind_deadline(), Some(now + DISK_LIMIT));
        assert!(client.gives_up(now + DISK_LIMIT) && !client.is_behind(now + DISK_LIMIT), "it takes nothing");
        assert!(!client.gives_up(now + DISK_LIMIT), "it is told once");
        client.backlog.bytes.store(0, Ordering::SeqCst);
        client.keep(NAME, &[lines("written\n")], 0);
        client.hand_over(Instant::now());
        assert!(matches!(told(&client), LogTold::HasRoom));
        assert!(!client.is_behind(now + DISK_LIMIT) && client.behind_deadline().is_none());
        assert!(client.finish().is_empty());
    }

    #[test]
    fn what_a_member_answers_goes_to_who_asked() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut client = LogClient::start(folder.path(), false).expect("a thread");
        let (one, other) = (client.pass(5, 9, 1), client.pass(6, 9, 2));
        assert_eq!(client.passed_back(6, one.expect("a number")), None, "it was not asked");
        assert_eq!(client.passed_back(5, one.expect("a number")), Some((9, 1)));
        assert_eq!(client.forget(6), [(9, 2)]);
        assert_eq!(client.passed_back(6, other.expect("a number")), None);
        assert!(client.finish().is_empty());
    }
}
