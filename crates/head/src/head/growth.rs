//! What the autoscaler is told, and what follows from what it says.

use super::HeadCore;
use crate::clock::{Alarm, Due};
use crate::growth::{KINDS_MAX, machine_record, optional_demand, standing, waiting_record};
use crate::queue::PendingKind;
use oxiray_ids::PlacementGroupId;
use oxiray_machine::Key;
use oxiray_wire::message::{GrowthReport, GrowthState, LabelCondition, LabelOperator, Refused};
use oxiray_wire::state::{BundleRecord, ChronicleEntry, ChronicleEvent, GrowthView, STATE_VERSION, WaitingRecord};

impl HeadCore {
    /// The autoscaler says what it may bring.
    pub(crate) fn growth_state(&mut self, from: Key, state: &GrowthState) {
        let before = self.growth.state();
        let news = self.growth.heard(from, state);
        self.note_growth(news.is_new, before.as_ref(), state);
        if news.is_new {
            self.log(format!("client {from} is the autoscaler, with {} groups", state.groups.len()));
        }
        if let Some(before) = news.replaced {
            self.send(before, Refused { text: "another autoscaler has taken its place".to_owned() });
        }
        if news.brings_others {
            self.pending.look_at_all_shortages();
        }
        for key in self.members.others().map(|(key, _)| *key).collect::<Vec<Key>>() {
            self.drain_leaving(key);
        }
    }

    /// A visitor is gone: perhaps the autoscaler.
    pub(crate) fn visitor_left(&mut self, key: Key) {
        self.figures.following.visitor_left(key);
        self.figures.readers.visitor_left(key);
        if self.growth.visitor_left(key, self.clock.now) {
            self.log("the autoscaler is gone: no machines are brought or taken away".to_owned());
            self.note(ChronicleEntry { event: ChronicleEvent::AutoscalerLeft, ..ChronicleEntry::default() });
            self.pending.look_at_all_shortages();
        }
    }

    /// The command line asks what the autoscaler would be told.
    pub(crate) fn growth_query(&mut self, from: Key, request: u64) {
        let (view, state) = (Some(self.growth_view()), self.growth.state());
        self.send(from, GrowthReport { request, view, state, version: STATE_VERSION });
    }

    /// GROW-2; to be called after each batch of events.
    pub(super) fn tell_growth(&mut self) {
        if self.durable.resumption.is_under_way() {
            return;
        }
        let mark = (self.pending.queue.len(), self.members.by_key.len(), self.members.drains.len());
        match self.growth.due(mark, self.clock.now) {
            Due::Later => return,
            Due::At(at) => return self.clock.alarm_at(at, Alarm::Growth),
            Due::Now => {}
        }
        let view = self.growth_view();
        if let Some((by, told)) = self.growth.tell(view, mark, self.clock.now) {
            self.send(by, told);
        }
    }

    /// What bundles wait for whose machine died while others of their group stand: machines of the domain of these.
    fn beside_others(&self, id: PlacementGroupId, record: WaitingRecord) -> WaitingRecord {
        let Some(label) = record.domain.clone() else { return record };
        let mut nodes = self.groups.known.get(id).into_iter().flat_map(|group| group.nodes.iter().flatten());
        let value = nodes.find_map(|node| self.members.fleet.view_of(*node)?.labels.get(&label).cloned());
        let Some(value) = value else { return record };
        let within = LabelCondition { key: label, operator: LabelOperator::In, values: vec![value] };
        let bundles = record.bundles.into_iter().map(|bundle| BundleRecord {
            labels: bundle.labels.into_iter().chain([within.clone()]).collect(),
            ..bundle
        });
        WaitingRecord { bundles: bundles.collect(), ..record }
    }

    fn growth_view(&self) -> GrowthView {
        let own = machine_record(&self.members.own().view, true, false, 0);
        let holders = self.objects.locations.only_holders(|member| self.members.takes(*member));
        let members = self.members.others().filter(|(_, member)| !member.is_silent).map(|(key, member)| {
            let is_in_use = holders.contains(key) || self.work_on(*key).is_in_use();
            machine_record(&member.view, is_in_use, self.members.drains.contains_key(key), member.state.order)
        });
        let waiting = self.pending.queue.waiting().take(KINDS_MAX).filter_map(|waiting| {
            let wanted = self.pending.wanted.get(waiting.oldest)?;
            let count = u32::try_from(waiting.count).unwrap_or(u32::MAX);
            let record = waiting_record(waiting.resource_request, wanted.in_words(), count)?;
            Some(match &wanted.want {
                PendingKind::Group { id, .. } => self.beside_others(*id, record),
                _ => record,
            })
        });
        GrowthView {
            machines: std::iter::once(own).chain(members).collect(),
            waiting: waiting.chain(optional_demand(&self.durable.kept)).take(KINDS_MAX).collect(),
            standing: standing(&self.durable.kept),
        }
    }
}
