//! Has what workers print written by a thread, which also answers what is asked about files of logs.
//!
//! - LOGS-1: the loop waits for no disk. While much is not written yet, pipes are not read: who prints faster than the disk
//!   takes it is slowed down. Where the disk hangs they are read on after [`DISK_LIMIT`]; what is too much then is counted and
//!   told of in the file, and its driver sees it all the same.
//! - LOGS-2: what a worker printed is handed over before its driver is told. That a worker is gone which printed something,
//!   and did not end as it was asked to, is told with the file's name when all of it is written, or [`LEAVING_LIMIT`] later:
//!   a disk that hangs keeps no share.
//! - LOGS-3: who follows a file is answered when there is more of it, and who watches a list of files when it is another one. At
//!   most [`FOLLOWERS_MAX`] follow and as many watch, each for [`FOLLOW_LIMIT`] before it has to ask again. A list is not made
//!   anew more often than each [`WATCH_PERIOD`], however fast calls begin and end.
//! - LOGS-4: what was printed before somebody asked is in what he is told, unless LOGS-1 keeps it in its pipe.
//! - LOGS-5: where the head keeps what failed tasks printed last, a member hands over that of [`FAILED_BURST`] attempts at once at
//!   most, and of one more for each [`FAILED_PERIOD`]. The others' lines are in its own files alone.

use crate::turn::now_ms;
use oxiray_ids::{NodeId, WorkerId};
use oxiray_logs::{Archive, FailedLogs, FileName, Keeper, LogLimits, Printed, is_for_others};
use oxiray_machine::Key;
use oxiray_threads::{LOGS, Mailbox, Post, mailbox, spawn};
use oxiray_wire::message::{FailedTaskLog, FailureCode, LogAction, LogAnswer, LogQuery};
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
const WATCH_PERIOD: Duration = Duration::from_millis(100);
/// How often files are looked at that this thread does not write, while somebody follows one.
const OTHERS_PERIOD: Duration = Duration::from_millis(250);
/// How often it is looked whether files are too old where nothing is printed.
const REST_PERIOD: Duration = Duration::from_secs(600);
/// LOGS-5.
const FAILED_BURST: u32 = 32;
const FAILED_PERIOD: Duration = Duration::from_millis(100);
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
        as_asked: bool,
        awaited: Option<Key>,
    },
    /// From here on the head keeps what failed tasks print last, or does not.
    TellFailed(bool),
    /// What a task of another node printed last that failed.
    KeepFailed {
        node: NodeId,
        told: Box<FailedTaskLog>,
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
            Self::Ask { .. } | Self::Forget { .. } | Self::TellFailed(_) | Self::KeepFailed { .. } | Self::Finish => {
                true
            }
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
    /// A task failed that printed this, for the head.
    Failed(Box<FailedTaskLog>),
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
        let desk = Desk {
            keeper,
            post,
            backlog: Arc::clone(&backlog),
            followers: Vec::new(),
            told_failed: None,
            kept_failed: FailedLogs::open(directory),
        };
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

    /// A worker has printed its last, and ended as it was asked to or in another way. LOGS-2 is told of where somebody waits
    /// for that, who knows the worker by this key.
    pub(crate) fn end(&mut self, worker: WorkerId, as_asked: bool, awaited: Option<Key>) {
        self.batch.push(Order::End { worker, as_asked, awaited });
    }

    /// The head of this member keeps what failed tasks print last, or does not (LOGS-5).
    pub(crate) fn tell_failed(&mut self, is_wanted: bool) {
        self.batch.push(Order::TellFailed(is_wanted));
    }

    /// A member tells what a task printed last that failed.
    pub(crate) fn keep_failed(&mut self, node: NodeId, told: FailedTaskLog) {
        self.batch.push(Order::KeepFailed { node, told: Box::new(told) });
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
        Printed::Begins(_) | Printed::Ends(_) | Printed::Fails(_) => 0,
    }
}

/// Somebody who waits for more of a file.
struct Follower {
    asker: Key,
    query: Box<LogQuery>,
    until: Instant,
    looked: Looked,
}

/// When it was looked last whether a list is another one, and how often what it is made of had changed by then.
#[derive(Debug, Clone, Copy)]
struct Looked {
    at: Instant,
    changes: u64,
}

impl Follower {
    fn watches(&self) -> bool {
        matches!(self.query.action, LogAction::Watch)
    }

    /// Whether what it waits for lies in files that this thread does not write.
    fn waits_for_others(&self) -> bool {
        match (&self.query.wanted, self.watches()) {
            (wanted, true) => wanted.as_ref().is_none_or(is_for_others),
            (_, false) => FileName::read(&self.query.file).is_none(),
        }
    }

