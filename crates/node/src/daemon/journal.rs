//! The head's journal: opened, gone on with, written to.
//!
//! - HEADS-1: every start of a head raises the epoch of its cluster, and this is safe before it serves anyone.
//! - HEADS-3: while rows are written, which a disk or etcd may take long for, everybody is heard, and is told what does not
//!   depend on them. Nobody is heard where too much has come to depend on them. The end of the daemon waits for them.

use super::Daemon;
use super::heartbeats::Ended;
use super::start::StartError;
use crate::config::Config;
use crate::session::Session;
use bytes::Bytes;
use oxiray_head::table::ABOUT;
use oxiray_journal::{Change, Fault, LogFile, Opened, Store, Tenure};
use oxiray_network::{Authority, AuthorityError, AuthorityParts};
use oxiray_threads::{JOURNAL, Mailbox, mailbox, spawn};
use prost::Message as _;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the daemon waits for its journal at once, where it does.
const WRITING_LIMIT: Duration = Duration::from_secs(30);

/// The row of [`Identity`].
const IDENTITY: &[u8] = b"identity";
/// The row of the epoch: 8 bytes, the lowest first.
const EPOCH: &[u8] = b"epoch";

/// What a cluster is known by.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Identity {
    /// What lets a client of the head's machine in.
    #[prost(string, tag = "1")]
    pub(super) token: String,
    /// The port that its address ends with.
    #[prost(uint32, tag = "2")]
    pub(super) port: u32,
    /// Where the head listens for other machines, as `IP:PORT`; empty where it does not.
    #[prost(string, tag = "3")]
    pub(super) listens: String,
    #[prost(bytes = "bytes", tag = "4")]
    authority_certificate: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    authority_key: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    join_secret: Bytes,
}

/// A journal that is open, and which head of the cluster this is.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) store: Box<dyn Store>,
    /// HEADS-1.
    pub(super) epoch: u64,
    /// What the cluster is known by, where there was one.
    pub(super) identity: Option<Identity>,
    /// What its user should know.
    pub(super) warning: Option<String>,
}

/// What was cut off the journal's end.
fn told_of(opened: &Opened) -> String {
    let dropped = format!("the last {} bytes of the journal were dropped", opened.torn);
    match &opened.kept {
        None => format!("{dropped}: writing them was cut short, so nobody was told"),
        Some(kept) => format!(
            "{dropped}, which are no part of it: the machine stopped while they were written, so that nobody was told, or \
             something else wrote them. They are kept in {}",
            kept.display()
        ),
    }
}

impl Keeping {
    /// Opens the journal, and makes it a new one where there is none.
    pub(super) fn open(config: &Config, session: &Session, stop: &OwnedFd) -> Result<Self, StartError> {
        let mut warning = None;
        let store: Box<dyn Store> = if let Some(store) = &config.store {
            super::standby::claim(config, store, session, stop)?
        } else {
            let opened = LogFile::open(&session.journal())?;
            warning = (opened.torn > 0).then(|| told_of(&opened));
            Box::new(opened.journal)
        };
        let row = |key: &'static [u8]| store.rows().get(&(ABOUT, Bytes::from_static(key)));
        let unread = || StartError::Rows(oxiray_head::NotRestored::Row(ABOUT));
        let identity = row(IDENTITY).map(|row| Identity::decode(row.clone())).transpose().map_err(|_| unread())?;
        let epoch = match row(EPOCH) {
            Some(row) => u64::from_le_bytes(row[..].try_into().map_err(|_| unread())?),
            None => 0,
        };
        Ok(Self { store, epoch: epoch + 1, identity, warning })
    }

    /// The cluster's authority, where it had one.
    pub(super) fn authority(&self) -> Result<Option<Authority>, AuthorityError> {
        let Some(known) = self.identity.as_ref().filter(|known| !known.authority_key.is_empty()) else {
            return Ok(None);
        };
        let parts = AuthorityParts {
            certificate: known.authority_certificate.to_vec(),
            key: known.authority_key.to_vec(),
            secret: known.join_secret.to_vec(),
        };
        Authority::from_parts(&parts).map(Some)
    }

    /// HEADS-1.
    pub(super) fn begin(
        &mut self,
        token: &str,
        port: u16,
        listens: Option<SocketAddr>,
        authority: Option<&AuthorityParts>,
    ) -> Result<(), Fault> {
        let before = self.identity.take().unwrap_or_default();
        let mut identity = Identity {
            token: token.to_owned(),
            port: port.into(),
            listens: listens.map(|at| at.to_string()).unwrap_or_default(),
            ..before
        };
        if let Some(parts) = authority {
            identity.authority_certificate = Bytes::copy_from_slice(&parts.certificate);
            identity.authority_key = Bytes::copy_from_slice(&parts.key);
            identity.join_secret = Bytes::copy_from_slice(&parts.secret);
        }
        let row = |key: &'static [u8], value: Vec<u8>| Change {
            table: ABOUT,
            key: Bytes::from_static(key),
            value: Some(value.into()),
        };
        self.store.commit(&[row(EPOCH, self.epoch.to_le_bytes().to_vec()), row(IDENTITY, identity.encode_to_vec())])
    }
}

/// What is to be done with the journal.
#[derive(Debug)]
enum Work {
    Commit(Vec<Change>),
    /// The cluster ends for good.
    Finish,
}

/// Whose rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Core,
    Tokens,
}

/// The journal of a head that serves: a thread writes it (HEADS-3).
#[derive(Debug)]
pub(super) struct JournalDesk {
    work: Sender<Work>,
    done: Mailbox<Result<(), Fault>>,
    /// Whose rows are being written, in this order.
    under_way: VecDeque<Purpose>,
    tenure: Option<Tenure>,
    thread: JoinHandle<()>,
}

