//! How a cluster is to grow or shrink: which groups get more replicas, and which replicas may go.
//!
//! - GROWTH-1: no group has more replicas than its maximum: those that are there, those that come, and those that the plan
//!   launches, together.
//! - GROWTH-2: what waits is first given what is free, then what comes, and only then something new.
//! - GROWTH-3: a replica goes only where every host of it has been idle for long enough, nothing of this plan was put
//!   there, and its group keeps its minimum; one of a group that is no more is emptied first.
//! - GROWTH-4: what cannot be met is named, with the reason, and left out; the rest is planned as if it had not been asked.
//! - GROWTH-5: machines with accelerators that a demand does not ask for are the last that it is given, whatever the
//!   family.
//! - GROWTH-6: machines that are in different domains are no answer to who waits for one, nor are more of a group whose
//!   machines came in several.
//!
//! The standing request is held against what machines have in total; what waits, against what is free.

mod domains;
mod gangs;
mod pool;
mod release;
mod unmet;

use std::collections::BTreeMap;

use crate::strategy::{Otherwise, Place, ResourceRequest, Selector, Strategy};
use crate::{Bundle, Group, NodeGroup, NodeView};
pub use domains::SeenDomains;
use oxiray_resources::{Demand, ResourceNeed};
use pool::{Ask, Pool};

/// All that a plan is made from.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// The groups, in the order in which the user named them.
    pub groups: Vec<GroupSituation>,
    /// The replicas of these groups, and of groups that are no more.
    pub replicas: Vec<Replica>,
    /// The machines of the cluster that are alive.
    pub machines: Vec<MachineSituation>,
    /// What waits and cannot be placed now, each kind once.
    pub waiting: Vec<Waiting>,
    /// What is to fit into the cluster whether it is used or not, each kind once.
    pub standing: Vec<(Bundle, u32)>,
}

/// A group, and whether it delivers.
#[derive(Clone, Debug)]
pub struct GroupSituation {
    /// The group.
    pub group: NodeGroup,
    /// Why nothing is asked of it for a while.
    pub set_aside: Option<String>,
    /// In which domains its machines have come, by the label, while somebody waits for a domain.
    pub domains: BTreeMap<String, SeenDomains>,
}

/// A replica of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Its name.
    pub name: String,
    /// Its group's name.
    pub group: String,
    /// How far it is.
    pub state: ReplicaState,
}

/// How far a replica is, as far as a plan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// It was asked for, and its nodes have not all joined.
    Coming,
    /// All of its nodes are there, and something is on one of them.
    InUse,
    /// All of its nodes are there, and nothing has been on any of them for so many milliseconds.
    Idle(u64),
    /// It is being emptied or taken away.
    Leaving,
}

/// A machine of the cluster.
#[derive(Clone, Debug)]
pub struct MachineSituation {
    /// What it has.
    pub view: NodeView,
    /// The replica that it is a host of: its place in [`Situation::replicas`].
    pub replica: Option<usize>,
    /// Nothing new is placed there.
    pub is_leaving: bool,
}

/// Those that wait for the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// One of them, in words: "actor `Trainer`".
    pub who: String,
    /// How many there are.
    pub count: u32,
    /// What each of them waits for.
    pub wanted: GrowthNeed,
}

/// What somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrowthNeed {
    /// MachineResource on a machine.
    ResourceRequest(ResourceRequest),
    /// MachineResource for all bundles of a placement group.
    Group(Group),
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What is to come, in the order of the groups.
    pub launches: Vec<Launch>,
    /// What is to go.
    pub removals: Vec<Removal>,
    /// What cannot be met.
    pub unmet: Vec<Unmet>,
}

/// Replicas that are to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The group's name.
    pub group: String,
    /// How many.
    pub replicas: u32,
    /// For whom, in words.
    pub why: Vec<String>,
}

/// A replica that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Its name.
    pub replica: String,
    /// Its group's name.
    pub group: String,
    /// Why, in words.
    pub why: String,
    /// Whether what runs there is to end by itself first; otherwise it goes only where nothing does.
    pub is_in_use: bool,
}

