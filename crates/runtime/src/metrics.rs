//! What this process counts and measures, kept here and told to the daemon in batches.
//!
//! - RECORD-1: a value recorded costs a place in a table, and no message of its own: what changed is told together, at
//!   most once every [`PERIOD`], and when the process leaves. One that is killed takes along its last [`PERIOD`], or
//!   [`SOON`] where it had recorded nothing for a while.
//! - RECORD-2: the table belongs to the process, not to a connection: what is recorded while there is none is told to
//!   the next daemon, and gauges to each.
//! - RECORD-3: the table has at most [`LINES_MAX`] lines, counted as the daemon counts them.
//! - RECORD-4: the table's lock is the innermost: nothing else is locked or called while it is held.

pub use oxiray_wire::message::MetricKind;
use oxiray_wire::message::{MetricSample, MetricTag};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a value may go untold.
const PERIOD: Duration = Duration::from_secs(1);
/// How long the first value after a pause waits for others.
const SOON: Duration = Duration::from_millis(50);
/// The most lines of all metrics of a process. A counter or gauge has one for each combination of tags, a histogram
/// one for each of its buckets and three more.
const LINES_MAX: usize = 10_000;
/// The most metrics of a process.
const METRICS_MAX: usize = 1000;
/// The most bytes of one combination of tags, and of a metric's name.
const TEXT_BYTES_MAX: usize = 1024;

static TABLE: Mutex<Table> = Mutex::new(Table { metrics: Vec::new(), lines: 0, has_changed: false });

/// Why a value is not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotKept {
    /// RECORD-3.
    #[error(
        "this process has {METRICS_MAX} metrics already, and `{0}` would be one more: use one metric with different tags"
    )]
    ManyMetrics(String),
    /// RECORD-3.
    #[error(
        "the metrics of this process have {LINES_MAX} lines already, one for each combination of tags or bucket, and \
         `{0}` has tags that would need more: use tags with few values"
    )]
    ManyTags(String),
    /// Its text is too long.
    #[error("the tags and the name of a metric have at most {TEXT_BYTES_MAX} bytes, and `{0}` has {1}: shorten them")]
    Long(String, usize),
    /// The name means something else.
    #[error("this process has a metric `{0}` already, of another kind or with other boundaries: use another name")]
    Taken(String),
}

/// A metric of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricIndex(usize);

#[derive(Debug)]
struct Metric {
    name: String,
    description: String,
    kind: MetricKind,
    boundaries: Vec<f64>,
    series: BTreeMap<Vec<(String, String)>, Series>,
}

#[derive(Debug, Default)]
struct Series {
    value: f64,
    counts: Vec<u64>,
    has_changed: bool,
}

#[derive(Debug)]
struct Table {
    metrics: Vec<Metric>,
    lines: usize,
    has_changed: bool,
}

impl Table {
    fn declare(
        &mut self,
        kind: MetricKind,
        name: &str,
        description: &str,
        mut boundaries: Vec<f64>,
    ) -> Result<MetricIndex, NotKept> {
        boundaries.retain(|end| end.is_finite());
        boundaries.sort_by(f64::total_cmp);
        boundaries.dedup();
        if let Some(at) = self.metrics.iter().position(|metric| metric.name == name) {
            let known = &self.metrics[at];
            let is_same = known.kind == kind && known.boundaries == boundaries;
            return if is_same { Ok(MetricIndex(at)) } else { Err(NotKept::Taken(name.into())) };
        }
        if name.len() > TEXT_BYTES_MAX {
            return Err(NotKept::Long(name.chars().take(100).collect(), name.len()));
        }
        if self.metrics.len() >= METRICS_MAX {
            return Err(NotKept::ManyMetrics(name.into()));
        }
        let ends = description.char_indices().map(|(at, one)| at + one.len_utf8());
        let end = ends.take_while(|end| *end <= TEXT_BYTES_MAX).last().unwrap_or(0);
        let (name, description) = (name.to_owned(), description[..end].to_owned());
        self.metrics.push(Metric { name, description, kind, boundaries, series: BTreeMap::new() });
        Ok(MetricIndex(self.metrics.len() - 1))
    }

