//! Keeps the tables: follows the chronicle, asks how the cluster is, and tells who looks that something changed.

use super::rows::Row;
use super::tables::Tables;
use crate::daemon::Daemon;
use oxiray_visitor::{VisitError, json};
use oxiray_wire::message::{ChronicleFollow, ClusterQuery, StateQuery, StateReport};
use oxiray_wire::state::StateKind;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Mutex, Notify, watch};

/// How often the head is asked how the cluster is, while somebody looks.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// How often otherwise: for the points of series.
const IDLE_PERIOD: Duration = Duration::from_secs(5);
/// For how long somebody looks who asked once.
const ATTENTION: Duration = Duration::from_secs(10);
/// How long to wait where the head does not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// The most nodes that are told how their machines are.
const NODES_MAX: u32 = 10_000;
/// How many lists the head was asked for are remembered.
const LISTS_MAX: usize = 64;

/// A list that is collected from all processes is asked for again after so many times what its answer took, however often the page
/// asks: they have something else to do.
const SPARED: u32 = 60;
/// How old that lets such a list become.
const SPARED_AGE_MAX: Duration = Duration::from_secs(10);

/// A list of the head.
#[derive(Debug, Default)]
struct Remembered {
    /// Held by who asks for it.
    asking: Mutex<()>,
    /// When it was there, how long its answer took, and the answer.
    told: RefCell<Option<(Instant, Duration, Rc<StateReport>)>>,
}

/// How old a list of that kind may be of which so old a one is wanted, and whose answer took so long.
fn age_max(kind: StateKind, wanted: Duration, took: Duration) -> Duration {
    match kind {
        StateKind::Tasks | StateKind::Objects => wanted.max(took.saturating_mul(SPARED).min(SPARED_AGE_MAX)),
        _ => wanted,
    }
}

/// The page's tables, and who waits for them to change.
#[derive(Debug)]
pub(crate) struct Page {
    tables: RefCell<Tables>,
    changes: watch::Sender<u64>,
    looked_at: Cell<Option<Instant>>,
    watchers: Cell<usize>,
    is_wanted: Notify,
    lists: RefCell<BTreeMap<String, Rc<Remembered>>>,
    /// The jobs of the time before this program began, as history has them.
    past_jobs: RefCell<Vec<Row>>,
}

/// Somebody who looks for as long as this lives.
#[derive(Debug)]
pub(crate) struct Watching(Rc<Page>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watchers.set(self.0.watchers.get() - 1);
    }
}