/// What the plan leaves waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// Who, in words.
    pub who: String,
    /// How many of them.
    pub count: u32,
    /// Why, in words.
    pub why: String,
    /// Whether no group could ever serve it: more of what there is will not help.
    pub is_hopeless: bool,
}

/// Makes the plan.
pub fn plan(situation: &Situation) -> Plan {
    let mut planning = Planning::new(situation);
    planning.serve_standing();
    planning.fill_minimum();
    planning.serve_gangs();
    planning.serve_requests();
    let removals = planning.removals();
    let launches = situation.groups.iter().zip(planning.launched).filter(|(_, launched)| launched.replicas > 0);
    let launches = launches.map(|(of, Launched { replicas, why })| {
        let why = why.into_iter().map(|(who, count)| if count > 1 { format!("{count} x {who}") } else { who });
        Launch { group: of.group.name.clone(), replicas, why: why.collect() }
    });
    Plan { launches: launches.collect(), removals, unmet: planning.unmet }
}

/// What a group is to get.
#[derive(Clone, Debug, Default)]
struct Launched {
    replicas: u32,
    why: BTreeMap<String, u32>,
}

/// A plan as it is made.
struct Planning<'situation> {
    situation: &'situation Situation,
    /// What machines have in total.
    totals: Pool,
    /// What is free on them.
    free: Pool,
    /// By the place of the group.
    launched: Vec<Launched>,
    /// How many more replicas each group may have (GROWTH-1).
    room: Vec<u32>,
    unmet: Vec<Unmet>,
}

impl<'situation> Planning<'situation> {
    fn new(situation: &'situation Situation) -> Self {
        let count = |name: &str| situation.replicas.iter().filter(|replica| replica.group == name).count() as u32;
        let groups = situation.groups.iter();
        let room = groups.map(|of| of.group.max.saturating_sub(count(&of.group.name))).collect();
        Self {
            situation,
            totals: Pool::new(situation, true),
            free: Pool::new(situation, false),
            launched: vec![Launched::default(); situation.groups.len()],
            room,
            unmet: Vec::new(),
        }
    }

    /// Another replica of a group, for `who`.
    fn launch(&mut self, group: usize, who: &str, count: u32) {
        self.room[group] -= 1;
        self.launched[group].replicas += 1;
        self.explain(group, who, count);
        self.totals.open(group);
        self.free.open(group);
    }

    fn explain(&mut self, group: usize, who: &str, count: u32) {
        *self.launched[group].why.entry(who.to_owned()).or_default() += count;
    }

    fn serve_standing(&mut self) {
        let mut standing: Vec<&(Bundle, u32)> = self.situation.standing.iter().collect();
        standing.sort_by_key(|(bundle, _)| std::cmp::Reverse(weight(&bundle.demand, bundle.selector.0.len())));
        for (bundle, count) in standing {
            let ask = self.totals.ask(&bundle.demand, std::slice::from_ref(&bundle.selector));
            let mut left = count - self.totals.place(&ask, *count, 0);
            let who = format!("the standing request of {}", bundle.demand);
            while left > 0
                && let Some(group) = self.best_group(&self.totals, &ask, left)
            {
                let from = self.totals.len();
                self.launch(group, &who, 0);
                let placed = self.totals.place(&ask, left, from);
                self.explain(group, &who, placed);
                left -= placed;
                if placed == 0 {
                    break;
                }
            }
            if left > 0 {
                self.leave_waiting(&who, left, &bundle.demand, std::slice::from_ref(&bundle.selector));
            }
        }
    }

    fn fill_minimum(&mut self) {
        for (index, of) in self.situation.groups.iter().enumerate() {
            let staying = self.situation.replicas.iter();
            let staying =
                staying.filter(|one| one.group == of.group.name && one.state != ReplicaState::Leaving).count() as u32;
            let missing = of.group.min.saturating_sub(staying + self.launched[index].replicas);
            if of.set_aside.is_none() {
                for _ in 0..missing.min(self.room[index]) {
                    self.launch(index, "the group's minimum", 0);
                }
            }
        }
    }

