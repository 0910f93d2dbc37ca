//! What processes count and measure: taken in, and shown beside what the head knows of the cluster.

use super::HeadCore;
use crate::amounts::{available_of, by_name, total_of};
use crate::chronicle::{RETURN_STEPS_S, Returns};
use crate::demands::Need;
use crate::growth::Growth;
use crate::machine_gauges::MachineGauges;
use crate::members::Member;
use crate::metrics::{ClusterGauge, ClusterHistogram, ClusterSample, MetricKind as Kind, Sample, Tags};
use crate::workers::{Duty, Worker};
use oxiray_ids::JobId;
use oxiray_machine::Key;
use oxiray_resources::{Demand, ResourceName};
use oxiray_scheduler::{Fleet, Found};
use oxiray_state::{actor_state, is_pending};
use oxiray_wire::message::{MetricKind, MetricSample, Metrics, MetricsQuery, MetricsReport};
use oxiray_wire::state::{ActorPhase, ChronicleEntry, ChronicleEvent, DemandKind, ExitKind};
use std::collections::{BTreeMap, BTreeSet};

/// The version of Ray whose names these are.
const RAY_VERSION: &str = "2.60.0";
/// Of how many different requests that wait it is looked up why.
const LOOKS_MAX: usize = 256;
/// How many names of tasks or actors of one job have series of their own.
const NAMES_MAX: usize = 200;
/// What stands for the others.
const OTHER_NAMES: &str = "other";
/// The label that says which group a node belongs to, and what stands for it where it belongs to none.
const GROUP_LABEL: &str = "ray.io/node-group";
const NO_GROUP: &str = "node";