impl Page {
    /// Tables without anything.
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            tables: RefCell::default(),
            changes: watch::Sender::new(0),
            looked_at: Cell::new(None),
            watchers: Cell::new(0),
            is_wanted: Notify::new(),
            lists: RefCell::default(),
            past_jobs: RefCell::default(),
        })
    }

    /// Begins with what history says of the time before.
    pub(crate) fn remember(&self, tables: Tables, jobs: Vec<Row>) {
        *self.tables.borrow_mut() = tables;
        *self.past_jobs.borrow_mut() = jobs;
    }

    /// The jobs of the time before, of which the head does not know any more.
    pub(crate) fn past_jobs(&self, known: &[Row]) -> Vec<Row> {
        let keys: BTreeSet<&str> = known.iter().map(|row| row.key.as_str()).collect();
        self.past_jobs.borrow().iter().filter(|row| !keys.contains(row.key.as_str())).cloned().collect()
    }

    /// Keeps the tables over a connection of its own, until the daemon is gone.
    ///
    /// # Errors
    /// Where the session cannot be entered, or was left.
    pub(crate) async fn keep(&self, session: &Path) -> anyhow::Result<std::convert::Infallible> {
        let daemon = Daemon::enter_reading(session)?;
        tokio::select! {
            error = daemon.hear() => Err(error),
            never = self.record(&daemon) => match never {},
            never = self.look(&daemon) => match never {},
        }
    }

    async fn record(&self, daemon: &Daemon) -> std::convert::Infallible {
        loop {
            let cursor = self.tables.borrow().cursor();
            match daemon.ask(ChronicleFollow { cursor, ..ChronicleFollow::default() }).await {
                Ok(batch) if json::check(batch.version).is_ok() => {
                    self.tables.borrow_mut().record(&batch, now_ms());
                    self.tell();
                }
                // Nothing happened for a while.
                Err(VisitError::NoAnswer(_)) => {}
                Ok(_) | Err(_) => {
                    self.tables.borrow_mut().stop_recording();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn look(&self, daemon: &Daemon) -> std::convert::Infallible {
        loop {
            if let Ok(state) = daemon.ask(ClusterQuery::default()).await.and_then(|report| Ok(json::cluster(report)?)) {
                if self.tables.borrow().has_point(now_ms()) {
                    self.measure(daemon).await;
                }
                self.tables.borrow_mut().look(state, now_ms());
                self.tell();
            }
            if self.is_looked_at() {
                tokio::time::sleep(LOOK_PERIOD).await;
            } else {
                tokio::select! {
                    () = tokio::time::sleep(IDLE_PERIOD) => {}
                    () = self.is_wanted.notified() => {}
                }
            }
        }
    }

    /// How the nodes' machines are.
    async fn measure(&self, daemon: &Daemon) {
        let asked = StateQuery { kind: StateKind::Nodes, limit: NODES_MAX, detail: true, ..StateQuery::default() };
        if let Ok(report) = daemon.ask(asked).await
            && json::check(report.version).is_ok()
        {
            let measured = report.tables.unwrap_or_default().measured;
            self.tables.borrow_mut().measured(measured, now_ms());
        }
    }

    fn tell(&self) {
        self.changes.send_replace(self.tables.borrow().sequence());
    }

    fn is_looked_at(&self) -> bool {
        self.watchers.get() > 0 || self.looked_at.get().is_some_and(|at| at.elapsed() < ATTENTION)
    }

    /// Reads the tables.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Tables) -> T) -> T {
        if !self.is_looked_at() {
            self.is_wanted.notify_one();
        }
        self.looked_at.set(Some(Instant::now()));
        read(&self.tables.borrow())
    }

    /// Counts somebody who looks, and says when something changes.
    pub(crate) fn watch(self: &Rc<Self>) -> (Watching, watch::Receiver<u64>) {
        self.watchers.set(self.watchers.get() + 1);
        self.is_wanted.notify_one();
        (Watching(Rc::clone(self)), self.changes.subscribe())
    }

    /// The list that the head told last where it was asked so, however old it is.
    pub(crate) fn kept(&self, asked: &StateQuery) -> Option<Rc<StateReport>> {
        let lists = self.lists.borrow();
        let told = lists.get(&format!("{asked:?}"))?.told.borrow();
        told.as_ref().map(|(.., report)| Rc::clone(report))
    }

    /// A list of the head that is no older than this, or than its answer is worth. Those who want the same at once ask once.
    ///
    /// # Errors
    /// Where the head does not answer.
    pub(crate) async fn list(
        &self,
        daemon: &Daemon,
        asked: StateQuery,
        age: Duration,
    ) -> Result<Rc<StateReport>, VisitError> {
        let name = format!("{asked:?}");
        let place = {
            let mut lists = self.lists.borrow_mut();
            if lists.len() >= LISTS_MAX {
                lists.retain(|_, place| Rc::strong_count(place) > 1);
            }
            Rc::clone(lists.entry(name).or_default())
        };
        let _asking = place.asking.lock().await;
        let is_new = |(at, took, _): &&(Instant, Duration, _)| at.elapsed() < age_max(asked.kind, age, *took);
        if let Some((_, _, report)) = place.told.borrow().as_ref().filter(is_new) {
            return Ok(Rc::clone(report));
        }
        let asked_at = Instant::now();
        let report = daemon.ask(asked).await?;
        json::check(report.version)?;
        let report = Rc::new(report);
        place.told.replace(Some((Instant::now(), asked_at.elapsed(), Rc::clone(&report))));
        Ok(report)
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_head_told_last_is_there_while_it_is_asked_again() {
        let page = Page::new();
        let asked = |limit| StateQuery { limit, ..StateQuery::default() };
        assert_eq!(page.kept(&asked(5)), None);
        let told = Rc::new(StateReport { total: 7, ..StateReport::default() });
        let place = Rc::new(Remembered::default());
        place.told.replace(Some((Instant::now(), Duration::ZERO, Rc::clone(&told))));
        page.lists.borrow_mut().insert(format!("{:?}", asked(5)), Rc::clone(&place));
        let _asking = place.asking.try_lock().expect("nobody else asks");
        assert_eq!((page.kept(&asked(5)), page.kept(&asked(6))), (Some(told), None));
    }

    #[test]
    fn a_list_that_costs_much_is_asked_for_less_often() {
        let age =
            |kind, took_ms| age_max(kind, Duration::from_millis(1_500), Duration::from_millis(took_ms)).as_millis();
        let of = |took_ms| age(StateKind::Tasks, took_ms);
        assert_eq!([0, 5, 25, 100, 500, 20_000].map(of), [1_500, 1_500, 1_500, 6_000, 10_000, 10_000]);
        assert_eq!(age(StateKind::Jobs, 500), 1_500, "the head knows them itself");
    }
}
