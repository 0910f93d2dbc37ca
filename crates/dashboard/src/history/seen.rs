//! Which rows stand in the files, so that only what changed is written (pure).

use super::line::{CLUSTER, HistoryLine, LineKind, has_ended};
use crate::page::rows::Row;
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// How many rows are remembered; of more, those that ended are forgotten first, and written again if they are told of again.
const ROWS_MAX: usize = 200_000;

/// A line, and the job whose file it belongs to.
pub(crate) type Filed = (String, HistoryLine);

/// A row that was written.
#[derive(Debug)]
struct Known {
    mark: u64,
    job: String,
    has_ended: bool,
}

/// The rows that were written, by their lists and keys.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeMap<(&'static str, String), Known>);

/// The job whose file a row belongs to.
fn job_of(list: &str, cells: &Map<String, Json>) -> String {
    let is_of_cluster = matches!(list, "nodes" | "devices" | "waiting" | "cluster");
    let job = cells.get("job_id").and_then(Json::as_str).filter(|_| !is_of_cluster);
    job.unwrap_or(CLUSTER).to_owned()
}

/// What of a row counts: how long something has waited is known without being told.
fn mark_of(cells: &Map<String, Json>) -> u64 {
    fn add(hasher: &mut DefaultHasher, value: &Json) {
        match value {
            Json::Object(cells) => {
                for (name, cell) in cells.iter().filter(|(name, _)| *name != "seconds") {
                    name.hash(hasher);
                    add(hasher, cell);
                }
            }
            Json::Array(cells) => {
                cells.len().hash(hasher);
                for cell in cells {
                    add(hasher, cell);
                }
            }
            other => other.to_string().hash(hasher),
        }
    }
    let mut hasher = DefaultHasher::new();
    for (name, cell) in cells {
        name.hash(&mut hasher);
        add(&mut hasher, cell);
    }
    hasher.finish()
}

impl Seen {
    /// A row is like that now. Returns the line, where that is news.
    pub(crate) fn row(&mut self, list: &'static str, row: Row, at_ms: u64) -> Option<Filed> {
        let (mark, job) = (mark_of(&row.cells), job_of(list, &row.cells));
        let has_ended = has_ended(list, &row.cells);
        let key = (list, row.key);
        if self.0.get(&key).is_some_and(|known| known.mark == mark && known.job == job) {
            return None;
        }
        if self.0.len() >= ROWS_MAX {
            self.0.retain(|_, known| !known.has_ended);
            if self.0.len() >= ROWS_MAX {
                self.0.clear();
            }
        }
        let line = HistoryLine {
            list: list.to_owned(),
            key: key.1.clone(),
            rank: row.rank,
            cells: Some(row.cells),
            ..HistoryLine::of(LineKind::Row, at_ms)
        };
        self.0.insert(key, Known { mark, job: job.clone(), has_ended });
        Some((job, line))
    }

    /// A row is there no more. Returns the line, where it had not ended: what ended is remembered as it was.
    pub(crate) fn gone(&mut self, list: &'static str, key: &str, at_ms: u64) -> Option<Filed> {
        let known = self.0.remove(&(list, key.to_owned()))?;
        let is_kept = known.has_ended || matches!(list, "jobs" | "tasks");
        let line = HistoryLine { list: list.to_owned(), key: key.to_owned(), ..HistoryLine::of(LineKind::Gone, at_ms) };
        (!is_kept).then_some((known.job, line))
    }

    /// These are all rows of a list. Returns the lines of what is news.
    pub(crate) fn whole(&mut self, list: &'static str, rows: Vec<Row>, at_ms: u64) -> Vec<Filed> {
        let there: BTreeSet<&str> = rows.iter().map(|row| row.key.as_str()).collect();
        let of_list = self.0.range((list, String::new())..).take_while(|((of, _), _)| *of == list);
        let missing: Vec<String> =
            of_list.map(|((_, key), _)| key).filter(|key| !there.contains(key.as_str())).cloned().collect();
        let mut lines: Vec<Filed> = missing.iter().filter_map(|key| self.gone(list, key, at_ms)).collect();
        lines.extend(rows.into_iter().filter_map(|row| self.row(list, row, at_ms)));
        lines
    }

    /// The rows of a job are to be written anew.
    pub(crate) fn forget(&mut self, job: &str) {
        // Jobs stand in the cluster's file, too.
        self.0.retain(|(list, _), known| known.job != job && (job != CLUSTER || *list != "jobs"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(key: &str, cells: Json) -> Row {
        Row::new(1, key, cells)
    }

    #[test]
    fn a_row_is_written_when_it_changes_and_into_its_jobs_file() {
        let mut seen = Seen::default();
        let told = seen.row("actors", row("a", json!({"job_id": "01", "state": "ALIVE"})), 5).expect("news");
        assert_eq!((told.0.as_str(), told.1.at_ms, told.1.kind), ("01", 5, LineKind::Row));
        assert!(seen.row("actors", row("a", json!({"job_id": "01", "state": "ALIVE"})), 6).is_none());
        assert!(seen.row("actors", row("a", json!({"job_id": "01", "state": "DEAD"})), 7).is_some());
        assert_eq!(seen.row("nodes", row("a", json!({"alive": true})), 7).expect("news").0, CLUSTER);
        let waits = |seconds: f64| row("all", json!({"rows": [{"name": "f", "seconds": seconds}]}));
        assert!(seen.row("waiting", waits(1.0), 8).is_some() && seen.row("waiting", waits(2.0), 9).is_none());
    }

    #[test]
    fn what_is_there_no_more_is_told_once_and_what_ended_stays() {
        let mut seen = Seen::default();
        let alive = |key| row(key, json!({"state": "ALIVE"}));
        seen.whole("actors", vec![alive("a"), alive("b"), row("c", json!({"state": "DEAD"}))], 1);
        let told = seen.whole("actors", vec![alive("b")], 2);
        assert_eq!(
            told.iter().map(|(_, line)| (line.kind, line.key.as_str())).collect::<Vec<_>>(),
            [(LineKind::Gone, "a")]
        );
        assert!(seen.whole("actors", vec![alive("b")], 3).is_empty());
        seen.row("tasks", row("t", json!({"state": "RUNNING"})), 4);
        assert!(seen.gone("tasks", "t", 5).is_none(), "that the head forgets a task is no news of it");
    }

    #[test]
    fn what_is_forgotten_is_written_anew() {
        let mut seen = Seen::default();
        let one = || row("a", json!({"job_id": "01", "state": "ALIVE"}));
        assert!(seen.row("actors", one(), 1).is_some());
        seen.forget("02");
        assert!(seen.row("actors", one(), 2).is_none());
        seen.forget("01");
        assert!(seen.row("actors", one(), 3).is_some());
    }
}
