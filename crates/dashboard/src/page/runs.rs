//! Training runs and what they reported, from the chronicle's entries (pure).
//!
//! - RUNS-1: there are at most [`RUNS_MAX`] runs, and [`NUMBERS_MAX`] numbers of each; the run that reported longest ago goes for
//!   another. Points are bounded as those of all series are.

use super::rows::Row;
use super::series::{Point, Series};
use oxiray_wire::state::{ChronicleEntry, ChronicleEvent};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

/// How many runs are kept.
const RUNS_MAX: usize = 256;
/// How many numbers a run has.
const NUMBERS_MAX: usize = 16;
/// The number that counts reports, and the number of the last report whose checkpoint is kept.
const REPORTS: &str = "report";
const CHECKPOINT: &str = "(checkpoint)";

/// A run.
#[derive(Debug, Default)]
struct TrainRun {
    name: String,
    job: Option<String>,
    started_ms: u64,
    reported_ms: u64,
    last: BTreeMap<String, f64>,
}

/// The runs.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: BTreeMap<String, TrainRun>,
    points: Series<(String, String)>,
}

/// The numbers of an entry's text.
fn numbers(text: &str) -> impl Iterator<Item = (&str, f64)> {
    let pairs = text.split(',').filter_map(|pair| pair.rsplit_once('='));
    pairs.filter_map(|(name, number)| Some((name, number.parse().ok().filter(|number: &f64| number.is_finite())?)))
}

/// Whether a run reports it itself.
fn is_own(name: &str) -> bool {
    name != REPORTS && name != CHECKPOINT
}

impl Runs {
    /// Takes an entry in.
    pub(crate) fn apply(&mut self, entry: &ChronicleEntry) {
        if entry.event != ChronicleEvent::TrainReported {
            return;
        }
        let job = entry.job.map(|job| job.to_string());
        let key = format!("{}:{}", job.as_deref().unwrap_or_default(), entry.name);
        if self.runs.len() >= RUNS_MAX && !self.runs.contains_key(&key) {
            let oldest = self.runs.iter().min_by_key(|(_, run)| run.reported_ms).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.runs.remove(&oldest);
                self.points.retain(|(run, _)| *run != oldest);
            }
        }
        let run = self.runs.entry(key.clone()).or_insert_with(|| TrainRun {
            name: entry.name.clone(),
            job,
            started_ms: entry.at_ms,
            ..TrainRun::default()
        });
        run.reported_ms = entry.at_ms;
        for (name, number) in numbers(&entry.text) {
            if run.last.len() >= NUMBERS_MAX && !run.last.contains_key(name) {
                continue;
            }
            run.last.insert(name.to_owned(), number);
            self.points.push(&(key.clone(), name.to_owned()), (entry.at_ms, Some(number as f32), None), u64::MAX);
        }
    }

    /// The runs as rows, those that reported last first.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let row = |(key, run): (&String, &TrainRun)| {
            let numbers = run.last.iter().filter(|(name, _)| is_own(name));
            let numbers: Map<String, Json> = numbers.map(|(name, number)| (name.clone(), (*number).into())).collect();
            let cells = json!({
                "name": run.name, "job_id": run.job, "started_ms": run.started_ms, "reported_ms": run.reported_ms,
                "reports": run.last.get(REPORTS), "checkpoint": run.last.get(CHECKPOINT), "numbers": numbers,
            });
            Row::new(run.reported_ms, key.clone(), cells)
        };
        self.runs.iter().map(row).collect()
    }

    /// The numbers of a run over time, by their names.
    pub(crate) fn lines(&self, key: &str) -> impl Iterator<Item = (String, Vec<Point>)> {
        let names = self.runs.get(key).into_iter().flat_map(|run| run.last.keys()).filter(|name| is_own(name));
        names.map(move |name| (name.clone(), self.points_of(key, name).collect()))
    }

    /// When how many reports there were.
    pub(crate) fn reports(&self, key: &str) -> impl Iterator<Item = Point> {
        self.points_of(key, REPORTS)
    }

    /// When which report's checkpoint was kept.
    pub(crate) fn checkpoints(&self, key: &str) -> impl Iterator<Item = Point> {
        self.points_of(key, CHECKPOINT)
    }

    fn points_of(&self, key: &str, name: &str) -> impl Iterator<Item = Point> + use<> {
        self.points.of(&(key.to_owned(), name.to_owned())).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::JobId;

    fn entry(at_ms: u64, run: &str, text: &str) -> ChronicleEntry {
        let (name, text, job) = (run.to_owned(), text.to_owned(), Some(JobId::new([1, 0, 0, 0])));
        ChronicleEntry { at_ms, event: ChronicleEvent::TrainReported, name, text, job, ..ChronicleEntry::default() }
    }

    #[test]
    fn a_run_has_its_last_numbers_and_a_line_of_each() {
        let mut runs = Runs::default();
        runs.apply(&entry(1_000, "a", "report=0,loss=2.5,note=x"));
        runs.apply(&entry(6_000, "a", "report=9,loss=0.5,(checkpoint)=7"));
        runs.apply(&entry(3_000, "b", "accuracy=0.9"));
        let rows = runs.rows();
        assert_eq!(rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["01000000:a", "01000000:b"]);
        assert_eq!((&rows[0].cells["reports"], &rows[0].cells["numbers"]), (&json!(9.0), &json!({"loss": 0.5})));
        let lines: Vec<_> = runs.lines("01000000:a").collect();
        assert_eq!(lines, [("loss".to_owned(), vec![(1_000, Some(2.5), None), (6_000, Some(0.5), None)])]);
        assert_eq!((&rows[0].cells["checkpoint"], &rows[1].cells["checkpoint"]), (&json!(7.0), &Json::Null));
        let at =
            |points: &mut dyn Iterator<Item = Point>| -> Vec<_> { points.map(|point| (point.0, point.1)).collect() };
        assert_eq!(at(&mut runs.reports("01000000:a")), [(1_000, Some(0.0)), (6_000, Some(9.0))]);
        assert_eq!(at(&mut runs.checkpoints("01000000:a")), [(6_000, Some(7.0))]);
        assert_eq!(runs.lines("none").count(), 0);
    }

    #[test]
    fn there_is_an_end_to_runs_and_their_numbers() {
        let mut runs = Runs::default();
        for number in 0..RUNS_MAX as u64 + 5 {
            runs.apply(&entry(number + 1, &format!("run {number}"), "loss=1"));
        }
        for number in 0..100 {
            runs.apply(&entry(9_000, "run 200", &format!("n{number}=1")));
        }
        assert_eq!((runs.rows().len(), runs.lines("01000000:run 0").count()), (RUNS_MAX, 0));
        assert_eq!(runs.lines("01000000:run 200").count(), NUMBERS_MAX);
    }
}
