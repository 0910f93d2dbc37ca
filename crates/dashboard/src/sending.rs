//! What is sent to a collector of others: in batches, over plain HTTP, as JSON.
//!
//! - SENDING-1: what waits for a collector is bounded, and what had no room is counted and told of.
//! - SENDING-2: a collector that does not answer is asked again, ever later; what it refuses is not sent again.

mod collector;

pub(crate) use collector::{Collector, Sent, check_url, judged};

use crate::log::say;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long to wait where something does not work, doubled each time up to the last.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How much of something waits, and how much of it a request has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendingBounds {
    /// How many may wait.
    pub(crate) waiting: usize,
    /// How many one request has.
    pub(crate) batch: usize,
}

/// What waits, in the order in which it came, with its numbers.
#[derive(Debug)]
struct Waiting<T> {
    items: VecDeque<(u64, T)>,
    next: u64,
    lost: u64,
}

/// A queue, and the collector at its end.
#[derive(Debug)]
pub(crate) struct Sending<T> {
    /// What people call what is sent, and what is counted of it.
    name: &'static str,
    unit: &'static str,
    collector: Arc<Collector>,
    bounds: SendingBounds,
    waiting: RefCell<Waiting<T>>,
    is_news: Notify,
}

impl<T: Clone> Sending<T> {
    pub(crate) fn new((name, unit): (&'static str, &'static str), collector: Collector, bounds: SendingBounds) -> Self {
        let waiting = RefCell::new(Waiting { items: VecDeque::new(), next: 0, lost: 0 });
        let (collector, is_news) = (Arc::new(collector), Notify::new());
        Self { name, unit, collector, bounds, waiting, is_news }
    }

    /// More is to be sent. Where there is no room, that which waited longest makes some (SENDING-1).
    pub(crate) fn add(&self, items: impl IntoIterator<Item = T>) {
        let mut waiting = self.waiting.borrow_mut();
        for item in items {
            if waiting.items.len() >= self.bounds.waiting {
                waiting.items.pop_front();
                waiting.lost += 1;
            }
            let number = waiting.next;
            waiting.next += 1;
            waiting.items.push_back((number, item));
        }
        drop(waiting);
        self.is_news.notify_one();
    }

    /// Sends what comes, for good; `body` makes a request of a batch.
    pub(crate) async fn send_on(&self, body: impl Fn(&[T]) -> String) -> Infallible {
        let (mut said, mut pause) = (String::new(), PAUSE);
        loop {
            let trouble = self.send_all(&body).await;
            let lost = std::mem::take(&mut self.waiting.borrow_mut().lost);
            if lost > 0 {
                say(&format!("{lost} {} had no room while the collector did not answer, and are left out", self.unit));
            }
            if let Some(trouble) = trouble {
                if trouble != said {
                    say(&format!("{} cannot be sent: {trouble}; what has room is sent later", self.name));
                }
                said = trouble;
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
                continue;
            }
            if !said.is_empty() {
                say(&format!("{} are sent again", self.name));
            }
            (said, pause) = (String::new(), PAUSE);
            self.is_news.notified().await;
        }
    }

    /// Sends what waits. Returns why that did not work, where it did not.
    pub(crate) async fn send_all(&self, body: impl Fn(&[T]) -> String) -> Option<String> {
        loop {
            let (last, batch) = self.batch()?;
            let (collector, body) = (Arc::clone(&self.collector), body(&batch));
            let sent = tokio::task::spawn_blocking(move || collector.send(&body)).await;
            match sent.unwrap_or_else(|error| Sent::Later(error.to_string())) {
                Sent::Taken(None) => {}
                Sent::Taken(Some(said)) | Sent::Refused(said) => {
                    say(&format!("the collector leaves {} out: {said}", self.name));
                }
                Sent::Later(trouble) => return Some(trouble),
            }
            self.forget(last);
        }
    }

    /// What is sent next, with the number of the last of it; nothing where nothing waits.
    fn batch(&self) -> Option<(u64, Vec<T>)> {
        let waiting = self.waiting.borrow();
        let batch: Vec<&(u64, T)> = waiting.items.iter().take(self.bounds.batch).collect();
        Some((batch.last()?.0, batch.into_iter().map(|(_, item)| item.clone()).collect()))
    }

    /// What has numbers up to this was sent. Some of it may have had to make room meanwhile.
    fn forget(&self, last: u64) {
        let items = &mut self.waiting.borrow_mut().items;
        while items.front().is_some_and(|(number, _)| *number <= last) {
            items.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_and_is_sent_in_batches() {
        let collector = Collector::new("http://127.0.0.1:1/".to_owned(), "", judged).expect("one");
        let sending = Sending::new(("numbers", "numbers"), collector, SendingBounds { waiting: 5, batch: 3 });
        assert_eq!(sending.batch(), None);
        sending.add(0..7);
        assert_eq!(sending.waiting.borrow().lost, 2, "SENDING-1");
        let (last, batch) = sending.batch().expect("some");
        assert_eq!(batch, [2, 3, 4]);
        // While those are sent, others come, and the first two of them make room.
        sending.add(7..9);
        sending.forget(last);
        assert_eq!(sending.batch().expect("some").1, [5, 6, 7]);
        assert_eq!(sending.waiting.borrow().lost, 4);
    }
}
