//! The autoscaler's fleet under a seed: a cloud that answers late, twice or never, refuses, and loses machines; a head
//! that is told of late; and jobs that come, run and end.
//!
//! - CLOUD-1: a group is never asked for more replicas than its maximum: those that it has, and those that may still come.
//! - CLOUD-2: no machine is taken away on which a job runs.
//! - CLOUD-3: when the cloud is well again every job runs, and then every replica above its group's minimum goes.

use crate::chance::Chance;
use oxiray_autoscaler::{Act, Failed, Fleet, INSTANCE_LABEL, Instance, InstanceState, Limits, RoundView};
use oxiray_wire::state::{GroupEntry, GrowthView, MachineRecord, WaitingRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// For how long things go wrong, and how long all may take to come to rest then.
const STORM: Duration = Duration::from_secs(2_000);
const CALM: Duration = Duration::from_secs(20_000);

/// One host of a replica.
#[derive(Debug)]
struct Host {
    replica: String,
    group: usize,
    number: u32,
    request: String,
    /// When its node joins, if ever.
    joins: Option<Duration>,
    node: Node,
    /// When it is gone, where it is being taken away.
    goes: Option<Duration>,
}

/// A host's node, at the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Absent,
    Alive { is_draining: bool },
    Gone,
}

#[derive(Debug)]
struct Job {
    group: usize,
    on: Option<String>,
    ends: Duration,
    length: u64,
}

struct Cloud {
    chance: Chance,
    now: Duration,
    fleet: Fleet,
    groups: Vec<GroupEntry>,
    hosts: BTreeMap<String, Host>,
    jobs: Vec<Job>,
    /// What every request is for, and how many replicas it has brought.
    requests: BTreeMap<String, (usize, u32, u32)>,
    /// Launches that are on their way to the cloud.
    late: Vec<(Duration, String)>,
    failed: Vec<Failed>,
    told: GrowthView,
    uses: BTreeMap<String, u64>,
    is_stormy: bool,
    last: u32,
}

/// Runs a seed to its end; panics where something does not hold. Returns how many machines there have been.
pub fn run_cloud(seed: u64) -> u32 {
    let mut chance = Chance::new(seed);
    let groups = (0..chance.between(1, 3)).map(|number| group(number, &mut chance)).collect();
    let mut cloud = Cloud {
        now: Duration::from_secs(1),
        fleet: Fleet::new(Limits::default(), "r"),
        groups,
        hosts: BTreeMap::new(),
        jobs: Vec::new(),
        requests: BTreeMap::new(),
        late: Vec::new(),
        failed: Vec::new(),
        told: GrowthView::default(),
        uses: BTreeMap::new(),
        is_stormy: true,
        last: 0,
        chance,
    };
    while cloud.now < STORM {
        cloud.step();
    }
    cloud.is_stormy = false;
    while cloud.now < STORM + CALM && !cloud.rests() {
        cloud.step();
    }
    assert!(cloud.rests(), "CLOUD-3: {} jobs, hosts {:?}", cloud.jobs.len(), cloud.hosts);
    cloud.last
}

fn group(number: u64, chance: &mut Chance) -> GroupEntry {
    let max = chance.between(1, 4) as u32;
    GroupEntry {
        name: format!("g{number}"),
        min: u32::from(chance.odds(200)),
        max,
        hosts: chance.between(1, 3) as u32,
        resources: BTreeMap::from([(format!("kind{number}"), 2.0)]),
        first_host: BTreeMap::new(),
        labels: BTreeMap::new(),
        priority: 0,
        idle_timeout_s: chance.between(1, 90) as f64,
    }
}

impl Cloud {
    fn step(&mut self) {
        self.now += Duration::from_millis(self.chance.between(50, 8_000));
        self.live();
        if !self.is_stormy || self.chance.odds(800) {
            self.told = self.tell();
        }
        let instances = self.list();
        let failed = std::mem::take(&mut self.failed);
        let seen = RoundView { groups: &self.groups, instances: &instances, failed: &failed, told: &self.told };
        let acts = self.fleet.round(self.now, &seen).expect("what is told can be read");
        self.fleet.take_events();
        for act in acts {
            self.carry_out(act);
        }
    }

