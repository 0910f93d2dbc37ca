//! The head's journal: opened, gone on with, written to by a thread.
//!
//! - HEADS-1: every start of a head raises the epoch of its cluster, and this is safe before it serves anyone.
//! - HEADS-3: while rows are written, which a disk or etcd may take long for, everybody is heard, and is told what does not
//!   depend on them. Nobody is heard where too much has come to depend on them. The end of the daemon waits for them.

use crate::config::Config;
use crate::session::Session;
use crate::standby;
use crate::start_error::StartError;
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
pub(crate) const WRITING_LIMIT: Duration = Duration::from_secs(30);

/// The row of [`Identity`].
const IDENTITY: &[u8] = b"identity";
/// The row of the epoch: 8 bytes, the lowest first.
const EPOCH: &[u8] = b"epoch";

/// What a cluster is known by.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Identity {
    /// What lets a client of the head's machine in.
    #[prost(string, tag = "1")]
    pub(crate) token: String,
    /// The port that its address ends with.
    #[prost(uint32, tag = "2")]
    pub(crate) port: u32,
    /// Where the head listens for other machines, as `IP:PORT`; empty where it does not.
    #[prost(string, tag = "3")]
    pub(crate) listens: String,
    #[prost(bytes = "bytes", tag = "4")]
    authority_certificate: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    authority_key: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    join_secret: Bytes,
}

/// A journal that is open, and which head of the cluster this is.
#[derive(Debug)]
pub(crate) struct OpenJournal {
    pub(crate) store: Box<dyn Store>,
    /// HEADS-1.
    pub(crate) epoch: u64,
    /// What the cluster is known by, where there was one.
    pub(crate) identity: Option<Identity>,
    /// What its user should know.
    pub(crate) warning: Option<String>,
}

/// What was cut off the journal's end.
fn told_of(opened: &Opened) -> String {
    let dropped = format!("the last {} bytes of the journal were dropped", opened.torn);
    match &opened.kept {
        None => format!("{dropped}: writing them was cut short, so nobody was answered"),
        Some(kept) => format!(
            "{dropped}, which are no part of it: the machine stopped while they were written, so that nobody was told, or \
             something else wrote them. They are kept in {}",
            kept.display()
        ),
    }
}

impl OpenJournal {
    /// Opens the journal, and makes it a new one where there is none.
    pub(crate) fn open(config: &Config, session: &Session, stop: &OwnedFd) -> Result<Self, StartError> {
        let mut warning = None;
        let store: Box<dyn Store> = if let Some(store) = &config.head.store {
            standby::claim(config, store, session, stop)?
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
    pub(crate) fn authority(&self) -> Result<Option<Authority>, AuthorityError> {
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
    pub(crate) fn begin(
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
pub(crate) enum Purpose {
    Core,
    Tokens,
}

/// What became of rows that were written, and whose they are.
pub(crate) type Written = (Purpose, Result<(), Fault>);

/// The journal of a head that serves: a thread writes it (HEADS-3).
#[derive(Debug)]
pub(crate) struct JournalClient {
    work: Sender<Work>,
    done: Mailbox<Result<(), Fault>>,
    /// Whose rows are being written, in this order.
    under_way: VecDeque<Purpose>,
    tenure: Option<Tenure>,
    thread: JoinHandle<()>,
}

impl JournalClient {
    pub(crate) fn start(mut store: Box<dyn Store>) -> io::Result<Self> {
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

    /// Has rows written; what became of them is among the answers.
    pub(crate) fn write(&mut self, changes: Vec<Change>, purpose: Purpose) {
        self.under_way.push_back(purpose);
        // Where the thread has ended, that is what is heard next.
        let _ = self.work.send(Work::Commit(changes));
    }

    /// What became of what was written, and for whom. Nothing where the thread has ended.
    pub(crate) fn answers(&mut self) -> Option<Vec<Written>> {
        let answers = self.done.take().ok()?;
        Some(self.under_way.drain(..answers.len()).zip(answers).collect())
    }

    /// Waits for what is being written; nothing where that is nothing.
    pub(crate) fn wait(&mut self) -> Option<Result<Written, RecvTimeoutError>> {
        let purpose = self.under_way.front().copied()?;
        let waited = self.done.wait(WRITING_LIMIT);
        if waited.is_ok() {
            self.under_way.pop_front();
        }
        Some(waited.map(|result| (purpose, result)))
    }

    /// Until when this process is sure to be the head, as time since the machine was started; nothing where that has no end.
    pub(crate) fn held_until(&self) -> Option<Duration> {
        self.tenure.as_ref().map(Tenure::until)
    }

    /// The cluster ends for good, and so does what is kept of it.
    pub(crate) fn finish(self) {
        let _ = self.work.send(Work::Finish);
        drop(self.work);
        // A panic of the thread has been printed.
        let _ = self.thread.join();
    }
}

impl AsFd for JournalClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
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

    fn heard(desk: &JournalClient) -> Result<(), Fault> {
        desk.done.wait(Duration::from_secs(60)).expect("it is written")
    }

    #[test]
    fn whoever_has_rows_written_does_not_wait_for_the_disk() {
        let (disk, gate) = channel();
        let mut desk = JournalClient::start(Box::new(Slow(gate, Rows::new()))).expect("a thread");
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
        let mut desk = JournalClient::start(Box::new(Slow(gate, Rows::new()))).expect("a thread");
        drop(disk);
        desk.write(Vec::new(), Purpose::Core);
        assert!(matches!(desk.done.wait(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected)));
        assert!(desk.done.take().is_err(), "its bell rings for that");
    }
}