    /// Says whether this is the first change since the table was told.
    fn record(&mut self, metric: MetricIndex, tags: Vec<(String, String)>, value: f64) -> Result<bool, NotKept> {
        let metric = &mut self.metrics[metric.0];
        if !metric.series.contains_key(&tags) {
            let bytes = tags.iter().map(|(key, value)| key.len() + value.len()).sum();
            if bytes > TEXT_BYTES_MAX {
                return Err(NotKept::Long(metric.name.clone(), bytes));
            }
            let lines = if metric.kind == MetricKind::Histogram { metric.boundaries.len() + 3 } else { 1 };
            if self.lines + lines > LINES_MAX {
                return Err(NotKept::ManyTags(metric.name.clone()));
            }
            self.lines += lines;
        }
        let series = metric.series.entry(tags).or_default();
        series.has_changed = true;
        match metric.kind {
            MetricKind::Gauge => series.value = value,
            MetricKind::Counter => series.value += value,
            MetricKind::Histogram => {
                series.value += value;
                series.counts.resize(metric.boundaries.len() + 1, 0);
                // What is not a number is in no bucket but the last.
                let bucket = metric.boundaries.iter().position(|end| value <= *end);
                series.counts[bucket.unwrap_or(metric.boundaries.len())] += 1;
            }
        }
        Ok(!std::mem::replace(&mut self.has_changed, true))
    }

    /// What nobody was told of.
    fn take(&mut self) -> Vec<MetricSample> {
        if !std::mem::take(&mut self.has_changed) {
            return Vec::new();
        }
        let mut samples = Vec::new();
        for metric in &mut self.metrics {
            for (tags, series) in &mut metric.series {
                if !std::mem::take(&mut series.has_changed) {
                    continue;
                }
                let tag = |(key, value): &(String, String)| MetricTag { key: key.clone(), value: value.clone() };
                samples.push(MetricSample {
                    name: metric.name.clone(),
                    description: metric.description.clone(),
                    kind: metric.kind,
                    boundaries: metric.boundaries.clone(),
                    tags: tags.iter().map(tag).collect(),
                    value: if metric.kind == MetricKind::Gauge {
                        series.value
                    } else {
                        std::mem::take(&mut series.value)
                    },
                    counts: std::mem::take(&mut series.counts),
                });
            }
        }
        samples
    }

    /// Gauges are to be told to a new daemon (RECORD-2).
    fn begin(&mut self) {
        for metric in self.metrics.iter_mut().filter(|metric| metric.kind == MetricKind::Gauge) {
            for series in metric.series.values_mut() {
                series.has_changed = true;
                self.has_changed = true;
            }
        }
    }
}

/// When the daemon is told.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    pub(crate) at: Option<Instant>,
    told: Option<Instant>,
}

impl Telling {
    /// The daemon was told of all there is.
    pub(crate) fn told(now: Instant) -> Self {
        Self { at: None, told: Some(now) }
    }

    /// Something is to be told.
    pub(crate) fn arm(&mut self, now: Instant) {
        let earliest = self.told.map_or(now, |told| told + PERIOD);
        self.at.get_or_insert(earliest.max(now + SOON));
    }
}

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A metric of this process; the same one where it was declared before. A histogram has the upper ends of its buckets.
pub fn declare_metric(
    kind: MetricKind,
    name: &str,
    description: &str,
    boundaries: Vec<f64>,
) -> Result<MetricIndex, NotKept> {
    table().declare(kind, name, description, boundaries)
}

/// Records a value. Where it says so, [`crate::Runtime::tell_metrics_soon`] is to be called if there is a runtime.
pub fn record_metric(metric: MetricIndex, tags: Vec<(String, String)>, value: f64) -> Result<bool, NotKept> {
    table().record(metric, tags, value)
}

