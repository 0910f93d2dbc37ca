//! `oxiray metrics`.

use crate::arguments::MetricsOptions;
use crate::{say, visit};
use oxiray_wire::message::MetricsQuery;
use oxiray_wire::plain;
use serde_json::{Map, Value as Json, json};
use std::io::Write as _;

pub(crate) fn run(options: &MetricsOptions) -> anyhow::Result<()> {
    let report = visit::ask(options.address.as_deref(), MetricsQuery::default())?;
    if options.printing.json {
        say(&serde_json::to_string_pretty(&as_json(&report.text))?);
    } else {
        // Readers that went away have seen enough.
        let _ = std::io::stdout().write_all(report.text.as_bytes());
    }
    for note in report.notes {
        let _ = writeln!(std::io::stderr(), "note: {}", plain(&note));
    }
    Ok(())
}

/// Prometheus' text as one object for each metric, with its samples. The head wrote the text, so that each line is a comment or a
/// sample, and labels stand between braces.
fn as_json(text: &str) -> Json {
    let mut metrics: Vec<Json> = Vec::new();
    let mut help = Json::Null;
    for line in text.lines() {
        if let Some(told) = line.strip_prefix("# HELP ") {
            help = told.split_once(' ').map_or(Json::Null, |(_, words)| unescaped(words).into());
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|told| told.split_once(' ')) {
            metrics.push(json!({"name": name, "type": kind, "help": help.take(), "samples": []}));
        } else if let Some((metric, value)) = line.rsplit_once(' ') {
            let (name, labels) = metric.split_once('{').unwrap_or((metric, ""));
            let sample = json!({"name": name, "labels": labels_of(labels), "value": number(value)});
            if let Some(samples) = metrics.last_mut().and_then(|metric| metric["samples"].as_array_mut()) {
                samples.push(sample);
            }
        }
    }
    metrics.into()
}

/// A number; those that JSON has no form for as text.
fn number(text: &str) -> Json {
    let read = text.parse().ok().and_then(serde_json::Number::from_f64);
    read.map_or_else(|| text.into(), Json::Number)
}

/// `name="value",...}` as an object.
fn labels_of(text: &str) -> Map<String, Json> {
    let mut labels = Map::new();
    let mut rest = text;
    while let Some((name, behind)) = rest.split_once("=\"") {
        let mut escapes = false;
        let end = behind.find(|letter| {
            let is_end = letter == '"' && !escapes;
            escapes = letter == '\\' && !escapes;
            is_end
        });
        let Some((value, behind)) = end.and_then(|end| behind.split_at_checked(end)) else { break };
        labels.insert(name.trim_start_matches(',').to_owned(), unescaped(value).into());
        rest = &behind[1..];
    }
    labels
}

fn unescaped(text: &str) -> String {
    let mut letters = text.chars();
    let mut plain = String::with_capacity(text.len());
    while let Some(letter) = letters.next() {
        if letter == '\\' {
            plain.extend(letters.next().map(|escaped| if escaped == 'n' { '\n' } else { escaped }));
        } else {
            plain.push(letter);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_for_prometheus_is_read_back() {
        let text = "# HELP ray_x one\\ntwo\\\\\n# TYPE ray_x gauge\nray_x{k=\"a\\\"b\\\\c\\nd\",l=\"x,y} 2\"} 1e300\nray_x +Inf\n\
                    # TYPE ray_h histogram\nray_h_bucket{le=\"0.5\"} 2\n";
        let expected = json!([
            {"name": "ray_x", "type": "gauge", "help": "one\ntwo\\", "samples": [
                {"name": "ray_x", "labels": {"k": "a\"b\\c\nd", "l": "x,y} 2"}, "value": 1e300},
                {"name": "ray_x", "labels": {}, "value": "+Inf"},
            ]},
            {"name": "ray_h", "type": "histogram", "help": null, "samples": [
                {"name": "ray_h_bucket", "labels": {"le": "0.5"}, "value": 2.0},
            ]},
        ]);
        assert_eq!(as_json(text), expected);
    }
}