    fn serve_requests(&mut self) {
        let mut resource_requests: Vec<(&Waiting, &ResourceRequest, Vec<Selector>)> = Vec::new();
        for waiting in &self.situation.waiting {
            let GrowthNeed::ResourceRequest(resource_request) = &waiting.wanted else { continue };
            match selectors(resource_request) {
                Some(selectors) => resource_requests.push((waiting, resource_request, selectors)),
                None => self.unmet.push(Unmet {
                    who: described(waiting),
                    count: waiting.count,
                    why: "it waits for one machine in particular".to_owned(),
                    is_hopeless: false,
                }),
            }
        }
        resource_requests.sort_by_key(|(_, resource_request, selectors)| {
            let conditions = selectors.iter().map(|selector| selector.0.len()).max().unwrap_or_default();
            std::cmp::Reverse(weight(&resource_request.demand, conditions))
        });
        for (waiting, resource_request, selectors) in resource_requests {
            let ask = self.free.ask(&resource_request.demand, &selectors);
            let mut left = waiting.count - self.free.place(&ask, waiting.count, 0);
            let who = described(waiting);
            while left > 0
                && let Some(group) = self.best_group(&self.free, &ask, left)
            {
                let from = self.free.len();
                self.launch(group, &who, 0);
                let placed = self.free.place(&ask, left, from);
                self.explain(group, &who, placed);
                left -= placed;
                if placed == 0 {
                    break;
                }
            }
            if left > 0 {
                self.leave_waiting(&who, left, &resource_request.demand, &selectors);
            }
        }
    }

    /// The group of which another replica serves best, of those that may have one.
    fn best_group(&self, pool: &Pool, ask: &Ask, left: u32) -> Option<usize> {
        let groups = self.situation.groups.iter().enumerate();
        let open = groups.filter(|(index, of)| self.room[*index] > 0 && of.set_aside.is_none());
        let ranked = open.filter_map(|(index, of)| {
            let (rank, spared, used) = pool.judge(index, ask, left)?;
            Some((std::cmp::Reverse((rank, spared)), of.group.priority, used, std::cmp::Reverse(index)))
        });
        ranked.max().map(|(_, _, _, std::cmp::Reverse(index))| index)
    }
}

/// The labels under any of which a request may be met, in the order of preference; nothing where it names a machine.
fn selectors(resource_request: &ResourceRequest) -> Option<Vec<Selector>> {
    let anywhere = || vec![Selector::default()];
    let Some(Place { strategy, selectors }) = resource_request.place.as_deref() else { return Some(anywhere()) };
    let selectors = if selectors.is_empty() { anywhere() } else { selectors.clone() };
    match strategy {
        Strategy::Node { otherwise: Otherwise::Wait | Otherwise::Fail, .. } => None,
        Strategy::Node { .. } | Strategy::Default | Strategy::Spread => Some(selectors),
        Strategy::Labels { hard, .. } => {
            let with_hard = |selector: Selector| Selector(selector.0.into_iter().chain(hard.0.clone()).collect());
            Some(selectors.into_iter().map(with_hard).collect())
        }
    }
}

/// What is hardest to place goes first: most conditions, devices before none, most kinds, most of all.
fn weight(demand: &Demand, conditions: usize) -> (usize, u64, usize, u64) {
    let devices = demand.devices().map(|(_, asked)| match asked {
        ResourceNeed::Amount(amount) => amount.units(),
        ResourceNeed::Memory(_) => 1,
    });
    let devices = devices.fold(0, u64::saturating_add);
    let all = demand.iter().map(|(_, asked)| asked.units()).fold(0, u64::saturating_add);
    (conditions, devices, demand.iter().count(), all)
}

/// Who waits and for what, in words.
fn described(waiting: &Waiting) -> String {
    match &waiting.wanted {
        GrowthNeed::ResourceRequest(resource_request) => format!("{} {}", waiting.who, resource_request.demand),
        GrowthNeed::Group(group) => {
            format!("{} {} of {} bundles", waiting.who, group.strategy.name(), group.bundles.len())
        }
    }
}
