//! The lines of the files (pure).

use oxiray_wire::state::ChronicleEntry;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// The version of the lines. Fields may be added to it; one that means something else is another version.
pub(crate) const SCHEMA: u32 = 1;
/// The name of the file of what belongs to no job.
pub(crate) const CLUSTER: &str = "cluster";

/// What a line tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LineKind {
    /// A program began to write here: what it is, and of which cluster.
    Begin,
    /// A row of a list is like this from now on.
    Row,
    /// A row is in its list no more.
    Gone,
    /// An entry of the chronicle.
    Event,
    /// Nothing is known of a stretch of time.
    Gap,
    /// Older lines were removed.
    Cut,
    /// One of a later version, which is passed over.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A line. What does not concern its kind is left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HistoryLine {
    /// When, in milliseconds since 1970: by the head's clock where it is an event, by the recorder's else.
    pub(crate) at_ms: u64,
    /// What it tells of.
    pub(crate) kind: LineKind,
    /// The list of a row.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) list: String,
    /// What names the row in it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) key: String,
    /// What rows are put in order by: the highest comes first.
    #[serde(skip_serializing_if = "is_nothing")]
    pub(crate) rank: u64,
    /// The row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cells: Option<Map<String, Json>>,
    /// The entry of the chronicle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) event: Option<ChronicleEntry>,
    /// Tells entries of one head from those of another: their numbers begin anew.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) origin: String,
    /// From when on nothing is known, or is left.
    #[serde(skip_serializing_if = "is_nothing")]
    pub(crate) from_ms: u64,
    /// Why, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) text: String,
    /// Who writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) begin: Option<Begin>,
}

/// How a first line came to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BeginHow {
    /// The recorder began.
    #[default]
    Started,
    /// The file before is full: rows are told anew.
    Rolled,
    /// The part before is full, and this one goes on.
    #[serde(other)]
    Continued,
}

/// Who writes, and of which cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Begin {
    /// The version of the lines.
    pub(crate) schema: u32,
    /// The version of the program.
    pub(crate) version: String,
    /// The cluster's address.
    pub(crate) cluster: String,
    /// The session's name.
    pub(crate) session: String,
    /// The job; `cluster` for what belongs to none.
    pub(crate) job: String,
    /// How it came to be written.
    pub(crate) how: BeginHow,
    /// The nodes that there are, each with its identifier and its name.
    pub(crate) nodes: Vec<(String, String)>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over the field as it is")]
fn is_nothing(number: &u64) -> bool {
    *number == 0
}

impl HistoryLine {
    /// One of that kind.
    pub(crate) fn of(kind: LineKind, at_ms: u64) -> Self {
        Self { at_ms, kind, ..Self::default() }
    }

    /// Nothing is known from that moment to this one.
    pub(crate) fn gap((from_ms, at_ms): (u64, u64), text: impl Into<String>) -> Self {
        Self { from_ms, text: text.into(), ..Self::of(LineKind::Gap, at_ms) }
    }

    /// As it stands in a file. A value without a form in JSON is none that is written here.
    pub(crate) fn write(&self, lines: &mut Vec<u8>) {
        let before = lines.len();
        match serde_json::to_writer(&mut *lines, self) {
            Ok(()) => lines.push(b'\n'),
            Err(_) => lines.truncate(before),
        }
    }
}

/// Whether a row of that list ended with that: it is remembered as it was, and not taken away.
pub(crate) fn has_ended(list: &str, cells: &Map<String, Json>) -> bool {
    let state = cells.get("state").and_then(Json::as_str).unwrap_or_default();
    match list {
        "tasks" => matches!(state, "FINISHED" | "FAILED"),
        "jobs" => matches!(state, "SUCCEEDED" | "FAILED" | "STOPPED"),
        "placement_groups" => state == "REMOVED",
        "nodes" => cells.get("alive").and_then(Json::as_bool) == Some(false),
        _ => state == "DEAD",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::{JobId, NodeId};
    use oxiray_wire::state::ChronicleEvent;
    use serde_json::json;

    fn written(line: &HistoryLine) -> String {
        let mut lines = Vec::new();
        line.write(&mut lines);
        String::from_utf8(lines).expect("JSON is text")
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let cells = json!({"state": "RUNNING", "metadata": {"a": "</script>\n"}}).as_object().cloned();
        let event = ChronicleEntry {
            number: 7,
            at_ms: 3,
            event: ChronicleEvent::NodeJoined,
            node: Some(NodeId::new([1; 28])),
            job: Some(JobId::new([1; 4])),
            ..ChronicleEntry::default()
        };
        let begin = Begin { schema: SCHEMA, nodes: vec![("ab".into(), "one".into())], ..Begin::default() };
        for line in [
            HistoryLine { list: "jobs".into(), key: "a".into(), rank: 9, cells, ..HistoryLine::of(LineKind::Row, 4) },
            HistoryLine { event: Some(event), origin: "1f".into(), ..HistoryLine::of(LineKind::Event, 3) },
            HistoryLine { begin: Some(begin), ..HistoryLine::of(LineKind::Begin, 1) },
            HistoryLine::gap((1, 2), "away"),
        ] {
            let text = written(&line);
            assert_eq!(text.matches('\n').count(), 1, "a line is one line: {text}");
            assert_eq!(serde_json::from_str::<HistoryLine>(&text).expect("a line"), line);
        }
    }

    #[test]
    fn lines_of_later_programs_are_read_as_far_as_they_are_known() {
        let line: HistoryLine =
            serde_json::from_str(r#"{"at_ms":1,"kind":"weather","degrees":3,"text":"hot"}"#).expect("a line");
        assert_eq!((line.kind, line.text.as_str()), (LineKind::Unknown, "hot"));
    }

    #[test]
    fn what_ended_is_told_from_what_goes_on() {
        let is = |list: &str, cells: Json| has_ended(list, cells.as_object().expect("cells"));
        assert!(is("tasks", json!({"state": "FAILED"})) && is("actors", json!({"state": "DEAD"})));
        assert!(is("nodes", json!({"alive": false})) && is("jobs", json!({"state": "STOPPED"})));
        for (list, cells) in
            [("jobs", json!({"state": "RUNNING"})), ("nodes", json!({"alive": true})), ("actors", json!({}))]
        {
            assert!(!is(list, cells), "{list}");
        }
    }
}
