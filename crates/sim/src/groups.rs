//! Placement groups as their makers see them.
//!
//! - MAKER-1: a question about a group is answered once.

use crate::agenda::{Micros, SECOND};
use crate::client::Question;
use crate::program::{amounts, bytes};
use crate::world::{ProcessIndex, World};
use bytes::Bytes;
use oxiray_wire::message::{GroupAnswer, GroupAwait, GroupBundle, GroupCreate, GroupRemove, Strategy};

/// The kind of [`Strategy`] that names a placement group.
pub(crate) const WITHIN: u32 = 4;

/// What groups reserve.
const BUNDLES: [&[&[(&str, u64)]]; 5] = [
    &[&[("CPU", 10_000)]],
    &[&[("CPU", 10_000)], &[("CPU", 10_000)]],
    &[&[("CPU", 10_000), ("GPU", 10_000)], &[("CPU", 10_000)]],
    &[&[("CPU", 5_000), ("GPU", 5_000)], &[("CPU", 5_000), ("GPU", 5_000)], &[("CPU", 10_000)]],
    &[&[("CPU", 90_000)]],
];

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
        let mut id = [0; 18];
        id[..8].copy_from_slice(&self.chance.seed().to_be_bytes());
        id[14..].copy_from_slice(&self.client(process).job[..4]);
        let group = bytes(&id);
        let bundles = self.chance.one_of(&BUNDLES);
        let told = bundles.iter().map(|demand| GroupBundle { demand: amounts(demand), conditions: Vec::new() });
        let ends_at = self.now + self.chance.delay(3 * SECOND);
        let detached = self.chance.odds(100);
        let client = self.client(process);
        let request = client.new_number();
        client.questions.insert(request, Question::Group(detached.then(|| group.clone())));
        client.groups.insert(group.clone(), Made { bundles: bundles.len() as u32, ends_at, is_detached: detached });
        let strategy = self.chance.one_of(&["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]).to_owned();
        // Runtimes ask so of groups that end with them.
        let tells_when_created = self.chance.odds(500);
        if detached {
            self.detached_groups.push(group.clone());
        }
        let asked = GroupCreate {
            request,
            group: group.clone(),
            strategy,
            bundles: told.collect(),
            detached,
            tells_when_created,
            ..GroupCreate::default()
        };
        self.say(process, asked);
        if !tells_when_created && self.chance.odds(500) {
            let client = self.client(process);
            let request = client.new_number();
            client.questions.insert(request, Question::Group(None));
            self.say(process, GroupAwait { request, group });
        }
    }

    pub(crate) fn group_answered(&mut self, process: ProcessIndex, said: &GroupAnswer) {
        let question = self.client(process).questions.remove(&said.request);
        let Some(Question::Group(made)) = question else {
            panic!("MAKER-1: a question about a group is answered once")
        };
        // One that was given up at once may be off the disk again.
        let groups = &self.client(process).groups;
        if let Some(group) = made.filter(|group| said.failure.is_none() && groups.contains_key(group)) {
            self.check_row("a placement group", &group);
        }
    }

    /// A place within one of the process's groups.
    pub(crate) fn within(&mut self, process: ProcessIndex) -> Option<Strategy> {
        let groups: Vec<(Bytes, u32)> =
            self.client(process).groups.iter().map(|(group, made)| (group.clone(), made.bundles)).collect();
        let index = self.chance.between(0, groups.len() as u64) as usize;
        let (group, bundles) = groups.get(index)?.clone();
        let bundle = self.chance.between(0, u64::from(bundles)) as u32;
        Some(Strategy { kind: WITHIN, group, bundle, captures: self.chance.odds(300), ..Strategy::default() })
    }

    /// A driver gives its groups up in their time.
    pub(crate) fn tend_groups(&mut self, process: ProcessIndex) {
        let (is_late, now) = (self.is_calm, self.now);
        let is_over = |made: &Made| is_late || now >= made.ends_at;
        let groups = &self.client(process).groups;
        let over: Vec<Bytes> =
            groups.iter().filter(|(_, made)| is_over(made)).map(|(group, _)| group.clone()).collect();
        for group in over {
            let made = self.client(process).groups.remove(&group).expect("it was just found");
            if !made.is_detached || self.chance.odds(500) {
                self.say(process, GroupRemove { group });
            }
        }
    }

    /// Somebody gives up what has no maker any more.
    pub(crate) fn end_detached_groups(&mut self, process: ProcessIndex) {
        for group in self.detached_groups.clone() {
            self.say(process, GroupRemove { group });
        }
    }
}
