//! Placement groups as their makers see them, and where programs have things run.

use crate::agenda::{Micros, SECOND};
use crate::program::{GPU_MEMORY, Question, amounts};
use crate::world::{ProcessIndex, World};
use bytes::Bytes;
use oxiray_ids::{BundleNumber, NodeId, PlacementGroupId};
use oxiray_wire::message::{
    Content, GroupBundle, GroupCreate, LabelCondition, LabelOperator, PlacementStrategy, Strategy, StrategyKind, Value,
};

/// What groups reserve.
const BUNDLES: [&[&[(&str, u64)]]; 6] = [
    &[&[("CPU", 10_000)]],
    &[&[("CPU", 10_000)], &[("CPU", 10_000)]],
    &[&[("CPU", 7_500)], &[("CPU", 7_500)]],
    &[&[("CPU", 10_000), ("GPU", 10_000)], &[("CPU", 10_000)]],
    &[&[("CPU", 5_000), ("GPU", 5_000)], &[("CPU", 5_000), ("GPU", 5_000)], &[("CPU", 10_000)]],
    &[&[("CPU", 90_000)]],
];

/// What some of them do where what is asked of memory varies.
const OF_MEMORY: &[&[(&str, u64)]] =
    &[&[("CPU", 10_000), (GPU_MEMORY, (5 << 30) * 10_000)], &[(GPU_MEMORY, ((3 << 30) + 17) * 10_000)]];

/// A group that a process made.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) bundles: u32,
    ends_at: Micros,
    is_detached: bool,
}

impl World {
    /// A driver makes a group.
    pub(crate) fn make_group(&mut self, process: ProcessIndex) {
        let id = self.with_core(process, oxiray_runtime::Client::name_group);
        let group = id;
        let drawn = self.chance.one_of(&BUNDLES);
        let is_of_memory = self.options.varies_memory() && self.odds_apart(self.calls.last, 300);
        let bundles = if is_of_memory { OF_MEMORY } else { drawn };
        let told = bundles.iter().map(|demand| GroupBundle { demand: amounts(demand), conditions: Vec::new() });
        let ends_at = self.now + self.chance.delay(3 * SECOND);
        let detached = self.chance.odds(100);
        let made = Made { bundles: bundles.len() as u32, ends_at, is_detached: detached };
        self.client(process).program.groups.insert(group, made);
        let strategy = self.chance.one_of(PlacementStrategy::ALL);
        let (bundles, known) = (told.collect(), group);
        let preemptible = self.options.preempts() && self.chance.odds(300);
        let domain = if self.chance.odds(200) { "zone".to_owned() } else { String::new() };
        let asked = GroupCreate { group, strategy, bundles, detached, preemptible, domain, ..GroupCreate::default() };
        if detached {
            self.detached_groups.push(known);
            let ask = |request| GroupCreate { request, ..asked }.into();
            let request = self.with_core(process, |core| core.ask(ask));
            self.client(process).program.questions.insert(request, Question::Group);
        } else if self.with_core(process, |core| core.create_plain_group(id, asked)).is_ok() && self.chance.odds(500) {
            let ready = Value { content: Some(Content::Inline(Bytes::from_static(b"ready"))), contained: Vec::new() };
            let object = self.with_core(process, |core| core.group_ready(id, ready));
            self.client(process).program.references.push(object);
            self.begin_reading(process, object);
        }
    }

    /// One that was given up at once may be off the disk again.
    pub(crate) fn check_detached_group(&mut self, process: ProcessIndex, group: PlacementGroupId) {
        if self.client(process).program.groups.contains_key(&group) {
            self.check_row("a placement group", group.as_bytes());
        }
    }

    /// Where something is to run.
    pub(crate) fn strategy(&mut self, process: ProcessIndex) -> Option<Strategy> {
        if self.options.has_groups && self.chance.odds(300) {
            return self.within(process);
        }
        if !self.options.has_strategies || self.chance.odds(700) {
            return None;
        }
        let kind = self.chance.one_of(&[StrategyKind::Spread, StrategyKind::Node, StrategyKind::Labels]);
        let node = self.chance.between(0, self.nodes.len() as u64) as u8;
        let zone = self.chance.one_of(&["a", "b", "c"]);
        let condition = LabelCondition { key: "zone".into(), operator: LabelOperator::In, values: vec![zone.into()] };
        let is_hard = self.chance.odds(500);
        let (hard, preferred) = if is_hard { (vec![condition], Vec::new()) } else { (Vec::new(), vec![condition]) };
        Some(Strategy {
            kind,
            node: Some(NodeId::new([node; 28])),
            soft: self.chance.odds(500),
            spill: self.chance.odds(500),
            hard,
            preferred,
            ..Strategy::default()
        })
    }

    /// A place within one of the process's groups.
    pub(crate) fn within(&mut self, process: ProcessIndex) -> Option<Strategy> {
        let groups: Vec<(PlacementGroupId, u32)> =
            self.client(process).program.groups.iter().map(|(group, made)| (*group, made.bundles)).collect();
        let index = self.chance.between(0, groups.len() as u64) as usize;
        let (group, bundles) = *groups.get(index)?;
        let bundle = (self.chance.between(0, u64::from(bundles)) as u32).checked_sub(1).map(BundleNumber);
        Some(Strategy {
            kind: StrategyKind::Group,
            group: Some(group),
            bundle,
            captures: self.chance.odds(300),
            ..Strategy::default()
        })
    }

    /// A driver gives its groups up in their time.
    pub(crate) fn tend_groups(&mut self, process: ProcessIndex) {
        let (is_late, now) = (self.is_calm, self.now);
        let is_over = |made: &Made| is_late || now >= made.ends_at;
        let groups = &self.client(process).program.groups;
        let over: Vec<PlacementGroupId> =
            groups.iter().filter(|(_, made)| is_over(made)).map(|(group, _)| *group).collect();
        for group in over {
            let made = self.client(process).program.groups.remove(&group).expect("it was just found");
            if !made.is_detached || self.chance.odds(500) {
                self.with_core(process, |core| core.remove_group(group));
            }
        }
    }

    /// Somebody gives up what has no maker any more.
    pub(crate) fn end_detached_groups(&mut self, process: ProcessIndex) {
        for group in self.detached_groups.clone() {
            self.with_core(process, |core| core.remove_group(group));
        }
    }
}