    /// When it is to be looked again whether there is an answer; nothing where nothing changed since the last time.
    fn next_look(&self, changes: u64) -> Option<Instant> {
        if self.waits_for_others() {
            return Some(self.looked.at + OTHERS_PERIOD);
        }
        (self.watches() && changes != self.looked.changes).then(|| self.looked.at + WATCH_PERIOD)
    }

    fn is_to_look(&self, changes: u64, now: Instant) -> bool {
        !self.watches() || self.until <= now || self.next_look(changes).is_some_and(|at| at <= now)
    }

    /// What it is told now. After its time it is answered with what there is, and may ask again.
    fn answer(&self, archive: &Archive, now: Instant) -> Option<LogAnswer> {
        let answer = archive.answer(&self.query);
        if answer.is_some() || self.until > now {
            return answer;
        }
        if self.watches() {
            let LogQuery { request, mark, .. } = *self.query;
            return Some(LogAnswer { request, mark, ..LogAnswer::default() });
        }
        archive.answer(&LogQuery { action: LogAction::Read, ..(*self.query).clone() })
    }
}

/// The thread.
struct Desk {
    keeper: Keeper,
    post: Post<LogTold>,
    backlog: Arc<Backlog>,
    followers: Vec<Follower>,
    /// LOGS-5, where the head wants that.
    told_failed: Option<Allowance>,
    /// On a head: what failed on other nodes.
    kept_failed: FailedLogs,
}