/// How many there are of each state, name and job.
type Counts = BTreeMap<(&'static str, String, String, String), usize>;

impl HeadCore {
    /// A process tells what it recorded.
    pub(super) fn metrics_told(&mut self, from: Key, told: Metrics) {
        let Some(by) = self.clients.id_of(from) else { return };
        for (name, text) in self.figures.training.reported(&told.samples, self.clock.wall_ms) {
            let (event, job) = (ChronicleEvent::TrainReported, self.clients.job_of(from));
            self.note(ChronicleEntry { event, job, worker: Some(by), name, text, ..ChronicleEntry::default() });
        }
        for sample in told.samples.into_iter().map(sample_of) {
            if let Err(reason) = self.figures.metrics.record(by, sample) {
                self.log(format!("metric {reason}"));
            }
        }
    }

    /// Somebody asks for metrics.
    pub(crate) fn metrics_query(&mut self, asker: Key, asked: &MetricsQuery) {
        let own = self.members.member_with(asker);
        let is_of_head = own == crate::members::OWN;
        let mut gauges: Vec<ClusterSample> = Vec::new();
        let mut histograms: Vec<ClusterHistogram> = Vec::new();
        for (key, member) in self.members.by_key.iter().filter(|(key, _)| **key == own || !asked.is_export) {
            let place = MachineGauges::of(member, *key == crate::members::OWN);
            gauges.extend(place.offers());
            histograms.extend(place.turns());
            if *key == own {
                gauges.extend(place.measures());
                gauges.extend(place.components(&self.names_of_workers(own)));
                gauges.extend(place.devices());
            }
        }
        if is_of_head || !asked.is_export {
            gauges.extend(self.gauges_of_cluster(asked.leaves_names_out));
            gauges.extend(self.gauges_of_waiting());
            gauges.extend(self.gauges_of_grants());
            histograms.extend(self.returns_of_devices());
        }
        let common: Tags = if asked.is_export { self.common_tags() } else { Tags::new() };
        let has_recorded = is_of_head || !asked.is_export;
        let report = MetricsReport {
            request: asked.request,
            text: self.figures.metrics.text(gauges, histograms, has_recorded, &common),
            notes: self.figures.metrics.notes().collect(),
        };
        self.send(asker, report);
    }

    /// Of everything that the nodes of this session export.
    fn common_tags(&self) -> Tags {
        let session = self.own.session().rsplit('/').next().unwrap_or_default();
        [("SessionName", session), ("Version", RAY_VERSION)].map(|(key, value)| (key.into(), value.into())).into()
    }

    /// What each worker of a member runs, by its process.
    fn names_of_workers(&self, member: Key) -> BTreeMap<u32, &str> {
        let workers = self.workers.by_key.iter().filter(|(key, _)| self.members.member_with(**key) == member);
        workers.filter_map(|(_, worker)| Some((worker.pid?, worker.label.as_str()))).collect()
    }

    fn gauges_of_cluster(&self, leaves_names_out: bool) -> Vec<ClusterSample> {
        let jobs = self.jobs.known.iter().filter(|job| job.end.is_none()).count();
        let groups = counted(self.groups.known.iter().map(|group| group.phase.state().name()));
        let ended = (self.jobs.known.last_number() as usize).saturating_sub(jobs);
        let mut gauges = vec![
            (ClusterGauge::RunningJobs, Vec::new(), jobs as f64),
            (ClusterGauge::FinishedJobs, Vec::new(), ended as f64),
        ];
        gauges.extend(groups.into_iter().map(|(state, count)| {
            let tags = vec![("Source", "gcs".to_owned()), ("State", state.to_owned())];
            (ClusterGauge::PlacementGroups, tags, count as f64)
        }));
        gauges.extend(self.jobs.known.iter().filter(|job| job.end.is_some()).map(|job| {
            let seconds = job.ended_ms.saturating_sub(job.facts.started_ms) as f64 / 1e3;
            (ClusterGauge::JobDuration, vec![("JobId", job.id.hex())], seconds)
        }));
        let actors = self.actor_counts();
        // Those that are somewhere, by where they are.
        let placed = actors.iter().filter(|((.., address), _)| !address.is_empty());
        let placed = placed.map(|(series, count)| (series.clone(), *count)).collect();
        gauges.extend(named(ClusterGauge::Actors, &[("Source", "executor")], placed, leaves_names_out));
        gauges.extend(named(ClusterGauge::Actors, &[("Source", "gcs")], actors, leaves_names_out));
        for (is_retry, digit) in [(false, "0"), (true, "1")] {
            let (running, ended) =
                ([("IsRetry", digit), ("Source", "executor")], [("IsRetry", digit), ("Source", "owner")]);
            gauges.extend(named(ClusterGauge::Tasks, &running, self.task_counts(is_retry), leaves_names_out));
            gauges.extend(named(ClusterGauge::Tasks, &ended, self.ended_counts(is_retry), leaves_names_out));
        }
        gauges.extend(self.figures.ends.unwanted().map(|((kind, duty, name, address), count)| {
            let out_of_memory = *kind == ExitKind::OutOfMemory;
            let gauge = if out_of_memory { ClusterGauge::WorkerEvictions } else { ClusterGauge::WorkerFailures };
            let tags = [("Name", name.clone()), ("NodeAddress", address.clone()), ("Type", duty.name().to_owned())];
            (gauge, tags.into(), count as f64)
        }));
        let dropped = self.figures.readers.missed;
        gauges.push((ClusterGauge::ChronicleDropped, Vec::new(), dropped as f64));
        let quarantined = self.figures.chronicle.device_time.quarantined();
        gauges.extend(quarantined.map(|(cause, count)| {
            (ClusterGauge::Quarantined, vec![("reason", cause.name().to_owned())], count as f64)
        }));
        gauges.extend(self.gauges_of_growth());
        gauges
    }

    fn actor_counts(&self) -> Counts {
        let mut counts = Counts::new();
        for actor in self.actors.known.iter() {
            let worker = actor.worker().and_then(|worker| self.clients.keys.get(&worker)).copied();
            let lives = actor.state.phase() != ActorPhase::Dead;
            let address = worker.filter(|_| lives).map(|key| self.members.ip_of(key).to_owned()).unwrap_or_default();
            let description = &actor.description;
            let name = description.class_name.clone();
            *counts.entry((actor_state(actor.state.phase()), name, description.job.hex(), address)).or_default() += 1;
        }
        counts
    }

    /// Tasks that run, as their first attempts or as later ones, and those whose owners asked for a worker and have none. An owner
    /// asks for a worker for any of its tasks that are alike: that no attempt was made before is true of most.
    fn task_counts(&self, is_retry: bool) -> Counts {
        let mut counts = Counts::new();
        let runs = |worker: &Worker| matches!(worker.duty, Duty::Leased(_)) && worker.runs_retry == is_retry;
        for (key, worker) in self.workers.by_key.iter().filter(|(_, worker)| runs(worker)) {
            let address = self.members.ip_of(*key).to_owned();
            *counts.entry(("RUNNING", worker.label.clone(), worker.job.hex(), address)).or_default() += 1;
        }
        for waiting in self.pending.queue.waiting().filter(|_| !is_retry) {
            let Some(wanted) = self.pending.wanted.get(waiting.oldest) else { continue };
            if wanted.want.kind() == DemandKind::Task {
                let entry = ("PENDING_NODE_ASSIGNMENT", wanted.label.clone(), String::new(), String::new());
                *counts.entry(entry).or_default() += waiting.count;
            }
        }
        counts
    }

    /// Attempts of tasks and calls that ended: the first ones of each, or those after.
    fn ended_counts(&self, is_retry: bool) -> Counts {
        let mut counts = Counts::new();
        for (alike, count) in self.figures.ended_tasks.iter().filter(|(alike, _)| alike.is_retry == is_retry) {
            let job = alike.job.map(|job| job.hex()).unwrap_or_default();
            let name = if alike.name.is_empty() { OTHER_NAMES } else { &alike.name };
            let known = counts.entry((alike.state(), name.to_owned(), job, String::new())).or_default();
            *known = known.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
        }
        counts
    }

    /// For how long devices were granted, by whose grants they were.
    fn gauges_of_grants(&mut self) -> Vec<ClusterSample> {
        let granted = self.figures.chronicle.device_time.granted_seconds(self.clock.wall_ms);
        let one = |(resource, job, seconds): (&str, Option<JobId>, f64)| {
            let job = job.map(|job| job.hex()).unwrap_or_default();
            (ClusterGauge::GrantSeconds, vec![("job", job), ("resource", resource.to_owned())], seconds)
        };
        granted.map(one).collect()
    }

    fn returns_of_devices(&self) -> Vec<ClusterHistogram> {
        let returns = self.figures.chronicle.device_time.returns();
        let one = |(resource, returns): (&str, &Returns)| ClusterHistogram {
            gauge: ClusterGauge::DeviceReturn,
            tags: vec![("resource", resource.to_owned())],
            boundaries: RETURN_STEPS_S.to_vec(),
            counts: returns.counts.to_vec(),
            sum: returns.seconds,
        };
        returns.map(one).collect()
    }

    fn gauges_of_waiting(&mut self) -> Vec<ClusterSample> {
        let mut by_kind: BTreeMap<DemandKind, (usize, f64)> = BTreeMap::new();
        let mut by_reason: BTreeMap<(DemandKind, WaitReason, String), usize> = BTreeMap::new();
        let mut wanted_amounts: BTreeMap<String, f64> = BTreeMap::new();
        for (number, waiting) in self.pending.queue.waiting().enumerate() {
            let Some(wanted) = self.pending.wanted.get(waiting.oldest) else { continue };
            let (count, oldest_s) = by_kind.entry(wanted.want.kind()).or_default();
            let seconds = self.clock.now.saturating_duration_since(wanted.since).as_secs_f64();
            (*count, *oldest_s) = (*count + waiting.count, oldest_s.max(seconds));
            let reason = match number {
                0..LOOKS_MAX => WaitReason::of(waiting.resource_request, &mut self.members.fleet, &self.growth),
                _ => WaitReason::Unexamined,
            };
            let kept = (wanted.want.kind(), reason, sought(waiting.resource_request));
            *by_reason.entry(kept).or_default() += waiting.count;
            let demand = waiting.resource_request.demand().map(|demand| by_name(demand.iter()));
            for (name, amount) in demand.into_iter().flatten() {
                *wanted_amounts.entry(name).or_default() += amount * waiting.count as f64;
            }
        }
        let mut unscheduled = BTreeMap::from([(WaitReason::Busy.in_words_of_ray(), 0)]);
        for ((_, reason, _), count) in by_reason.iter().filter(|((kind, ..), _)| *kind == DemandKind::Task) {
            *unscheduled.entry(reason.in_words_of_ray()).or_default() += *count;
        }
        let reason = |(reason, count): (&str, usize)| {
            (ClusterGauge::Unscheduled, vec![("Reason", reason.to_owned())], count as f64)
        };
        let mut gauges: Vec<ClusterSample> = unscheduled.into_iter().map(reason).collect();
        gauges.extend(by_reason.into_iter().map(|((kind, reason, resource), count)| {
            let tags = [("kind", kind.name()), ("reason", reason.name()), ("resource", &resource)];
            (ClusterGauge::Waiting, tags.map(|(key, value)| (key, value.to_owned())).to_vec(), count as f64)
        }));
        gauges.extend(by_kind.into_iter().map(|(kind, (_, oldest_s))| {
            (ClusterGauge::WaitingOldest, vec![("kind", kind.name().to_owned())], oldest_s)
        }));
        let wanted = |(name, amount)| (ClusterGauge::AutoscalerWanted, vec![("resource", name)], amount);
        gauges.extend(wanted_amounts.into_iter().map(wanted));
        gauges
    }

    /// Nodes by group, and what the autoscaler has asked for.
    fn gauges_of_growth(&self) -> Vec<ClusterSample> {
        let group =
            |labels: &BTreeMap<String, String>| labels.get(GROUP_LABEL).map_or(NO_GROUP, String::as_str).to_owned();
        let counts = |groups: Vec<String>| {
            let mut counts: BTreeMap<String, f64> = BTreeMap::new();
            for group in groups {
                *counts.entry(group).or_default() += 1.0;
            }
            counts
        };
        let active = counts(self.members.by_key.values().map(|member| group(&member.view.labels)).collect());
        let is_idle = |member: &&Member| total_of(&member.view) == available_of(&member.view);
        let idle = self.members.by_key.values().filter(is_idle).map(|member| group(&member.view.labels));
        let idle = counts(idle.collect());
        let failed = counts(self.members.lost.iter().map(|lost| group(&lost.view.labels)).collect());
        let state = self.growth.shown().unwrap_or_default();
        let pending = state.groups.iter().map(|group| {
            let waits = group.counts.iter().filter(|(state, _)| is_pending(state)).map(|(_, count)| *count);
            (group.name.clone(), f64::from(waits.sum::<u32>()))
        });
        let pending: BTreeMap<String, f64> = pending.filter(|(_, count)| *count > 0.0).collect();
        let of = |gauge, tag, counts: &BTreeMap<String, f64>| {
            counts
                .iter()
                .map(|(group, count)| (gauge, vec![(tag, group.clone())], *count))
                .collect::<Vec<ClusterSample>>()
        };
        let (totals, _) = self.members.cluster_amounts();
        let totals = by_name(totals.iter().map(|(name, amount)| (name, *amount)));
        [
            of(ClusterGauge::ActiveNodes, "node_type", &active),
            of(ClusterGauge::FailedNodes, "node_type", &failed),
            of(ClusterGauge::IdleNodes, "node_type", &idle),
            of(ClusterGauge::PendingNodes, "node_type", &pending),
            of(ClusterGauge::AutoscalerActive, "NodeType", &active),
            of(ClusterGauge::AutoscalerPending, "NodeType", &pending),
            of(ClusterGauge::AutoscalerFailed, "NodeType", &failed),
            of(ClusterGauge::AutoscalerResources, "resource", &totals),
        ]
        .concat()
    }
}

/// What keeps something that waits from a node: what `oxiray explain` says, in a word that costs no look at every node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WaitReason {
    /// Others hold what it needs.
    Busy,
    /// There is room, and its worker process or its turn comes.
    Starting,
    /// Nothing is free within its placement group's bundles.
    Bundle,
    /// A placement group whose bundles do not all find room.
    Group,
    /// No node could meet it, and the autoscaler may bring one.
    Autoscaler,
    /// No node could meet it.
    Never,
    /// Too many different requests wait to look at each.
    Unexamined,
}