/// Gauges are told once more to the next daemon. Returns whether there is something to be told.
pub(crate) fn begin_table() -> bool {
    let mut table = table();
    table.begin();
    table.has_changed
}

/// What nobody was told of.
pub(crate) fn take_samples() -> Vec<MetricSample> {
    table().take()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table { metrics: Vec::new(), lines: 0, has_changed: false }
    }

    fn told(table: &mut Table) -> Vec<(String, f64, Vec<u64>)> {
        table.take().into_iter().map(|sample| (sample.name, sample.value, sample.counts)).collect()
    }

    #[test]
    fn additions_are_told_once_and_gauges_again_to_the_next_daemon() {
        let mut table = table();
        let mut declare = |kind, name| table.declare(kind, name, "", Vec::new()).expect("there is room");
        let (count, depth) = (declare(MetricKind::Counter, "count"), declare(MetricKind::Gauge, "depth"));
        assert_eq!(declare(MetricKind::Counter, "count"), count);
        let seconds = table.declare(MetricKind::Histogram, "seconds", "", vec![2.0, 1.0, 2.0]).expect("there is room");
        let recorded = [(count, 1.0), (count, 2.0), (depth, 5.0), (depth, 4.0), (seconds, 1.0), (seconds, 9.0)];
        let firsts = recorded.map(|(metric, value)| table.record(metric, Vec::new(), value).expect("there is room"));
        assert_eq!(firsts, [true, false, false, false, false, false]);
        let depth = || ("depth".to_owned(), 4.0, Vec::new());
        let expected = [("count".to_owned(), 3.0, Vec::new()), depth(), ("seconds".to_owned(), 10.0, vec![1, 0, 1])];
        assert_eq!(told(&mut table), expected);
        assert_eq!(told(&mut table), []);
        table.begin();
        assert_eq!(told(&mut table), [depth()]);
    }

    #[test]
    fn the_first_value_after_a_pause_is_told_soon_and_those_after_it_together() {
        let start = Instant::now();
        let mut telling = Telling::default();
        telling.arm(start);
        telling.arm(start + PERIOD);
        assert_eq!(telling.at, Some(start + SOON));
        for (pause, expected) in [(SOON, PERIOD), (PERIOD * 2, PERIOD * 2 + SOON)] {
            let mut telling = Telling { at: None, told: Some(start) };
            telling.arm(start + pause);
            assert_eq!(telling.at, Some(start + expected));
        }
    }

    #[test]
    fn what_has_no_room_or_another_kind_is_refused() {
        let mut table = table();
        let metric = table.declare(MetricKind::Counter, "c", "", Vec::new()).expect("there is room");
        assert_eq!(table.declare(MetricKind::Gauge, "c", "", Vec::new()), Err(NotKept::Taken("c".into())));
        let tagged = |number: usize| vec![("n".to_owned(), number.to_string())];
        for number in 0..LINES_MAX {
            table.record(metric, tagged(number), 1.0).expect("there is room");
        }
        assert_eq!(table.record(metric, tagged(LINES_MAX), 1.0), Err(NotKept::ManyTags("c".into())));
        assert_eq!(table.record(metric, tagged(7), 1.0), Ok(false));
        let long = vec![("k".to_owned(), "v".repeat(TEXT_BYTES_MAX))];
        assert_eq!(table.record(metric, long, 1.0), Err(NotKept::Long("c".into(), TEXT_BYTES_MAX + 1)));
        for number in 1..METRICS_MAX {
            table.declare(MetricKind::Gauge, &format!("g{number}"), "", Vec::new()).expect("there is room");
        }
        let refused = table.declare(MetricKind::Gauge, "more", "", Vec::new());
        assert_eq!(refused, Err(NotKept::ManyMetrics("more".into())));
    }
}
