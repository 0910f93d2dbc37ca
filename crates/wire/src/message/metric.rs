//! What processes count and measure for their users, and how it is read.

use oxiray_fields::Fields;

/// client → daemon: what was recorded since the last message, at most about once a second.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct Metrics {
    /// One for each metric and combination of tags that changed.
    #[field(1)]
    pub samples: Vec<MetricSample>,
}

/// What was recorded of a metric under the same tags.
#[derive(Debug, Clone, PartialEq, Default, Fields)]
pub struct MetricSample {
    /// Its name, without prefix or suffix.
    #[field(1)]
    pub name: String,
    /// What it means.
    #[field(2)]
    pub description: String,
    /// How values come together.
    #[field(3)]
    pub kind: MetricKind,
    /// The upper ends of a histogram's buckets, ascending; the last bucket has none.
    #[field(4)]
    pub boundaries: Vec<f64>,
    /// Keys and values.
    #[field(5)]
    pub tags: Vec<MetricTag>,
    /// Counter and histogram: the sum of what was recorded since. Gauge: the value.
    #[field(6)]
    pub value: f64,
    /// Histogram: how many fell into each bucket since.
    #[field(7)]
    pub counts: Vec<u64>,
}

/// A tag of a metric.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Fields)]
pub struct MetricTag {
    /// Its key.
    #[field(1)]
    pub key: String,
    /// Its value.
    #[field(2)]
    pub value: String,
}

/// How values of a metric come together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum MetricKind {
    /// They are added up.
    Counter = 1,
    /// The last one counts, for each process.
    Gauge = 2,
    /// They are counted by size.
    Histogram = 3,
}

/// visitor → head: metrics, please. Answered by [`MetricsReport`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct MetricsQuery {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// Whether only those are wanted that the visitor's node exports, with the tags of the session: of itself and, where it
    /// is the head's, of the cluster. Otherwise all are told, those of machines for the visitor's node only.
    #[field(2)]
    pub is_export: bool,
    /// Whether the names of tasks and actors are left out, for fewer lines.
    #[field(3)]
    pub leaves_names_out: bool,
}

/// daemon → command line: the answer to a [`MetricsQuery`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct MetricsReport {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// Everything, in the text format of Prometheus.
    #[field(2)]
    pub text: String,
    /// What was refused, and why.
    #[field(3)]
    pub notes: Vec<String>,
}
