//! What processes count and measure for their users, and how it is read.

/// client → daemon: what was recorded since the last message, at most about once a second.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Metrics {
    /// One for each metric and combination of tags that changed.
    #[prost(message, repeated, tag = "1")]
    pub samples: Vec<MetricSample>,
}

/// What was recorded of a metric under the same tags.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MetricSample {
    /// Its name, without prefix or suffix.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What it means.
    #[prost(string, tag = "2")]
    pub description: String,
    /// How values come together.
    #[prost(enumeration = "MetricKind", tag = "3")]
    pub kind: i32,
    /// The upper ends of a histogram's buckets, ascending; the last bucket has none.
    #[prost(double, repeated, tag = "4")]
    pub boundaries: Vec<f64>,
    /// Keys and values.
    #[prost(message, repeated, tag = "5")]
    pub tags: Vec<MetricTag>,
    /// Counter and histogram: the sum of what was recorded since. Gauge: the value.
    #[prost(double, tag = "6")]
    pub value: f64,
    /// Histogram: how many fell into each bucket since.
    #[prost(uint64, repeated, tag = "7")]
    pub counts: Vec<u64>,
}

/// A tag of a metric.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Message)]
pub struct MetricTag {
    /// Its key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// How values of a metric come together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum MetricKind {
    /// A kind that this build does not know.
    Unknown = 0,
    /// They are added up.
    Counter = 1,
    /// The last one counts, for each process.
    Gauge = 2,
    /// They are counted by size.
    Histogram = 3,
}

/// command line → daemon: all metrics, please. Answered by [`MetricsReport`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MetricsQuery {
    /// Names the question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
}

/// daemon → command line: the answer to a [`MetricsQuery`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MetricsReport {
    /// The question.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Everything, in the text format of Prometheus.
    #[prost(string, tag = "2")]
    pub text: String,
    /// What was refused, and why.
    #[prost(string, repeated, tag = "3")]
    pub notes: Vec<String>,
}
