//! Metrics in the text format of Prometheus, and the names that it allows.

use crate::metrics::{Family, MetricKind, Series, Tags};
use oxiray_wire::plain_lines;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What every name begins with, as with Ray.
const PREFIX: &str = "ray_";
/// What a counter's name ends with.
pub(crate) const COUNTER_SUFFIX: &str = "_total";
/// The tag that the text format keeps for the buckets of histograms.
const BUCKET_TAG: &str = "le";

/// The name that a metric is shown with.
pub(crate) fn shown_name(name: &str, kind: MetricKind) -> String {
    let name: String = name.chars().map(|one| if one == ':' { one } else { letter(one) }).collect();
    let suffix = if kind == MetricKind::Counter && !name.ends_with(COUNTER_SUFFIX) { COUNTER_SUFFIX } else { "" };
    format!("{PREFIX}{name}{suffix}")
}

/// Tags under names that the format allows.
pub(crate) fn tags(given: Tags, kind: MetricKind) -> BTreeMap<String, String> {
    let allowed = |(key, value): (String, String)| {
        let mut key: String = key.chars().map(letter).collect();
        if key.is_empty() || key.starts_with(|first: char| first.is_ascii_digit()) {
            key.insert(0, '_');
        }
        if kind == MetricKind::Histogram && key == BUCKET_TAG {
            key.insert_str(0, "exported_");
        }
        (key, value)
    };
    given.into_iter().map(allowed).collect()
}

fn letter(one: char) -> char {
    if one.is_ascii_alphanumeric() { one } else { '_' }
}

/// Everything, one line for each value, with these tags besides its own.
pub(crate) fn text(families: &BTreeMap<String, Family>, common: &Tags) -> String {
    let mut out = String::new();
    for (name, family) in families {
        let description = plain_lines(&family.description).replace('\\', r"\\").replace('\n', r"\n");
        if !description.is_empty() {
            let _ = writeln!(out, "# HELP {name} {description}");
        }
        let _ = writeln!(out, "# TYPE {name} {}", family.kind.name());
        for ((tags, _), series) in &family.series {
            let tags = &with_common(tags, common);
            if family.kind == MetricKind::Histogram {
                append_histogram(&mut out, name, tags, &family.boundaries, series);
            } else {
                let _ = writeln!(out, "{name}{} {}", braced(tags, None), number(series.value));
            }
        }
    }
    out
}

/// All tags, ascending. A tag of a value's own stands for a common one.
fn with_common(own: &Tags, common: &Tags) -> Tags {
    let all: BTreeMap<_, _> = common.iter().chain(own).map(|(key, value)| (key, value)).collect();
    all.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn append_histogram(out: &mut String, name: &str, tags: &Tags, boundaries: &[f64], series: &Series) {
    let mut total = 0_u64;
    let ends = boundaries.iter().copied().chain([f64::INFINITY]);
    for (index, end) in ends.enumerate() {
        total = total.saturating_add(series.counts.get(index).copied().unwrap_or(0));
        let _ = writeln!(out, "{name}_bucket{} {total}", braced(tags, Some(&number(end))));
    }
    let plain = braced(tags, None);
    let _ = writeln!(out, "{name}_sum{plain} {}\n{name}_count{plain} {total}", number(series.value));
}

fn braced(tags: &Tags, bucket: Option<&str>) -> String {
    let escaped = |value: &str| plain_lines(value).replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let mut inner: Vec<String> = tags.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
    inner.extend(bucket.map(|end| format!("{BUCKET_TAG}=\"{end}\"")));
    if inner.is_empty() { String::new() } else { format!("{{{}}}", inner.join(",")) }
}

fn number(value: f64) -> String {
    if value.is_infinite() { if value > 0.0 { "+Inf" } else { "-Inf" }.into() } else { format!("{value:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tags_and_texts_are_what_the_format_allows() {
        assert_eq!(shown_name("served", MetricKind::Counter), "ray_served_total");
        assert_eq!(shown_name("served_total", MetricKind::Counter), "ray_served_total");
        assert_eq!(shown_name("a:b", MetricKind::Gauge), "ray_a:b");
        let given = [("le", "1"), ("a-b", "2"), ("1", "3"), ("", "4")].map(|(key, value)| (key.into(), value.into()));
        let named: Vec<String> = tags(given.to_vec(), MetricKind::Histogram).into_keys().collect();
        assert_eq!(named, ["_", "_1", "a_b", "exported_le"]);
        let series = [((vec![("k".into(), "a\"b\\c\nd".into())], None), Series { value: 1e300, counts: Vec::new() })];
        let family = Family {
            description: "one\ntwo\\".into(),
            kind: MetricKind::Gauge,
            boundaries: Vec::new(),
            series: series.into(),
        };
        let shown = text(&[("ray_x".to_owned(), family)].into(), &Tags::new());
        assert_eq!(shown, "# HELP ray_x one\\ntwo\\\\\n# TYPE ray_x gauge\nray_x{k=\"a\\\"b\\\\c\\nd\"} 1e300\n");
        let shown: Vec<String> = [1.0, f64::NAN, f64::NEG_INFINITY].into_iter().map(number).collect();
        assert_eq!(shown, ["1.0", "NaN", "-Inf"]);
    }
}
