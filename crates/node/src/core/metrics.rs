//! What processes count and measure: taken in, and shown.

use super::{Core, Key};
use oxiray_head::{MetricKind as Kind, Sample};
use oxiray_wire::message::{MetricKind, MetricSample, Metrics, MetricsReport};

impl Core {
    /// A process tells what it recorded.
    pub(crate) fn metrics_told(&mut self, from: Key, told: Metrics) {
        let Some(by) = self.clients.get(&from).map(|client| client.id) else { return };
        for sample in told.samples.into_iter().filter_map(sample_of) {
            if let Err(reason) = self.metrics.record(by, sample) {
                self.log(format!("metric {reason}"));
            }
        }
    }

    /// Somebody asks for all metrics.
    pub fn metrics_query(&mut self, asker: Key, request: u64) {
        let report = MetricsReport { request, text: self.metrics.text(), notes: self.metrics.notes().collect() };
        self.send(asker, report);
    }
}

/// `None` for a kind that only newer builds know.
fn sample_of(told: MetricSample) -> Option<Sample> {
    let kind = match told.kind() {
        MetricKind::Counter => Kind::Counter,
        MetricKind::Gauge => Kind::Gauge,
        MetricKind::Histogram => Kind::Histogram,
        MetricKind::Unknown => return None,
    };
    let tags = told.tags.into_iter().map(|tag| (tag.key, tag.value)).collect();
    let MetricSample { name, description, boundaries, value, counts, .. } = told;
    Some(Sample { name, description, kind, boundaries, tags, value, counts })
}
