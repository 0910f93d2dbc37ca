//! Why something is left waiting.

use oxiray_resources::{Demand, Inventory, amount_in_words};

use super::pool::sum;
use super::{GroupSituation, Planning, Unmet};
use crate::{NodeGroup, Selector};

impl Planning<'_> {
    /// GROWTH-4.
    pub(super) fn leave_waiting(&mut self, who: &str, count: u32, demand: &Demand, selectors: &[Selector]) {
        let never = self.why_never(demand, selectors);
        let is_hopeless = never.is_some();
        let why = never.unwrap_or_else(|| self.what_is_left());
        self.unmet.push(Unmet { who: who.to_owned(), count, why, is_hopeless });
    }

    /// Why no group could ever serve a demand; nothing where one could.
    pub(super) fn why_never(&self, demand: &Demand, selectors: &[Selector]) -> Option<String> {
        let on_machine = self.situation.machines.iter().filter(|machine| !machine.is_leaving);
        let mut on_machine = on_machine.map(|machine| &machine.view);
        if on_machine.any(|view| {
            selectors.iter().any(|one| one.matches(&view.labels)) && view.inventory.could_ever(demand).is_ok()
        }) {
            return None;
        }
        let mut reasons = Vec::new();
        for of in &self.situation.groups {
            reasons.push(format!("`{}` {}", of.group.name, of.group.why_not(demand, selectors)?));
        }
        Some(match reasons.len() {
            0 => "there are no groups".to_owned(),
            _ => format!("no group has such machines: {}", reasons.join("; ")),
        })
    }

    /// What keeps the groups from bringing more.
    pub(super) fn what_is_left(&self) -> String {
        let groups = self.situation.groups.iter().zip(&self.room);
        let reasons = groups.map(|(of, room)| of.what_is_left(*room));
        reasons.collect::<Vec<_>>().join("; ")
    }
}

impl GroupSituation {
    /// What keeps the group from bringing more than so many.
    pub(super) fn what_is_left(&self, room: u32) -> String {
        let name = &self.group.name;
        match &self.set_aside {
            Some(why) => format!("`{name}` is set aside: {why}"),
            None if room == 0 => format!("`{name}` is at its maximum of {}", self.group.max),
            None => format!("`{name}` may have {room} more"),
        }
    }
}

impl NodeGroup {
    /// What the first host of each replica offers.
    pub fn first_host_offers(&self) -> Inventory {
        sum(&self.resources, &self.first_host)
    }

    /// Why no machine of this group could ever meet the demand under any of these labels; nothing where one could.
    pub fn why_not(&self, demand: &Demand, selectors: &[Selector]) -> Option<String> {
        if self.max == 0 {
            return Some("may have no machines: its `max` is 0".to_owned());
        }
        if let Err(never) = self.first_host_offers().could_ever(demand) {
            let [total, asked] = [never.total, never.asked].map(|amount| amount_in_words(&never.resource, amount));
            return Some(format!("has {total} {}, and {asked} is asked for", never.resource.as_option()));
        }
        let matches = |selector: &Selector| selector.matches(&self.labels);
        if selectors.is_empty() || selectors.iter().any(matches) {
            return None;
        }
        let wanted: Vec<String> = selectors.iter().map(ToString::to_string).collect();
        Some(format!("has no labels where {}", wanted.join(", or ")))
    }
}
