//! When tasks are asked for: while a job works and for a while after its end, at most one twentieth of the time that answers take.

use crate::daemon::Daemon;
use oxiray_visitor::json;
use oxiray_wire::message::{StateQuery, StateReport};
use oxiray_wire::state::StateKind;
use std::cell::Cell;
use std::convert::Infallible;
use std::time::{Duration, Instant};

/// For how long after the last job ended tasks are asked for.
pub(crate) const TAIL: Duration = Duration::from_secs(15);
/// How many tasks an answer has.
pub(crate) const TASKS_MAX: u32 = 10_000;
/// How often they are asked for, at most; and how often in the time that an answer takes.
const PERIOD: Duration = Duration::from_secs(2);
const SHARE: u32 = 20;
/// How long to wait where there is no answer.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct TaskQuestions {
    last_work: Cell<Option<Instant>>,
    /// When what was answered last was asked.
    last_asked: Cell<Option<Instant>>,
}

impl TaskQuestions {
    /// A job works, or has ended just now.
    pub(crate) fn note_work(&self) {
        self.last_work.set(Some(Instant::now()));
    }

    /// Asks over and over, and hands each answer on.
    pub(crate) async fn ask(&self, daemon: &Daemon, mut told: impl FnMut(StateReport)) -> Infallible {
        loop {
            let began = Instant::now();
            if self.is_due(began) {
                let asked =
                    StateQuery { kind: StateKind::Tasks, limit: TASKS_MAX, detail: true, ..StateQuery::default() };
                match daemon.ask(asked).await {
                    Ok(report) if json::check(report.version).is_ok() => {
                        self.last_asked.set(Some(began));
                        told(report);
                    }
                    Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
            tokio::time::sleep(PERIOD.max(began.elapsed() * SHARE)).await;
        }
    }

    /// Where answers come late, the last one may have been asked for before the work had ended: then it is due however late it is.
    fn is_due(&self, now: Instant) -> bool {
        let is_newer = |work| self.last_asked.get().is_none_or(|asked| asked < work);
        self.last_work.get().is_some_and(|work| now.saturating_duration_since(work) < TAIL || is_newer(work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_asked_for_until_an_answer_tells_of_the_end() {
        let questions = TaskQuestions::default();
        let now = Instant::now();
        assert!(!questions.is_due(now), "nothing works");
        questions.note_work();
        assert!(questions.is_due(now + TAIL * 2), "nobody has asked since");
        questions.last_asked.set(Some(Instant::now()));
        assert!(questions.is_due(now + TAIL / 2) && !questions.is_due(now + TAIL * 2));
    }
}