/// LOGS-5: how many there may be now.
#[derive(Debug)]
struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { left: FAILED_BURST, since: now }
    }

    /// Whether there may be one more, which is counted.
    fn take(&mut self, now: Instant) -> bool {
        let periods = now.saturating_duration_since(self.since).as_millis() / FAILED_PERIOD.as_millis();
        if periods > 0 {
            self.left = FAILED_BURST.min(self.left.saturating_add(u32::try_from(periods).unwrap_or(FAILED_BURST)));
            self.since = now;
        }
        let is_allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_allowed
    }
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
                let text = format!("{}. What workers print is shown all the same; this is not repeated", trouble.text);
                self.post.post(LogTold::Trouble(text));
            }
        }
    }

    fn patience(&mut self) -> Duration {
        if self.followers.is_empty() {
            return REST_PERIOD;
        }
        let changes = self.keeper.archive().changes();
        let next = |follower: &Follower| {
            let look = follower.next_look(changes).unwrap_or(follower.until);
            look.min(follower.until)
        };
        let until = self.followers.iter().map(next).min();
        until.map_or(REST_PERIOD, |until| until.saturating_duration_since(Instant::now()).min(REST_PERIOD))
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Keep { name, pieces, missed, bytes } => {
                self.keeper.append(name, &pieces, missed, now_ms());
                self.tell_failed();
                if self.backlog.shrink(bytes) {
                    self.post.post(LogTold::HasRoom);
                }
            }
            Order::End { worker, as_asked, awaited } => {
                let file = self.keeper.end(worker, as_asked, now_ms());
                self.tell_failed();
                if let Some(key) = awaited {
                    self.post.post(LogTold::Ended(key, file));
                }
            }
            Order::TellFailed(is_wanted) => self.told_failed = is_wanted.then(|| Allowance::new(Instant::now())),
            Order::KeepFailed { node, told } => {
                if let Err(error) = self.kept_failed.keep(node, &told) {
                    let task = told.task;
                    let text =
                        format!("what task {task} printed last, which failed on node {node}, is not kept: {error}");
                    self.post.post(LogTold::Trouble(text));
                }
            }
            Order::Ask { asker, query } => self.answer(asker, query),
            Order::Forget { asker } => self.followers.retain(|follower| follower.asker != asker),
            Order::Finish => {}
        }
    }

    /// LOGS-5.
    fn tell_failed(&mut self) {
        let failed = self.keeper.take_failed();
        let Some(allowance) = self.told_failed.as_mut().filter(|_| !failed.is_empty()) else { return };
        let (archive, now) = (self.keeper.archive(), Instant::now());
        for part in failed {
            if allowance.take(now)
                && let Some(told) = archive.tail_of_failed(&part)
            {
                self.post.post(LogTold::Failed(Box::new(told)));
            }
        }
    }

    fn answer(&mut self, asker: Key, query: Box<LogQuery>) {
        let watches = matches!(query.action, LogAction::Watch);
        let alike = self.followers.iter().filter(|follower| follower.watches() == watches).count();
        let archive = self.keeper.archive();
        let answer = match archive.answer(&query) {
            Some(answer) => answer,
            None if alike < FOLLOWERS_MAX => {
                let at = Instant::now();
                let looked = Looked { at, changes: archive.changes() };
                return self.followers.push(Follower { asker, query, until: at + FOLLOW_LIMIT, looked });
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
        let changes = archive.changes();
        self.followers.retain_mut(|follower| {
            if !follower.is_to_look(changes, now) {
                return true;
            }
            follower.looked = Looked { at: now, changes };
            let answer = follower.answer(archive, now);
            let is_served = answer.is_some();
            if let Some(answer) = answer {
                self.post.post(LogTold::Answer(follower.asker, Box::new(answer)));
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
    use oxiray_wire::labels::Span;
    use oxiray_wire::message::LogSelector;

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
        client.end(NAME.worker, false, Some(3));
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
        batch.push(Order::End { worker: NAME.worker, as_asked: true, awaited: None });
        assert!(batch.take_due(now + MARKS_LIMIT / 2).is_none());
        assert_eq!(batch.take_due(now + MARKS_LIMIT).map(|orders| orders.len()), Some(2));
        assert!(batch.until.is_none());
        batch.push(mark());
        batch.push(keep(lines("urgent\n")));
        assert_eq!(batch.take_due(now).map(|orders| orders.len()), Some(2));
        batch.push(Order::End { worker: NAME.worker, as_asked: true, awaited: Some(3) });
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
    fn who_watches_a_list_is_answered_when_it_is_another_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut client = LogClient::start(folder.path(), false).expect("a thread");
        let wanted = LogSelector { job: Some(JobId::NIL), ..LogSelector::default() };
        let query = |action, mark| LogQuery { action, mark, wanted: Some(wanted.clone()), ..LogQuery::default() };
        let ask = |client: &mut LogClient, action, mark| {
            client.ask(9, query(action, mark));
            client.hand_over(Instant::now());
        };
        ask(&mut client, LogAction::List, 0);
        let LogTold::Answer(9, empty) = told(&client) else { panic!("an answer") };
        ask(&mut client, LogAction::Watch, empty.mark);
        client.keep(FileName { job: JobId::new([9; 4]), ..NAME }, &[lines("of another job\n")], 0);
        client.keep(NAME, &[lines("one\n")], 0);
        client.hand_over(Instant::now());
        let LogTold::Answer(9, begun) = told(&client) else { panic!("an answer") };
        assert_ne!(begun.mark, empty.mark);
        ask(&mut client, LogAction::Watch, begun.mark);
        client.keep(NAME, &[lines("two\n")], 0);
        client.end(NAME.worker, true, None);
        client.hand_over(Instant::now());
        let LogTold::Answer(9, over) = told(&client) else { panic!("an answer") };
        assert_ne!(over.mark, begun.mark, "its end is told, and more of it is not");
        ask(&mut client, LogAction::List, 0);
        let LogTold::Answer(9, now) = told(&client) else { panic!("an answer") };
        assert_eq!((now.mark, now.files.len()), (over.mark, 1));
        assert!(client.finish().is_empty());
    }

    #[test]
    fn what_failed_tasks_printed_last_is_told_where_that_is_wanted() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut client = LogClient::start(folder.path(), false).expect("a thread");
        let span = |number| Span { task: oxiray_ids::TaskId::new([number; 24]), attempt: 0, shared: false };
        let call =
            |number, end: fn(Span) -> Printed| [Printed::Begins(span(number)), lines("words\n"), end(span(number))];
        client.keep(NAME, &call(1, Printed::Fails), 0);
        client.tell_failed(true);
        client.keep(NAME, &call(2, Printed::Ends), 0);
        client.keep(NAME, &call(3, Printed::Fails), 0);
        client.keep(NAME, &call(4, Printed::Begins)[..2], 0);
        client.end(NAME.worker, false, None);
        client.hand_over(Instant::now());
        for number in [3, 4] {
            let LogTold::Failed(failed) = told(&client) else { panic!("it failed") };
            assert_eq!((failed.task, &failed.bytes[..], failed.cut), (span(number).task, &b"words\n"[..], 0));
        }
        assert!(client.finish().is_empty());
        let (now, mut allowance) = (Instant::now(), Allowance::new(Instant::now()));
        assert_eq!((0..100).filter(|_| allowance.take(now)).count(), FAILED_BURST as usize);
        assert!(!allowance.take(now) && allowance.take(now + FAILED_PERIOD * 2));
    }

    #[test]
    fn what_the_disk_does_not_take_is_bounded_and_told_of() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut client = LogClient::start(folder.path(), false).expect("a thread");
        client.backlog.bytes.store(WAITING_BYTES_MAX - 3, Ordering::SeqCst);
        assert_eq!(client.keep(NAME, &[lines("lost\n")], 0), 5);
        client.backlog.bytes.store(0, Ordering::SeqCst);
        assert_eq!(client.keep(NAME, &[lines("kept\n")], 5), 0);
        client.end(NAME.worker, false, Some(3));
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