impl WaitReason {
    fn of(need: &Need, fleet: &mut Fleet, growth: &Growth) -> Self {
        let resource_request = match need {
            Need::ResourceRequest(resource_request) => resource_request,
            Need::Within { .. } => return Self::Bundle,
            Need::Group(_) => return Self::Group,
        };
        match fleet.look(resource_request) {
            Found::On(_) => Self::Starting,
            Found::Busy => Self::Busy,
            Found::Never if growth.group_for(resource_request).is_some() => Self::Autoscaler,
            Found::Never => Self::Never,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Starting => "starting",
            Self::Bundle => "bundle",
            Self::Group => "group",
            Self::Autoscaler => "autoscaler",
            Self::Never => "never",
            Self::Unexamined => "unexamined",
        }
    }

    /// What boards made for Ray know.
    fn in_words_of_ray(self) -> &'static str {
        match self {
            Self::Busy | Self::Bundle | Self::Group | Self::Unexamined => "WaitingForResources",
            Self::Starting => "WaitingForWorkers",
            Self::Autoscaler | Self::Never => "Infeasible",
        }
    }
}

/// The resource by which something that waits is counted: that of its devices, or else its CPUs. The names of other resources are
/// the programs' to choose, and there is no end to them.
fn sought(need: &Need) -> String {
    let bundles = match need {
        Need::Group(group) => &group.bundles[..],
        Need::ResourceRequest(_) | Need::Within { .. } => &[],
    };
    let demands = || need.demand().into_iter().chain(bundles.iter().map(|bundle| &bundle.demand));
    let has = |demand: &Demand, name: &ResourceName| demand.iter().any(|(asked, _)| asked == name);
    if let Some((device, _)) = demands().find_map(|demand| demand.devices().next()) {
        return device.source().to_string();
    }
    let kind = match demands().find(|demand| has(demand, &ResourceName::CPU)) {
        Some(_) => ResourceName::CPU.as_str(),
        None if demands().all(Demand::is_nothing) => "",
        None => OTHER_NAMES,
    };
    kind.to_owned()
}

