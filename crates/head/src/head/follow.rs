//! What visitors are told that follow the lists.

use super::HeadCore;
use super::rows::ROWS_MAX;
use crate::clock::{Alarm, Due};
use crate::following::EncodedRow;
use oxiray_machine::Key;
use oxiray_state::Row;
use oxiray_wire::message::{ChronicleBatch, ChronicleFollow, FailureCode, StateChanges, StateFollow};
use oxiray_wire::state::StateKind;

impl HeadCore {
    /// A visitor asks what changed.
    pub(crate) fn state_follow(&mut self, from: Key, asked: StateFollow) {
        let (request, may_be_told) = (asked.request, !self.durable.resumption.is_under_way());
        match self.figures.following.asks(from, asked, may_be_told) {
            Ok(None) => {}
            Ok(Some(told)) => self.send(from, told),
            Err(text) => {
                let failure = Some(FailureCode::State.because(text));
                self.send(from, StateChanges { request, failure, ..StateChanges::default() });
            }
        }
    }

    /// To be called after each batch of events.
    pub(super) fn tell_changes(&mut self) {
        if self.durable.resumption.is_under_way() {
            return;
        }
        match self.figures.following.due(self.clock.now) {
            Due::Later => return,
            Due::At(at) => return self.clock.alarm_at(at, Alarm::Changes),
            Due::Now => {}
        }
        let lists = self.figures.following.kinds().into_iter().map(|kind| (kind, self.rows_of(kind))).collect();
        let origin = u64::from_le_bytes(self.chance.bytes());
        for (key, told) in self.figures.following.look(lists, origin, self.clock.now) {
            self.send(key, told);
        }
    }

    /// A visitor asks what happened.
    pub(crate) fn chronicle_follow(&mut self, from: Key, asked: ChronicleFollow) {
        let request = asked.request;
        self.note_beginning();
        self.figures.chronicle.name_origin(u64::from_le_bytes(self.chance.bytes()));
        match self.figures.readers.asks(from, asked, &self.figures.chronicle) {
            Ok(None) => {}
            Ok(Some(batch)) => self.send(from, batch),
            Err(text) => {
                let failure = Some(FailureCode::State.because(text));
                self.send(from, ChronicleBatch { request, failure, ..ChronicleBatch::default() });
            }
        }
    }

    /// To be called after each batch of events.
    pub(super) fn tell_chronicle(&mut self) {
        self.note_moves();
        match self.figures.readers.due(&self.figures.chronicle, self.clock.now) {
            Due::Later => return,
            Due::At(at) => return self.clock.alarm_at(at, Alarm::Chronicle),
            Due::Now => {}
        }
        for (key, batch) in self.figures.readers.tell(&self.figures.chronicle, self.clock.now) {
            self.send(key, batch);
        }
    }

    /// The rows of a list, each by what names it and as it is encoded.
    fn rows_of(&self, kind: StateKind) -> Vec<EncodedRow> {
        match kind {
            StateKind::Actors => encoded(&self.actor_list(ROWS_MAX)),
            StateKind::Nodes => encoded(&self.all_nodes()),
            StateKind::Workers => encoded(&self.worker_rows()),
            StateKind::Jobs => encoded(&self.job_rows()),
            StateKind::RuntimeEnvs => encoded(&self.environment_rows()),
            StateKind::PlacementGroups => encoded(&self.group_list(ROWS_MAX)),
            // They are refused.
            StateKind::Tasks | StateKind::Timeline | StateKind::Objects | StateKind::Explain | StateKind::Stacks => {
                Vec::new()
            }
        }
    }
}

fn encoded<R: Row + prost::Message>(rows: &[R]) -> Vec<EncodedRow> {
    rows.iter().map(|row| (row.key(), row.encode_to_vec())).collect()
}
