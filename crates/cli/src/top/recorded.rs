//! What the head told, as a frame needs it: how the cluster is, which tasks there are, and what happened.
//!
//! It is fed with answers and nothing else, and knows no clock: a recorded one makes the same frames again.

use oxiray_ids::NodeId;
use oxiray_wire::message::ChronicleBatch;
use oxiray_wire::state::{ChronicleCursor, ChronicleEntry, ChronicleEvent, ClusterState, DemandKind, JobRow, TaskRow};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// The most entries that are kept for the list of events.
const EVENTS_MAX: usize = 2_000;
/// How far back who held a device is kept, in milliseconds.
pub(crate) const STRIP_MS: u64 = 60_000;
/// The most holders of a device that are kept, those that are gone first.
const SPANS_MAX: usize = 200;

/// A device: its node, its resource and its number there.
pub(crate) type DeviceKey = (NodeId, String, u32);

/// From when until when somebody held a part of a device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Span {
    pub(crate) grant: u64,
    pub(crate) name: String,
    pub(crate) kind: DemandKind,
    pub(crate) pid: u32,
    /// In 1/10,000 of the device.
    pub(crate) share: u64,
    pub(crate) from_ms: u64,
    /// Since when its holder is ending, where it is.
    pub(crate) returning_ms: Option<u64>,
    /// When it was given back, where it was.
    pub(crate) to_ms: Option<u64>,
}

/// What happened to one device lately.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct DeviceStory {
    pub(crate) id: String,
    /// Who held it, the earliest first.
    pub(crate) spans: Vec<Span>,
    /// Why it is out of service, and since when.
    pub(crate) out: Option<(u64, String)>,
}

impl DeviceStory {
    /// Who holds it now.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(|span| span.to_ms.is_none())
    }

    /// How much of it is held, in 1/10,000.
    pub(crate) fn held(&self) -> u64 {
        self.holders().map(|span| span.share).sum()
    }
}

/// How many tasks of a name there are, by state.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct TaskCounts {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) states: BTreeMap<String, u64>,
}

/// All that a frame is drawn from, beside what its user chose.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Recorded {
    /// When, in milliseconds since 1970.
    pub(crate) now_ms: u64,
    pub(crate) cluster: ClusterState,
    /// The jobs; as the list of them says it, which has more than the cluster's state.
    #[serde(skip)]
    pub(crate) jobs: Vec<JobRow>,
    pub(crate) tasks: Vec<TaskCounts>,
    /// The calls that are not over, as far as they were asked for.
    #[serde(skip)]
    pub(crate) live: Vec<TaskRow>,
    /// What happened, the latest last.
    pub(crate) events: VecDeque<ChronicleEntry>,
    #[serde(serialize_with = "as_list")]
    pub(crate) devices: BTreeMap<DeviceKey, DeviceStory>,
    #[serde(skip)]
    pub(crate) cursor: ChronicleCursor,
    /// How many entries nobody will tell any more.
    pub(crate) missed: u64,
}

/// A table whose keys are no texts.
fn as_list<S: serde::Serializer>(devices: &BTreeMap<DeviceKey, DeviceStory>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(devices.iter().map(|((node, resource, slot), story)| (node, resource, slot, story)))
}

impl Recorded {
    /// The next batch of the chronicle.
    pub(crate) fn apply(&mut self, batch: ChronicleBatch) {
        if batch.is_fresh {
            self.devices.clear();
        }
        if let Some(gap) = batch.gap {
            self.missed += gap.to + 1 - gap.from;
        }
        self.cursor = batch.cursor.unwrap_or(self.cursor);
        for entry in batch.entries {
            self.tell_device(&entry);
            if self.events.len() >= EVENTS_MAX {
                self.events.pop_front();
            }
            self.events.push_back(entry);
        }
    }

    /// It is so late; what was over long before that is let go of.
    pub(crate) fn is_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        let since = now_ms.saturating_sub(STRIP_MS);
        for story in self.devices.values_mut() {
            story.spans.retain(|span| span.to_ms.is_none_or(|to| to >= since));
        }
    }

    fn tell_device(&mut self, entry: &ChronicleEntry) {
        let (Some(node), Some(part)) = (entry.node, &entry.device) else { return };
        let story = self.devices.entry((node, part.resource.clone(), part.slot)).or_default();
        story.id.clone_from(&part.id);
        match entry.event {
            ChronicleEvent::DeviceOutOfService => story.out = Some((entry.at_ms, entry.text.clone())),
            ChronicleEvent::DeviceInService => story.out = None,
            ChronicleEvent::DeviceGranted | ChronicleEvent::DeviceReturning => {
                let is_returning = entry.event == ChronicleEvent::DeviceReturning;
                let span = Span {
                    grant: part.grant,
                    name: entry.name.clone(),
                    kind: part.holder,
                    pid: entry.pid,
                    share: part.share,
                    from_ms: part.since_ms,
                    returning_ms: is_returning.then_some(entry.at_ms),
                    to_ms: None,
                };
                match story.spans.iter_mut().find(|known| known.grant == part.grant && known.to_ms.is_none()) {
                    Some(known) => *known = span,
                    None => story.spans.push(span),
                }
                if story.spans.len() > SPANS_MAX
                    && let Some(over) = story.spans.iter().position(|span| span.to_ms.is_some())
                {
                    story.spans.remove(over);
                }
            }
            ChronicleEvent::DeviceFree => {
                let known = story.spans.iter_mut().find(|known| known.grant == part.grant && known.to_ms.is_none());
                if let Some(span) = known {
                    span.to_ms = Some(entry.at_ms);
                }
            }
            _ => {}
        }
    }
}