/// Counts as series, with tags that all of them have. The first [`NAMES_MAX`] names of a job have their own, unless names
/// are left out.
fn named(
    gauge: ClusterGauge,
    of_all: &[(&'static str, &str)],
    counts: Counts,
    leaves_names_out: bool,
) -> Vec<ClusterSample> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut series: Counts = Counts::new();
    for ((state, name, job, address), count) in counts {
        let known = names.entry(job.clone()).or_default();
        let has_room = known.len() < NAMES_MAX || known.contains(&name);
        let name = match (leaves_names_out, has_room) {
            (true, _) => String::new(),
            (false, true) => name,
            (false, false) => OTHER_NAMES.to_owned(),
        };
        known.insert(name.clone());
        let known = series.entry((state, name, job, address)).or_default();
        *known = known.saturating_add(count);
    }
    let one = |((state, name, job, address), count): ((&str, String, String, String), usize)| {
        let mut tags = vec![("JobId", job), ("Name", name), ("NodeAddress", address), ("State", state.to_owned())];
        tags.extend(of_all.iter().map(|(key, value)| (*key, (*value).to_owned())));
        tags.retain(|(_, value)| !value.is_empty());
        tags.sort_unstable();
        (gauge, tags, count as f64)
    };
    series.into_iter().map(one).collect()
}

fn counted(states: impl Iterator<Item = &'static str>) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for state in states {
        *counts.entry(state).or_default() += 1;
    }
    counts
}

