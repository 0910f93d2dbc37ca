//! The last entries of the chronicle, and events as rows (pure).

use super::rows::Row;
use super::tables::Names;
use oxiray_wire::state::{ChronicleEntry, ChronicleEvent, ChronicleKind, Severity};
use serde_json::json;
use std::collections::VecDeque;

/// How many events are kept.
const EVENTS_MAX: usize = 20_000;

/// What happened, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Events(VecDeque<ChronicleEntry>);

impl Events {
    /// Keeps an entry, unless it is one of the many that only pictures are made of, or was told before.
    pub(crate) fn keep(&mut self, entry: ChronicleEntry) {
        let is_of_picture = matches!(
            entry.event,
            ChronicleEvent::DeviceGranted
                | ChronicleEvent::DeviceReturning
                | ChronicleEvent::DeviceFree
                | ChronicleEvent::TrainReported
        );
        if is_of_picture || self.0.back().is_some_and(|last| last.number >= entry.number) {
            return;
        }
        self.0.push_back(entry);
        if self.0.len() > EVENTS_MAX {
            self.0.pop_front();
        }
    }

    /// How many are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Those of at least this level that happened between two moments, as rows.
    pub(crate) fn rows(&self, names: &Names, least: Severity, (from_ms, to_ms): (u64, u64)) -> Vec<Row> {
        let is_meant =
            |entry: &&ChronicleEntry| entry.event.severity() >= least && (from_ms..=to_ms).contains(&entry.at_ms);
        self.0.iter().filter(is_meant).map(|entry| row(entry, names)).collect()
    }
}

/// The level that goes by this name.
pub(crate) fn level(name: &str) -> Option<Severity> {
    [Severity::Info, Severity::Warning, Severity::Error]
        .into_iter()
        .find(|level| level.name().eq_ignore_ascii_case(name))
}

fn row(entry: &ChronicleEntry, names: &Names) -> Row {
    let device = entry.device.as_ref().map(|part| format!("{} {}", part.resource, part.slot));
    let subject = match entry.event.kind() {
        ChronicleKind::Device => device.unwrap_or_default(),
        ChronicleKind::Node => entry.node.map(|node| names.of(node)).unwrap_or_default(),
        _ if !entry.name.is_empty() => entry.name.clone(),
        ChronicleKind::Job => entry.job.map(|job| job.to_string()).unwrap_or_default(),
        ChronicleKind::Worker if entry.pid > 0 => format!("PID {}", entry.pid),
        _ => String::new(),
    };
    let cells = json!({
        "at_ms": entry.at_ms,
        "level": entry.event.severity().name().to_lowercase(),
        "event": entry.event.name(),
        "kind": entry.event.kind().name(),
        "subject": subject,
        "text": entry.text,
        "node_id": entry.node.map(|node| node.to_string()),
        "node_name": entry.node.map(|node| names.of(node)),
        "pick": pick(entry),
    });
    Row::new(entry.number, entry.number.to_string(), cells)
}

/// What the page shows beside the event: the kind of what it is about, and its key.
fn pick(entry: &ChronicleEntry) -> Option<String> {
    match entry.event.kind() {
        ChronicleKind::Device => {
            let (node, part) = entry.node.zip(entry.device.as_ref())?;
            Some(format!("device:{node}/{}/{}", part.resource, part.slot))
        }
        ChronicleKind::Node => entry.node.map(|node| format!("node:{node}")),
        ChronicleKind::Actor => entry.actor.map(|actor| format!("actor:{actor}")),
        ChronicleKind::PlacementGroup => entry.group.map(|group| format!("group:{group}")),
        ChronicleKind::Worker => entry.worker.map(|worker| format!("process:{worker}")),
        ChronicleKind::Job | ChronicleKind::Autoscaler | ChronicleKind::Head | ChronicleKind::Train => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::NodeId;

    fn entry(number: u64, event: ChronicleEvent) -> ChronicleEntry {
        ChronicleEntry { number, at_ms: number, event, node: Some(NodeId::new([1; 28])), ..ChronicleEntry::default() }
    }

    #[test]
    fn events_are_kept_once_and_the_traffic_of_devices_is_not() {
        let mut events = Events::default();
        for one in [
            entry(1, ChronicleEvent::NodeJoined),
            entry(2, ChronicleEvent::DeviceGranted),
            entry(1, ChronicleEvent::NodeJoined),
            entry(3, ChronicleEvent::NodeLost),
        ] {
            events.keep(one);
        }
        let names = Names::default();
        let told = |least, span| events.rows(&names, least, span).into_iter().map(|row| row.key).collect::<Vec<_>>();
        assert_eq!(told(Severity::Info, (0, u64::MAX)), ["1", "3"]);
        assert_eq!(told(Severity::Warning, (0, u64::MAX)), ["3"]);
        assert_eq!([(1, 1), (3, 9), (2, 2)].map(|span| told(Severity::Info, span).len()), [1, 1, 0]);
        assert_eq!((level("error"), level("loud")), (Some(Severity::Error), None));
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let mut events = Events::default();
        for number in 1..=EVENTS_MAX as u64 + 3 {
            events.keep(entry(number, ChronicleEvent::NodeJoined));
        }
        let rows = events.rows(&Names::default(), Severity::Info, (0, u64::MAX));
        assert_eq!((rows.len(), rows[0].key.as_str()), (EVENTS_MAX, "4"));
    }
}
