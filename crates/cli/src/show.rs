//! Rows as tables and as YAML.

use serde_json::Value as Json;
use std::fmt::Write as _;

const EXPECT: &str = "writing to a string does not fail";

/// Rows below the names of their columns, each column as wide as its widest cell.
pub(crate) fn table(columns: &[String], rows: &[Json]) -> String {
    let heads: Vec<String> = columns.iter().map(|column| column.to_uppercase()).collect();
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| columns.iter().map(|column| cell(&row[column])).collect()).collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|at| cells.iter().chain([&heads]).map(|row| row[at].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in [&heads].into_iter().chain(&cells) {
        let line: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(text, "{}", line.join("  ").trim_end()).expect(EXPECT);
    }
    text
}

fn cell(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => text.clone(),
        Json::Object(entries) => {
            let entries: Vec<String> = entries.iter().map(|(name, value)| format!("{name}: {}", cell(value))).collect();
            entries.join(", ")
        }
        other => other.to_string(),
    }
}

/// One entry for each row, with its columns in order.
pub(crate) fn yaml(columns: &[String], rows: &[Json]) -> String {
    let mut text = String::from("---\n");
    for row in rows {
        for (at, column) in columns.iter().enumerate() {
            let lead = if at == 0 { "- " } else { "  " };
            writeln!(text, "{lead}{column}: {}", scalar(&row[column])).expect(EXPECT);
        }
    }
    if rows.is_empty() {
        text.push_str("[]\n");
    }
    text
}

/// JSON is YAML; text stands bare where nothing else could be meant by it.
fn scalar(value: &Json) -> String {
    match value {
        Json::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    // Only digits, or digits around one letter `e`, would be read as a number.
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(is_word)
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_ascii_lowercase().as_str())
}

/// Counts by name and state, after the totals.
pub(crate) fn summary(report: &Json) -> String {
    let mut text = String::new();
    let Some(all) = report["cluster"].as_object() else { return text };
    for (name, total) in all.iter().filter(|(name, _)| name.starts_with("total_")) {
        writeln!(text, "{name}: {total}").expect(EXPECT);
    }
    let named = |(name, row): (&String, &Json)| {
        let mut row = row.clone();
        row["call_site"] = name.as_str().into();
        row
    };
    let rows: Vec<Json> = all["summary"].as_object().into_iter().flatten().map(named).collect();
    let by = if all["summary_by"] == "callsite" { "call_site" } else { "func_or_class_name" };
    let named = [
        by,
        "class_name",
        "type",
        "state_counts",
        "total_objects",
        "total_size_mb",
        "total_num_workers",
        "ref_type_counts",
    ];
    let columns: Vec<String> = named
        .iter()
        .filter(|name| rows.first().is_some_and(|row| !row[**name].is_null()))
        .map(|name| (*name).to_owned())
        .collect();
    format!("{text}\n{}", table(&columns, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_drawn() {
        let columns = ["name".to_owned(), "pid".into(), "labels".into()];
        let rows = [json!({"name": "f", "pid": 12, "labels": {"a": 1}}), json!({"name": "12", "pid": null})];
        assert_eq!(table(&columns, &rows), "NAME  PID  LABELS\nf     12   a: 1\n12\n");
        let expected = "---\n- name: f\n  pid: 12\n  labels: {\"a\":1}\n- name: \"12\"\n  pid: null\n  labels: null\n";
        assert_eq!(yaml(&columns, &rows), expected);
        assert_eq!(yaml(&columns, &[]), "---\n[]\n");
    }

    #[test]
    fn counts_are_drawn() {
        let report = json!({"cluster": {"total_actors": 2, "summary_by": "class",
            "summary": {"A": {"class_name": "A", "state_counts": {"ALIVE": 1, "DEAD": 1}}}}});
        assert_eq!(summary(&report), "total_actors: 2\n\nCLASS_NAME  STATE_COUNTS\nA           ALIVE: 1, DEAD: 1\n");
    }
}