    /// What happens by itself: nodes join, jobs come and end, machines go.
    fn live(&mut self) {
        let due = |at: &Duration| *at <= self.now;
        let launches: Vec<String> = self.late.iter().filter(|(at, _)| due(at)).map(|(_, name)| name.clone()).collect();
        self.late.retain(|(at, _)| *at > self.now);
        for request in launches {
            self.bring(&request);
        }
        let leaving = self.fleet.leaving();
        for (id, host) in &mut self.hosts {
            if host.node == Node::Absent && host.joins.is_some_and(|at| at <= self.now) {
                host.node = Node::Alive { is_draining: leaving.contains(id) };
            }
        }
        let now = self.now;
        self.jobs.retain(|job| job.on.is_none() || job.ends > now);
        self.take_away();
        if self.is_stormy {
            self.go_wrong();
        }
        self.place();
        self.end_drained();
    }

    fn take_away(&mut self) {
        let gone: BTreeSet<String> = self
            .hosts
            .iter()
            .filter(|(_, host)| host.goes.is_some_and(|at| at <= self.now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &gone {
            let running = self.jobs.iter().filter(|job| job.on.as_ref() == Some(id)).count();
            assert_eq!(running, 0, "CLOUD-2: {id}");
        }
        self.hosts.retain(|id, _| !gone.contains(id));
    }

    fn go_wrong(&mut self) {
        if self.chance.odds(300) {
            let group = self.chance.between(0, self.groups.len() as u64 - 1) as usize;
            let length = self.chance.between(1, 200);
            self.jobs.push(Job { group, on: None, ends: Duration::ZERO, length });
        }
        let ids: Vec<String> = self.hosts.keys().cloned().collect();
        for id in ids {
            if self.chance.odds(3) {
                // Its machine dies; who ran there runs again elsewhere.
                self.lose(&id);
                if self.chance.odds(500) {
                    self.hosts.remove(&id);
                }
            }
        }
    }

    fn lose(&mut self, id: &str) {
        if let Some(host) = self.hosts.get_mut(id) {
            host.node = Node::Gone;
        }
        self.jobs.iter_mut().filter(|job| job.on.as_deref() == Some(id)).for_each(|job| job.on = None);
    }

    fn place(&mut self) {
        for index in 0..self.jobs.len() {
            let job = &self.jobs[index];
            if job.on.is_some() {
                continue;
            }
            let has_room = |id: &str| self.jobs.iter().filter(|job| job.on.as_deref() == Some(id)).count() < 2;
            let fits = |(id, host): &(&String, &Host)| {
                host.group == job.group && host.node == Node::Alive { is_draining: false } && has_room(id)
            };
            let Some(id) = self.hosts.iter().find(fits).map(|(id, _)| id.clone()) else { continue };
            *self.uses.entry(id.clone()).or_default() += 1;
            let job = &mut self.jobs[index];
            (job.on, job.ends) = (Some(id), self.now + Duration::from_secs(job.length));
        }
    }

    fn end_drained(&mut self) {
        for (id, host) in &mut self.hosts {
            let is_free = self.jobs.iter().all(|job| job.on.as_ref() != Some(id));
            if host.node == (Node::Alive { is_draining: true }) && is_free {
                host.node = Node::Gone;
            }
        }
    }

    fn tell(&self) -> GrowthView {
        let machines = self.hosts.iter().filter_map(|(id, host)| {
            let Node::Alive { is_draining } = host.node else { return None };
            let used = self.jobs.iter().filter(|job| job.on.as_ref() == Some(id)).count();
            let kind = format!("kind{}", host.group);
            Some(MachineRecord {
                node_id: id.clone(),
                labels: BTreeMap::from([(INSTANCE_LABEL.to_owned(), id.clone())]),
                resources: BTreeMap::from([(kind.clone(), 2.0)]),
                free: Some(BTreeMap::from([(kind, 2.0 - used as f64)]).into()),
                is_leaving: is_draining,
                in_use: used > 0,
                uses: self.uses.get(id).copied().unwrap_or_default(),
                ..MachineRecord::default()
            })
        });
        let waiting = (0..self.groups.len()).filter_map(|group| {
            let count = self.jobs.iter().filter(|job| job.group == group && job.on.is_none()).count() as u32;
            (count > 0).then(|| WaitingRecord {
                who: format!("job of group {group}"),
                count,
                resources: BTreeMap::from([(format!("kind{group}"), 1.0)]),
                ..WaitingRecord::default()
            })
        });
        GrowthView { machines: machines.collect(), waiting: waiting.collect(), standing: Vec::new() }
    }

    fn list(&self) -> Vec<Instance> {
        let instance = |(id, host): (&String, &Host)| Instance {
            id: id.clone(),
            group: self.groups[host.group].name.clone(),
            replica: host.replica.clone(),
            host: host.number,
            request: Some(host.request.clone()),
            state: InstanceState::Running,
            detail: String::new(),
        };
        self.hosts.iter().map(instance).collect()
    }

    fn carry_out(&mut self, act: Act) {
        match act {
            Act::Launch { group, replicas, request } => self.launch(&group, replicas, &request),
            Act::Terminate { replicas, .. } => {
                if self.is_stormy && self.chance.odds(200) {
                    return;
                }
                let goes = self.now + Duration::from_millis(self.chance.between(0, 30_000));
                for host in self.hosts.values_mut().filter(|host| replicas.contains(&host.replica)) {
                    host.goes.get_or_insert(goes);
                }
            }
            Act::Drain { node, only_if_idle, .. } => self.drain(&node, only_if_idle),
            Act::Keep { node } => {
                if let Some(host) = self.hosts.get_mut(&node).filter(|host| matches!(host.node, Node::Alive { .. })) {
                    host.node = Node::Alive { is_draining: false };
                }
            }
        }
    }

    fn drain(&mut self, node: &str, only_if_idle: bool) {
        let is_used = self.jobs.iter().any(|job| job.on.as_deref() == Some(node));
        if only_if_idle && is_used {
            for act in self.fleet.drain_refused(self.now, node, "a job runs there") {
                self.carry_out(act);
            }
            return;
        }
        if let Some(host) = self.hosts.get_mut(node).filter(|host| matches!(host.node, Node::Alive { .. })) {
            host.node = Node::Alive { is_draining: true };
        }
    }

    fn launch(&mut self, group: &str, replicas: u32, request: &str) {
        let group = self.groups.iter().position(|entry| entry.name == group).expect("a group that there is");
        self.requests.entry(request.to_owned()).or_insert((group, replicas, 0));
        self.count_asked(group);
        if self.is_stormy {
            if self.chance.odds(150) {
                // Never.
                return;
            }
            if self.chance.odds(100) {
                let asked = &self.requests[request];
                let missing = asked.1 - asked.2;
                let name = self.groups[group].name.clone();
                self.requests.insert(request.to_owned(), (group, asked.2, asked.2));
                let text = "the quota is used up".to_owned();
                return self.failed.push(Failed::Launch {
                    group: name,
                    request: request.to_owned(),
                    replicas: missing,
                    text,
                });
            }
            if self.chance.odds(300) {
                // Late, and perhaps asked for again meanwhile: the cloud then hears it twice.
                let at = self.now + Duration::from_secs(self.chance.between(1, 300));
                return self.late.push((at, request.to_owned()));
            }
        }
        self.bring(request);
    }

    /// CLOUD-1.
    fn count_asked(&self, group: usize) {
        let there: BTreeSet<&String> =
            self.hosts.values().filter(|host| host.group == group).map(|host| &host.replica).collect();
        let requests = self.requests.values().filter(|(of, ..)| *of == group);
        let may_come: u32 = requests.map(|(_, wanted, brought)| wanted - brought).sum();
        let max = self.groups[group].max;
        assert!(there.len() as u32 + may_come <= max, "CLOUD-1: {there:?} and {may_come} more, at most {max}");
    }

    /// What is still missing of a request, all of it or a part.
    fn bring(&mut self, request: &str) {
        let Some((group, wanted, brought)) = self.requests.get(request).copied() else { return };
        let mut missing = wanted - brought;
        if self.is_stormy && missing > 1 && self.chance.odds(300) {
            missing -= 1;
        }
        self.requests.insert(request.to_owned(), (group, wanted, brought + missing));
        for _ in 0..missing {
            self.last += 1;
            let replica = format!("{}-{}", self.groups[group].name, self.last);
            for number in 0..self.groups[group].hosts {
                let never = self.is_stormy && self.chance.odds(30);
                let joins = self.now + Duration::from_millis(self.chance.between(10, 60_000));
                let host = Host {
                    replica: replica.clone(),
                    group,
                    number,
                    request: request.to_owned(),
                    joins: (!never).then_some(joins),
                    node: Node::Absent,
                    goes: None,
                };
                self.hosts.insert(format!("{replica}-{number}"), host);
            }
        }
    }

    /// No job is left, and no replica that nobody needs.
    fn rests(&self) -> bool {
        let count = |index: usize| {
            let of_group = self.hosts.values().filter(|host| host.group == index);
            of_group.map(|host| &host.replica).collect::<BTreeSet<_>>().len() as u32
        };
        self.jobs.is_empty() && self.groups.iter().enumerate().all(|(index, entry)| count(index) == entry.min)
    }
}