fn sample_of(told: MetricSample) -> Sample {
    let kind = match told.kind {
        MetricKind::Counter => Kind::Counter,
        MetricKind::Gauge => Kind::Gauge,
        MetricKind::Histogram => Kind::Histogram,
    };
    let tags = told.tags.into_iter().map(|tag| (tag.key, tag.value)).collect();
    let MetricSample { name, description, boundaries, value, counts, .. } = told;
    Sample { name, description, kind, boundaries, tags, value, counts }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(names: usize) -> Counts {
        let one = |number: usize| (("ALIVE", format!("c{number:04}"), "01000000".to_owned(), "10.0.0.1".to_owned()), 1);
        (0..names).map(one).collect()
    }

    #[test]
    fn names_of_a_job_are_bounded_and_nobody_is_lost() {
        let shown = named(ClusterGauge::Actors, &[("Source", "gcs")], counts(NAMES_MAX + 50), false);
        assert_eq!(shown.len(), NAMES_MAX + 1);
        let (_, tags, count) = shown.last().expect("the others");
        assert!(tags.contains(&("Name", OTHER_NAMES.to_owned())) && (count - 50.0).abs() < f64::EPSILON, "{tags:?}");
        let total: f64 = shown.iter().map(|(.., count)| count).sum();
        assert!((total - (NAMES_MAX + 50) as f64).abs() < f64::EPSILON);
    }

    #[test]
    fn names_may_be_left_out() {
        let shown = named(ClusterGauge::Tasks, &[("IsRetry", "0"), ("Source", "executor")], counts(3), true);
        let tags = [
            ("IsRetry", "0"),
            ("JobId", "01000000"),
            ("NodeAddress", "10.0.0.1"),
            ("Source", "executor"),
            ("State", "ALIVE"),
        ];
        let tags = tags.map(|(key, value)| (key, value.to_owned())).to_vec();
        assert_eq!(shown, [(ClusterGauge::Tasks, tags, 3.0)]);
    }
}
