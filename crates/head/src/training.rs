//! What training runs report, as entries of the chronicle (pure).
//!
//! The process that controls a run measures each number that it reports as a gauge of its own name, [`REPORTED`], with the run
//! and the number's name as tags. What one message brings of a run becomes one entry, and there are
//! at most [`ENTRIES_MAX`] of a run in [`WINDOW_MS`]: processes tell once a second, and once more when they leave.

use oxiray_wire::message::{MetricKind, MetricSample};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The name of the gauge.
pub(crate) const REPORTED: &str = "train_report";
/// Its tags.
const RUN: &str = "RunName";
const NUMBER: &str = "Metric";
/// How many entries of a run there are in that many milliseconds.
const ENTRIES_MAX: u32 = 12;
const WINDOW_MS: u64 = 10_000;
/// How many runs are told apart; the one that was counted first is forgotten for another.
const RUNS_MAX: usize = 256;
/// How many runs of one message become entries.
const RUNS_OF_MESSAGE_MAX: usize = 8;
/// How many numbers an entry has.
const NUMBERS_MAX: usize = 16;
/// The longest name of a run and of a number, in characters.
const RUN_NAME_MAX: usize = 100;
const NUMBER_NAME_MAX: usize = 32;
/// The most bytes of an entry's text: the chronicle cuts longer ones.
const TEXT_BYTES_MAX: usize = 390;

/// For each run, when it began to be counted, and how many entries there were since.
#[derive(Debug, Default)]
pub(crate) struct Training(BTreeMap<String, (u64, u32)>);

impl Training {
    /// The runs that reported something by these samples, each with the text of its entry.
    pub(crate) fn reported(&mut self, samples: &[MetricSample], now_ms: u64) -> Vec<(String, String)> {
        let mut runs: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample.name == REPORTED && sample.kind == MetricKind::Gauge) {
            let tag = |key: &str| sample.tags.iter().find(|tag| tag.key == key).map(|tag| tag.value.as_str());
            let (Some(run), Some(number)) = (tag(RUN), tag(NUMBER)) else { continue };
            let run: String = run.chars().take(RUN_NAME_MAX).collect();
            if sample.value.is_finite() && (runs.len() < RUNS_OF_MESSAGE_MAX || runs.contains_key(&run)) {
                runs.entry(run).or_default().push((plain(number), sample.value));
            }
        }
        runs.retain(|run, _| self.is_due(run, now_ms));
        runs.into_iter().map(|(run, numbers)| (run, text(&numbers))).collect()
    }

    fn is_due(&mut self, run: &str, now_ms: u64) -> bool {
        if self.0.len() >= RUNS_MAX && !self.0.contains_key(run) {
            let oldest = self.0.iter().min_by_key(|(_, counted)| counted.0).map(|(run, _)| run.clone());
            oldest.map(|run| self.0.remove(&run));
        }
        let (since, count) = self.0.entry(run.to_owned()).or_insert((now_ms, 0));
        if now_ms >= since.saturating_add(WINDOW_MS) {
            (*since, *count) = (now_ms, 0);
        }
        *count = count.saturating_add(1);
        *count <= ENTRIES_MAX
    }
}

/// A name without what separates numbers.
fn plain(name: &str) -> String {
    let is_separator = |letter: char| letter == ',' || letter == '=' || letter.is_control();
    name.chars().take(NUMBER_NAME_MAX).map(|letter| if is_separator(letter) { '_' } else { letter }).collect()
}

/// Numbers by their names, as many as have room.
fn text(numbers: &[(String, f64)]) -> String {
    let mut text = String::new();
    for (name, number) in numbers.iter().take(NUMBERS_MAX) {
        let before = text.len();
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}={number}");
        if text.len() > TEXT_BYTES_MAX {
            text.truncate(before);
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::message::MetricTag;

    fn sample(run: &str, number: &str, value: f64) -> MetricSample {
        let tag = |key: &str, value: &str| MetricTag { key: key.into(), value: value.into() };
        MetricSample {
            name: REPORTED.into(),
            kind: MetricKind::Gauge,
            tags: vec![tag(RUN, run), tag(NUMBER, number)],
            value,
            ..MetricSample::default()
        }
    }

    #[test]
    fn what_a_message_brings_of_a_run_is_one_entry() {
        let mut training = Training::default();
        let other = MetricSample { name: "mine".into(), ..sample("a", "loss", 1.0) };
        let samples = [
            sample("a", "loss", 0.5),
            other,
            sample("b", "x", 2.0),
            sample("a", "lr,=", 1e-9),
            sample("a", "no", f64::NAN),
        ];
        let told = training.reported(&samples, 1_000);
        assert_eq!(told, [("a".into(), "loss=0.5,lr__=0.000000001".into()), ("b".into(), "x=2".into())]);
        let told = |training: &mut Training, now_ms| training.reported(&samples, now_ms).len();
        let often: usize = (1..500).map(|more| told(&mut training, 1_000 + more)).sum();
        assert_eq!(often, 2 * (ENTRIES_MAX as usize - 1));
        assert_eq!(told(&mut training, 1_000 + WINDOW_MS), 2);
    }

    #[test]
    fn there_is_an_end_to_what_is_told_and_kept() {
        let mut training = Training::default();
        let many: Vec<MetricSample> = (0..500).map(|n| sample(&format!("run {n}"), "loss", 1.0)).collect();
        assert_eq!(training.reported(&many, 1).len(), RUNS_OF_MESSAGE_MAX);
        let long: Vec<MetricSample> =
            (0..500).map(|n| sample("r", &format!("{n} {}", "ä".repeat(99)), f64::MIN_POSITIVE)).collect();
        let told = training.reported(&long, 2);
        assert!(told[0].1.len() <= TEXT_BYTES_MAX && !told[0].1.is_empty());
        for number in 0..1_000_u64 {
            training.reported(&[sample(&format!("{number}"), "loss", 1.0)], 3 + number);
        }
        assert_eq!(training.0.len(), RUNS_MAX);
    }
}
