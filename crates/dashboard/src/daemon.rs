//! The daemon, asked by many at once over one connection.

use anyhow::Context as _;
use oxiray_visitor::{Question, VisitError, Visitor, number_of, session};
use oxiray_wire::Message;
use oxiray_wire::message::DaemonToVisitor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, oneshot};

/// How long the daemon may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// The connection to the daemon.
#[derive(Debug, Clone)]
pub(crate) struct Daemon(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    visitor: RefCell<Visitor>,
    waiting: RefCell<BTreeMap<u64, oneshot::Sender<DaemonToVisitor>>>,
    /// Something is to be sent.
    is_asked: Notify,
}

/// Takes a question off the list of those that wait, whatever becomes of it.
struct Waits<'daemon>(&'daemon Shared, u64);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.borrow_mut().remove(&self.1);
    }
}

impl Daemon {
    /// Enters the session with this directory.
    pub(crate) fn enter(directory: &Path) -> anyhow::Result<Self> {
        Self::enter_with(directory, Visitor::greet)
    }

    /// The same for who only reads: orders that it gives all the same are refused.
    pub(crate) fn enter_reading(directory: &Path) -> anyhow::Result<Self> {
        Self::enter_with(directory, Visitor::greet_reading)
    }

    fn enter_with(
        directory: &Path,
        greet: impl FnOnce(OwnedFd, String) -> Result<Visitor, VisitError>,
    ) -> anyhow::Result<Self> {
        let description = session::Description::read(directory)
            .with_context(|| format!("{} is no directory of a session", directory.display()))?;
        let stream = session::connect(directory)?;
        let visitor = RefCell::new(greet(stream.into(), description.token)?);
        Ok(Self(Rc::new(Shared { visitor, waiting: RefCell::default(), is_asked: Notify::new() })))
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask<Q: Question>(&self, question: Q) -> Result<Q::Answer, VisitError> {
        self.ask_within(ANSWER_LIMIT, question).await
    }

    /// Asks, and waits for the answer no longer than this.
    pub(crate) async fn ask_within<Q: Question>(
        &self,
        limit: Duration,
        mut question: Q,
    ) -> Result<Q::Answer, VisitError> {
        let (sender, answer) = oneshot::channel();
        let number = self.0.visitor.borrow_mut().new_number();
        question.set_number(number);
        self.0.waiting.borrow_mut().insert(number, sender);
        let _waits = Waits(&self.0, number);
        let message: Message = question.into();
        self.0.visitor.borrow_mut().send(message)?;
        self.0.is_asked.notify_one();
        let Ok(Ok(told)) = tokio::time::timeout(limit, answer).await else {
            return Err(VisitError::NoAnswer(limit));
        };
        match told {
            // In place of an answer that no frame can carry.
            DaemonToVisitor::StoreRefused(said) => Err(VisitError::Failed(said.failure.unwrap_or_default())),
            other => match Q::answer(other) {
                Some((_, told)) => told.map_err(VisitError::Failed),
                None => Err(VisitError::NoAnswer(limit)),
            },
        }
    }

    /// Hears what the daemon says, until it says nothing more.
    pub(crate) async fn hear(&self) -> anyhow::Error {
        match self.hear_on().await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn hear_on(&self) -> anyhow::Result<std::convert::Infallible> {
        let descriptor: OwnedFd = rustix::io::dup(self.0.visitor.borrow().as_fd())?;
        // SAFETY: an `OwnedFd` is one descriptor for as long as it lives.
        let socket = unsafe { AsyncFd::register(descriptor) }?;
        loop {
            let is_sent = self.0.visitor.borrow_mut().flush()?;
            let mut readable = tokio::select! {
                readable = socket.readable() => readable?,
                writable = socket.writable(), if !is_sent => {
                    writable?.clear_ready();
                    continue;
                }
                () = self.0.is_asked.notified() => continue,
            };
            let (messages, result) = self.0.visitor.borrow_mut().hear();
            // It is heard for a moment at a time.
            if !has_more(socket.get_ref()) {
                readable.clear_ready();
            }
            for message in messages {
                if let DaemonToVisitor::Refused(said) = message {
                    return Err(VisitError::Refused(said.text).into());
                }
                let asker = number_of(&message).and_then(|number| self.0.waiting.borrow_mut().remove(&number));
                // Whoever asked may be gone.
                let _ = asker.map(|asker| asker.send(message));
            }
            result?;
        }
    }
}

fn has_more(socket: &OwnedFd) -> bool {
    let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&nothing)).is_ok_and(|ready| ready > 0)
}