impl JournalDesk {
    pub(super) fn start(mut store: Box<dyn Store>) -> io::Result<Self> {
        let (post, done) = mailbox()?;
        let (work, orders) = channel();
        let tenure = store.tenure();
        let thread = spawn(JOURNAL, move || {
            for order in orders {
                match order {
                    Work::Commit(changes) => post.post(store.commit(&changes)),
                    Work::Finish => store.finish(),
                }
            }
        })?;
        Ok(Self { work, done, under_way: VecDeque::new(), tenure, thread })
    }

    fn write(&mut self, changes: Vec<Change>, purpose: Purpose) {
        self.under_way.push_back(purpose);
        // Where the thread has ended, that is what is heard next.
        let _ = self.work.send(Work::Commit(changes));
    }

    /// Until when this process is sure to be the head, as time since the machine was started; nothing where that has no end.
    pub(super) fn held_until(&self) -> Option<Duration> {
        self.tenure.as_ref().map(Tenure::until)
    }

    /// The cluster ends for good, and so does what is kept of it.
    pub(super) fn finish(self) {
        let _ = self.work.send(Work::Finish);
        drop(self.work);
        // A panic of the thread has been printed.
        let _ = self.thread.join();
    }
}

impl AsFd for JournalDesk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }
}

impl Daemon {
    /// Has rows of the core written; [`Daemon::journal_answered`] hears what became of it.
    pub(super) fn write_rows(&mut self, changes: Vec<Change>) {
        match &mut self.journal {
            Some(journal) => journal.write(changes, Purpose::Core),
            None => self.core.written(),
        }
    }

    /// As [`Daemon::write_rows`], of tokens and of nodes that are shut out.
    pub(super) fn write_tokens(&mut self, changes: Vec<Change>) {
        match self.journal.as_mut().filter(|_| !changes.is_empty()) {
            Some(journal) => journal.write(changes, Purpose::Tokens),
            None => self.tokens_written(Ok(())),
        }
    }

    /// What became of what was written.
    pub(super) fn journal_answered(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        let Ok(answers) = journal.done.take() else { return self.journal_broke() };
        let answers: Vec<_> = journal.under_way.drain(..answers.len()).zip(answers).collect();
        for answer in answers {
            self.was_written(answer);
        }
    }

    /// HEADS-3: waits for what is being written where too much depends on it, or nobody is served any more.
    /// Returns whether that is over.
    pub(super) fn await_journal(&mut self) -> bool {
        let Some(journal) = &mut self.journal else { return true };
        let Some(purpose) = journal.under_way.front().copied() else { return true };
        match journal.done.wait(WRITING_LIMIT) {
            Ok(result) => {
                journal.under_way.pop_front();
                self.was_written((purpose, result));
                return true;
            }
            Err(RecvTimeoutError::Timeout) => {
                self.log.line(&format!("nothing was written to the journal within {} s", WRITING_LIMIT.as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => self.journal_broke(),
        }
        false
    }

    /// What was done is told before the daemon ends, where that becomes safe in time.
    pub(super) fn finish_writing(&mut self) {
        while self.core.is_writing() && !matches!(self.ended, Ended::LostTurn) && self.await_journal() {
            self.settle();
        }
    }

    fn was_written(&mut self, (purpose, result): (Purpose, Result<(), Fault>)) {
        match (purpose, result) {
            (_, Err(fault @ Fault::Fenced { .. })) => self.lose_turn(&fault.to_string()),
            (Purpose::Core, Ok(())) => self.core.written(),
            (Purpose::Core, Err(fault)) => self.core.not_written(&fault.to_string()),
            (Purpose::Tokens, result) => self.tokens_written(result.map_err(|fault| fault.to_string())),
        }
    }

    fn journal_broke(&mut self) {
        self.lose_turn("the thread that writes the journal has ended, and what it wrote last is not known");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_journal::Rows;
    use std::sync::mpsc::Receiver;

    /// A disk that is done when a test says so.
    #[derive(Debug)]
    struct Slow(Receiver<Result<(), Fault>>, Rows);

    impl Store for Slow {
        fn commit(&mut self, _: &[Change]) -> Result<(), Fault> {
            self.0.recv().expect("the test goes on")
        }

        fn rows(&self) -> &Rows {
            &self.1
        }
    }

    fn heard(desk: &JournalDesk) -> Result<(), Fault> {
        desk.done.wait(Duration::from_secs(60)).expect("it is written")
    }

    #[test]
    fn whoever_has_rows_written_does_not_wait_for_the_disk() {
        let (disk, gate) = channel();
        let mut desk = JournalDesk::start(Box::new(Slow(gate, Rows::new()))).expect("a thread");
        desk.write(Vec::new(), Purpose::Core);
        desk.write(Vec::new(), Purpose::Tokens);
        assert!(matches!(desk.done.take(), Ok(answers) if answers.is_empty()), "HEADS-3");
        assert_eq!(desk.under_way, [Purpose::Core, Purpose::Tokens]);
        disk.send(Ok(())).expect("it waits");
        assert!(heard(&desk).is_ok());
        disk.send(Err(Fault::Fenced { store: "etcd".into() })).expect("it waits");
        assert!(matches!(heard(&desk), Err(Fault::Fenced { .. })), "in the order in which it was asked");
        desk.finish();
    }

    #[test]
    fn a_thread_that_ended_is_noticed() {
        let (disk, gate) = channel();
        let mut desk = JournalDesk::start(Box::new(Slow(gate, Rows::new()))).expect("a thread");
        drop(disk);
        desk.write(Vec::new(), Purpose::Core);
        assert!(matches!(desk.done.wait(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected)));
        assert!(desk.done.take().is_err(), "its bell rings for that");
    }
}
