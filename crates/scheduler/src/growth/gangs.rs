//! Placement groups: room for all bundles, or nothing is launched for any.

use std::cmp::Reverse;

use super::domains::within;
use super::pool::{Ask, Before};
use super::{GrowthNeed, Planning, Unmet, Waiting, described, weight};
use crate::{Bundle, Group, GroupStrategy};

impl Planning<'_> {
    pub(super) fn serve_gangs(&mut self) {
        let gangs = self.situation.waiting.iter().filter_map(|waiting| match &waiting.wanted {
            GrowthNeed::Group(group) => Some((waiting, group)),
            GrowthNeed::ResourceRequest(_) => None,
        });
        let mut gangs: Vec<(&Waiting, &Group)> = gangs.collect();
        gangs.sort_by_key(|(_, group)| Reverse(group.bundles.len()));
        for (waiting, group) in gangs {
            let who = described(waiting);
            for served in 0..waiting.count {
                if !self.serve_gang(group, &who) {
                    self.leave_gang(group, &who, waiting.count - served);
                    break;
                }
            }
        }
    }

    fn serve_gang(&mut self, group: &Group, who: &str) -> bool {
        let mut bundles: Vec<&Bundle> = group.bundles.iter().collect();
        bundles.sort_by_key(|bundle| Reverse(weight(&bundle.demand, bundle.selector.0.len())));
        let (Some(label), Some(largest)) = (&group.domain, bundles.first()) else {
            return self.serve_bundles(&bundles, group.strategy, None, who);
        };
        let largest = self.free.ask(&largest.demand, &[]);
        let domains = self.free.domains(label, &largest);
        domains.iter().any(|value| self.serve_bundles(&bundles, group.strategy, Some((label, value)), who))
    }

    /// Wherever there is room, or within a domain: a label and its value.
    fn serve_bundles(
        &mut self,
        bundles: &[&Bundle],
        strategy: GroupStrategy,
        domain: Option<(&str, &str)>,
        who: &str,
    ) -> bool {
        let free = &mut self.free;
        let asks = bundles.iter().map(|bundle| match domain {
            None => free.ask(&bundle.demand, std::slice::from_ref(&bundle.selector)),
            Some((label, value)) => free.ask(&bundle.demand, &[within(&bundle.selector, label, value)]),
        });
        let asks: Vec<Ask> = asks.collect();
        match strategy {
            GroupStrategy::StrictPack => self.gang_together(&asks, who),
            GroupStrategy::Pack => self.gang_together(&asks, who) || self.gang_anywhere(&asks, who, false),
            GroupStrategy::StrictSpread => self.gang_anywhere(&asks, who, true),
            GroupStrategy::Spread => self.gang_anywhere(&asks, who, false),
        }
    }

    /// On one machine.
    fn gang_together(&mut self, asks: &[Ask], who: &str) -> bool {
        let asks: Vec<&Ask> = asks.iter().collect();
        if self.free.place_together(&asks) {
            return true;
        }
        let groups = self.situation.groups.iter().enumerate();
        let open = groups.filter(|(index, of)| self.room[*index] > 0 && of.set_aside.is_none());
        let serving = open.filter(|(index, _)| self.free.has_together(*index, &asks));
        let Some((group, _)) = serving.max_by_key(|(index, of)| (of.group.priority, Reverse(*index))) else {
            return false;
        };
        self.launch(group, who, 1);
        self.free.place_together(&asks)
    }

    /// Bundle after bundle, each on a machine of its own where they are to be apart.
    fn gang_anywhere(&mut self, asks: &[Ask], who: &str, is_apart: bool) -> bool {
        let (mut before, mut chosen) = (Before::default(), Vec::with_capacity(asks.len()));
        let mut opened = Vec::new();
        let len = self.free.len();
        for ask in asks {
            let apart_from = if is_apart { &chosen[..] } else { &[] };
            let mut found = self.free.place_one(ask, apart_from, &mut before);
            if found.is_none()
                && let Some(group) = self.best_group(&self.free, ask, 1)
            {
                self.room[group] -= 1;
                self.free.open(group);
                opened.push(group);
                found = self.free.place_one(ask, apart_from, &mut before);
            }
            let Some(bin) = found else {
                self.free.restore(before);
                self.free.close(len);
                for group in opened {
                    self.room[group] += 1;
                }
                return false;
            };
            chosen.push(bin);
        }
        self.free.use_all(&chosen);
        for group in &opened {
            self.launched[*group].replicas += 1;
            self.totals.open(*group);
        }
        opened.sort_unstable();
        opened.dedup();
        for group in opened {
            self.explain(group, who, 1);
        }
        true
    }

    /// That no machine has room for all bundles of a group that are to be on one.
    fn why_not_together(&mut self, group: &Group) -> Option<String> {
        if group.strategy != GroupStrategy::StrictPack {
            return None;
        }
        let free = &mut self.free;
        let asks = group.bundles.iter().map(|bundle| free.ask(&bundle.demand, std::slice::from_ref(&bundle.selector)));
        let asks: Vec<Ask> = asks.collect();
        let asks: Vec<&Ask> = asks.iter().collect();
        let could = |index: usize| self.situation.groups[index].group.max > 0 && self.free.has_together(index, &asks);
        let views = self.situation.machines.iter().filter(|machine| !machine.is_leaving);
        let emptied: Vec<crate::NodeView> = views.map(|machine| machine.view.emptied()).collect();
        if (0..self.situation.groups.len()).any(could)
            || matches!(crate::place_group(&emptied, group), crate::GroupPlacement::On(_))
        {
            return None;
        }
        Some("all of its bundles are to be on one machine, and no group has one with so much".to_owned())
    }

    fn leave_gang(&mut self, group: &Group, who: &str, count: u32) {
        let alone = group.bundles.iter().find_map(|bundle| {
            let why = self.why_never(&bundle.demand, std::slice::from_ref(&bundle.selector))?;
            Some(format!("for the bundle {}, {why}", bundle.demand))
        });
        let alone = alone.or_else(|| self.why_not_together(group)).or_else(|| self.why_no_domain(group));
        let is_hopeless = alone.is_some();
        let why = alone.unwrap_or_else(|| match &group.domain {
            Some(label) => self.what_is_left_of(label),
            None => {
                format!("all of its bundles go at once, and the groups cannot bring so much: {}", self.what_is_left())
            }
        });
        self.unmet.push(Unmet { who: who.to_owned(), count, why, is_hopeless });
    }
}
