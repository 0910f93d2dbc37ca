//! What the cluster's processes count and measure, added up.
//!
//! - METRIC-1: counters and histograms are sums over all processes there ever were; a gauge belongs to one process,
//!   bears its identifier as the tag `WorkerId`, and goes with it.
//! - METRIC-2: what is kept has never more than [`METRIC_LINES_MAX`] lines as text; what does not fit is refused and noted.
//! - METRIC-3: all of one name is of one kind, and a histogram's has the same boundaries.
//! - METRIC-4: the names of the cluster's own gauges are nobody else's.

use crate::metrics_text::{self, COUNTER_SUFFIX};
use oxiray_ids::WorkerId;
use std::collections::{BTreeMap, BTreeSet};

/// The most lines of all metrics together. A counter or gauge has one for each combination of tags, a histogram one
/// for each of its buckets and three more.
pub(crate) const METRIC_LINES_MAX: usize = 20_000;
/// The most bytes of one combination of tags, and of a metric's name and description.
pub(crate) const METRIC_TEXT_BYTES_MAX: usize = 1024;
/// How many different reasons for refusing are remembered.
const NOTES_MAX: usize = 100;
/// The tag of a gauge that tells whose it is.
const WORKER_TAG: &str = "WorkerId";

/// How values of one metric come together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// They are added up.
    Counter,
    /// The last one counts, for each process.
    Gauge,
    /// They are counted by size.
    Histogram,
}

impl MetricKind {
    /// Its name in the text format.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What one process recorded of a metric under the same tags since it told last.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    /// The metric's name, without prefix or suffix.
    pub name: String,
    /// What it means.
    pub description: String,
    /// How values come together.
    pub kind: MetricKind,
    /// The upper ends of a histogram's buckets, ascending; the last bucket has none.
    pub boundaries: Vec<f64>,
    /// Keys and values.
    pub tags: Vec<(String, String)>,
    /// Counter and histogram: the sum of what was recorded. Gauge: the value.
    pub value: f64,
    /// Histogram: how many fell into each bucket.
    pub counts: Vec<u64>,
}

/// Gauges, and counters by their names, each with the name that it is shown with and what it means.
macro_rules! gauges {
    ($($gauge:ident: $name:literal, $description:literal;)*) => {
        /// What the head itself knows of the cluster, under the names that boards made for Ray ask for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum ClusterGauge {
            $(#[doc = $description] $gauge,)*
        }

        impl ClusterGauge {
            /// In the order of the variants.
            const SHOWN: &[(&'static str, &'static str)] = &[$(($name, $description),)*];
        }
    };
}

gauges! {
    ActiveNodes: "ray_cluster_active_nodes", "Nodes that are alive";
    FailedNodes: "ray_cluster_failed_nodes", "Nodes that died, of those that are remembered";
    PendingNodes: "ray_cluster_pending_nodes", "Machines that the autoscaler has asked for and that are no nodes yet";
    IdleNodes: "ray_cluster_idle_nodes", "Nodes that are alive and of which nothing is taken";
    AutoscalerActive: "autoscaler_active_nodes", "Nodes that are alive, by group";
    AutoscalerPending: "autoscaler_pending_nodes", "Machines that the autoscaler has asked for and that are no nodes yet";
    AutoscalerFailed: "autoscaler_recently_failed_nodes", "Nodes that died, of those that are remembered, by group";
    AutoscalerResources: "autoscaler_cluster_resources", "What the living nodes offer in whole";
    AutoscalerWanted: "autoscaler_pending_resources", "What waits for nodes";
    RunningJobs: "ray_running_jobs", "Jobs that run";
    FinishedJobs: "ray_finished_jobs_total", "Jobs that ended";
    JobDuration: "ray_job_duration_s", "Seconds that a job took, of those ended jobs that are remembered";
    Tasks: "ray_tasks", "Tasks that run, those whose owners wait for a worker, and how many attempts ended, of the jobs that are remembered";
    Actors: "ray_actors", "Actors by state, the dead that are remembered among them";
    PlacementGroups: "ray_placement_groups", "Placement groups by state, the removed that are remembered among them";
    Unscheduled: "ray_scheduler_unscheduleable_tasks", "Requests for workers that wait for resources";
    Resources: "ray_resources", "Resources of a node, used and available";
    StoreUsed: "ray_object_store_used_memory", "Bytes of a node's object store that hold objects, rounded up to 1/256 of the store";
    StoreAvailable: "ray_object_store_available_memory", "Bytes of a node's object store that hold no object";
    StoreObjects: "ray_object_store_num_local_objects", "Objects that a node's store has, in memory or spilled";
    SpillObjects: "ray_spill_manager_objects", "Objects of a node's store by state";
    SpillBytes: "ray_spill_manager_objects_bytes", "Bytes of objects that a node's store has spilled";
    SpillRequests: "ray_spill_manager_request_total", "How often a node's store spilled an object, and brought one back into memory";
    StoreMemory: "ray_object_store_memory", "Bytes of objects by where they lie, rounded as ray_object_store_used_memory is";
    CpuUtilization: "ray_node_cpu_utilization", "The busy part of a node's processors, in percent";
    CpuCount: "ray_node_cpu_count", "Processors of a node, or what a quota leaves of them";
    MemoryUsed: "ray_node_mem_used", "Bytes in use of the tightest bound on a node's memory";
    MemoryAvailable: "ray_node_mem_available", "Bytes left of the tightest bound on a node's memory";
    MemoryTotal: "ray_node_mem_total", "The tightest bound on a node's memory, in bytes";
    MemoryShared: "ray_node_mem_shared_bytes", "Bytes of a node's memory that are memory files";
    MemoryUsedHost: "ray_node_mem_used_host", "Bytes of the machine's memory that are in use, by whomever";
    MemoryTotalHost: "ray_node_mem_total_host", "Bytes of the machine's memory";
    CgroupUsed: "ray_node_cgroup_mem_used", "As ray_node_mem_used";
    CgroupTotal: "ray_node_cgroup_mem_total", "As ray_node_mem_total";
    DiskUsage: "ray_node_disk_usage", "Bytes taken of the file system of /";
    DiskFree: "ray_node_disk_free", "Bytes free on the file system of /";
    DiskUtilization: "ray_node_disk_utilization_percentage", "The part taken of the file system of /, in percent";
    DiskRead: "ray_node_disk_io_read", "Bytes read from disks since the machine started";
    DiskWritten: "ray_node_disk_io_write", "Bytes written to disks since the machine started";
    DiskReads: "ray_node_disk_io_read_count", "How often disks were read from since the machine started";
    DiskWrites: "ray_node_disk_io_write_count", "How often disks were written to since the machine started";
    DiskReadSpeed: "ray_node_disk_io_read_speed", "Bytes read from disks in a second";
    DiskWriteSpeed: "ray_node_disk_io_write_speed", "Bytes written to disks in a second";
    DiskReadIops: "ray_node_disk_read_iops", "How often disks are read from in a second";
    DiskWriteIops: "ray_node_disk_write_iops", "How often disks are written to in a second";
    NetworkSent: "ray_node_network_sent", "Bytes sent to other machines since the machine started";
    NetworkReceived: "ray_node_network_received", "Bytes received from other machines since the machine started";
    NetworkSendSpeed: "ray_node_network_send_speed", "Bytes sent to other machines in a second";
    NetworkReceiveSpeed: "ray_node_network_receive_speed", "Bytes received from other machines in a second";
    GpusAvailable: "ray_node_gpus_available", "1 for each GPU";
    GpusUtilization: "ray_node_gpus_utilization", "The part of the last moments in which a GPU computed, in percent, while somebody has it";
    GramUsed: "ray_node_gram_used", "MiB of a GPU's memory that are taken, by whomever, while somebody has it";
    GramAvailable: "ray_node_gram_available", "MiB of a GPU's memory that are free, while somebody has it";
    GpuPower: "ray_node_gpu_power_milliwatts", "The power that a GPU draws, in milliwatts, while somebody has it";
    GpuTemperature: "ray_node_gpu_temperature_celsius", "How warm a GPU is, while somebody has it";
    ComponentCpu: "ray_component_cpu_percentage", "How much of one processor the workers of a name take, in percent";
    ComponentResident: "ray_component_rss_bytes", "Bytes of memory that the workers of a name have";
    ComponentResidentMb: "ray_component_rss_mb", "The same in MB";
    ComponentOwn: "ray_component_uss_bytes", "Bytes of that which each shares with nobody";
    ComponentOwnMb: "ray_component_uss_mb", "The same in MB";
    ComponentShared: "ray_component_shared_bytes", "Bytes of their memory that they share with others";
    ComponentGpuMemory: "ray_component_gpu_memory_mb", "MiB of GPUs' memory that the workers of a name have";
    ComponentGpu: "ray_component_gpu_percentage", "How much of one GPU the workers of a name take, in percent, where its driver reports it";
    ComponentFiles: "ray_component_num_fds", "Files that the workers of a name have open";
    WorkerEvictions: "ray_memory_manager_worker_eviction_total", "Workers that were ended because memory ran out";
    WorkerFailures: "ray_node_manager_unexpected_worker_failure_total", "Workers that died without anybody wanting it";
    DeviceShare: "oxiray_device_share", "The part of a device that is granted, from 0 to 1";
    DeviceState: "oxiray_device_state", "1 for the state that a device is in";
    DeviceBusy: "oxiray_device_busy_ratio", "The part of the last moments in which a device computed, while somebody has it";
    DeviceMemory: "oxiray_device_memory_bytes", "Bytes of a device's memory that are taken, by whomever, while somebody has it";
    DeviceReturn: "oxiray_device_return_seconds", "How long it took from the end of a holder until its device was free again";
    GrantSeconds: "oxiray_grant_seconds_total", "For how many seconds devices were granted to a job, by their shares";
    Quarantined: "oxiray_quarantined_total", "How often a device was taken out of service";
    LoopStall: "oxiray_loop_stall_seconds", "How long the turns of a daemon's loop took, in which it hears nobody else";
    ChronicleDropped: "oxiray_chronicle_dropped_total", "Entries of the chronicle that who follows it was not told of, since they were forgotten";
    Waiting: "oxiray_waiting", "Requests that wait for a node, by what keeps them";
    WaitingOldest: "oxiray_waiting_oldest_seconds", "How long the one that waits longest has waited";
}

impl ClusterGauge {
    /// Whether a metric is shown with the name of one of these (METRIC-4).
    fn has(shown: &str) -> bool {
        Self::SHOWN.iter().any(|(name, _)| *name == shown)
    }
}

/// One value of a gauge of the cluster's: which it is, its tags, and the value.
pub(crate) type ClusterSample = (ClusterGauge, Vec<(&'static str, String)>, f64);

/// A histogram of the cluster's.
#[derive(Debug)]
pub(crate) struct ClusterHistogram {
    pub(crate) gauge: ClusterGauge,
    pub(crate) tags: Vec<(&'static str, String)>,
    /// The upper ends of its buckets, ascending; the last bucket has none.
    pub(crate) boundaries: Vec<f64>,
    pub(crate) counts: Vec<u64>,
    pub(crate) sum: f64,
}

/// Why a sample is not taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum NotRecorded {
    /// METRIC-2.
    #[error(
        "`{0}` has combinations of tags that are not kept: all metrics together have at most {METRIC_LINES_MAX} lines. \
         Use tags with few values, or fewer boundaries"
    )]
    Full(String),
    /// Its text is too long.
    #[error("`{0}` has tags or a name of more than {METRIC_TEXT_BYTES_MAX} bytes, which are not kept: shorten them")]
    Long(String),
    /// METRIC-3.
    #[error("`{0}` is a {1} in one process and a {2} in another, whose values are not kept: rename one of them")]
    OtherKind(String, &'static str, &'static str),
    /// METRIC-3.
    #[error("`{0}` has other boundaries in another process, whose values are not kept: use the same, or another name")]
    OtherBoundaries(String),
    /// METRIC-4.
    #[error("`{0}` is the name of a metric of the cluster's own, so that its values are not kept: use another name")]
    OfTheCluster(String),
}

/// The tags of a series, ascending.
pub(crate) type Tags = Vec<(String, String)>;

/// All of one name.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) description: String,
    pub(crate) kind: MetricKind,
    pub(crate) boundaries: Vec<f64>,
    pub(crate) series: BTreeMap<(Tags, Option<WorkerId>), Series>,
}

/// One combination of tags.
#[derive(Debug, Default)]
pub(crate) struct Series {
    pub(crate) value: f64,
    pub(crate) counts: Vec<u64>,
}

impl Family {
    fn lines_each(&self) -> usize {
        if self.kind == MetricKind::Histogram { self.boundaries.len() + 3 } else { 1 }
    }
}

/// All metrics of a session.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// By the name that they are shown with.
    families: BTreeMap<String, Family>,
    lines: usize,
    with_gauges: BTreeSet<WorkerId>,
    notes: BTreeSet<NotRecorded>,
}

impl Metrics {
    /// Adds what a process recorded. An error is returned the first time only.
    pub(crate) fn record(&mut self, from: WorkerId, sample: Sample) -> Result<(), NotRecorded> {
        let Err(reason) = self.add(from, sample) else { return Ok(()) };
        if self.notes.len() < NOTES_MAX && self.notes.insert(reason.clone()) { Err(reason) } else { Ok(()) }
    }

    fn add(&mut self, from: WorkerId, sample: Sample) -> Result<(), NotRecorded> {
        let text_bytes = sample.tags.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        if text_bytes.max(sample.name.len()).max(sample.description.len()) > METRIC_TEXT_BYTES_MAX {
            return Err(NotRecorded::Long(sample.name.chars().take(METRIC_TEXT_BYTES_MAX).collect()));
        }
        let is_gauge = sample.kind == MetricKind::Gauge;
        let mut tags: BTreeMap<String, String> = metrics_text::tags(sample.tags, sample.kind);
        if is_gauge {
            tags.insert(WORKER_TAG.into(), from.hex());
        }
        let key = (tags.into_iter().collect(), is_gauge.then_some(from));
        let shown = metrics_text::shown_name(&sample.name, sample.kind);
        if ClusterGauge::has(&shown) {
            return Err(NotRecorded::OfTheCluster(sample.name));
        }
        let fresh = Family {
            description: sample.description,
            kind: sample.kind,
            boundaries: sample.boundaries,
            series: BTreeMap::new(),
        };
        if let Some(known) = self.families.get(&shown) {
            if known.kind != fresh.kind {
                return Err(NotRecorded::OtherKind(sample.name, known.kind.name(), fresh.kind.name()));
            }
            if known.boundaries != fresh.boundaries || sample.counts.len() > known.boundaries.len() + 1 {
                return Err(NotRecorded::OtherBoundaries(sample.name));
            }
        }
        let lines_each = fresh.lines_each();
        let is_known = self.families.get(&shown).is_some_and(|family| family.series.contains_key(&key));
        if !is_known {
            if self.lines + lines_each > METRIC_LINES_MAX {
                return Err(NotRecorded::Full(sample.name));
            }
            self.lines += lines_each;
        }
        let series = self.families.entry(shown).or_insert(fresh).series.entry(key).or_default();
        if is_gauge {
            self.with_gauges.insert(from);
            series.value = sample.value;
            return Ok(());
        }
        series.value += sample.value;
        series.counts.resize(series.counts.len().max(sample.counts.len()), 0);
        for (count, added) in series.counts.iter_mut().zip(sample.counts) {
            *count = count.saturating_add(added);
        }
        Ok(())
    }

    /// A process is gone, and its gauges with it (METRIC-1).
    pub(crate) fn process_gone(&mut self, gone: WorkerId) {
        if !self.with_gauges.remove(&gone) {
            return;
        }
        for family in self.families.values_mut() {
            let before = family.series.len();
            family.series.retain(|(_, by), _| *by != Some(gone));
            self.lines -= before - family.series.len();
        }
        self.families.retain(|_, family| !family.series.is_empty());
    }

    /// In the text format of Prometheus: what the head knows of the cluster and, where that is wanted, what processes
    /// recorded. Each line has the common tags besides its own.
    pub(crate) fn text(
        &self,
        cluster: Vec<ClusterSample>,
        histograms: Vec<ClusterHistogram>,
        has_recorded: bool,
        common: &Tags,
    ) -> String {
        let mut families = families_of(histograms);
        for (gauge, tags, value) in cluster {
            let (name, description) = ClusterGauge::SHOWN[gauge as usize];
            let family = families.entry(name.to_owned()).or_insert_with(|| Family {
                description: description.into(),
                kind: if name.ends_with(COUNTER_SUFFIX) { MetricKind::Counter } else { MetricKind::Gauge },
                boundaries: Vec::new(),
                series: BTreeMap::new(),
            });
            let tags = tags.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            family.series.insert((tags, None), Series { value, counts: Vec::new() });
        }
        let recorded = if has_recorded { metrics_text::text(&self.families, common) } else { String::new() };
        metrics_text::text(&families, common) + &recorded
    }

    /// What was refused, and why.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.notes.iter().map(ToString::to_string)
    }
}

fn families_of(histograms: Vec<ClusterHistogram>) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for ClusterHistogram { gauge, tags, boundaries, counts, sum } in histograms {
        let (name, description) = ClusterGauge::SHOWN[gauge as usize];
        let family = families.entry(name.to_owned()).or_insert_with(|| Family {
            description: description.into(),
            kind: MetricKind::Histogram,
            boundaries,
            series: BTreeMap::new(),
        });
        let tags = tags.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        family.series.insert((tags, None), Series { value: sum, counts });
    }
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &Metrics, cluster: Vec<ClusterSample>) -> String {
        metrics.text(cluster, Vec::new(), true, &Tags::new())
    }

    fn worker(number: u8) -> WorkerId {
        WorkerId::from_slice(&[number; 28]).expect("as long as an identifier is")
    }

    fn sample(kind: MetricKind, name: &str, tags: &[(&str, &str)], value: f64) -> Sample {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let description = String::new();
        Sample { name: name.into(), description, kind, boundaries: Vec::new(), tags, value, counts: Vec::new() }
    }

    fn histogram(boundaries: &[f64], counts: &[u64], value: f64) -> Sample {
        let one = sample(MetricKind::Histogram, "seconds", &[], value);
        Sample { boundaries: boundaries.into(), counts: counts.into(), ..one }
    }

    #[test]
    fn counters_and_histograms_are_summed_and_stay_and_gauges_go_with_their_process() {
        let mut metrics = Metrics::default();
        let (one, other) = (worker(1), worker(2));
        for (from, count) in [(one, 2.0), (other, 3.0), (one, 1.5)] {
            metrics.record(from, sample(MetricKind::Counter, "served", &[("k", "v")], count)).expect("it fits");
            metrics.record(from, sample(MetricKind::Gauge, "depth", &[], count)).expect("it fits");
            metrics.record(from, histogram(&[1.0, 2.0], &[1, 0, 2], count)).expect("it fits");
        }
        let gauge = |by: WorkerId, value: &str| format!("ray_depth{{WorkerId=\"{}\"}} {value}\n", by.hex());
        let lasting = "# TYPE ray_seconds histogram\n\
             ray_seconds_bucket{le=\"1.0\"} 3\nray_seconds_bucket{le=\"2.0\"} 3\nray_seconds_bucket{le=\"+Inf\"} 9\n\
             ray_seconds_sum 6.5\nray_seconds_count 9\n\
             # TYPE ray_served_total counter\nray_served_total{k=\"v\"} 6.5\n";
        let head = "# TYPE ray_depth gauge\n";
        assert_eq!(text(&metrics, Vec::new()), format!("{head}{}{}{lasting}", gauge(one, "1.5"), gauge(other, "3.0")));
        metrics.process_gone(one);
        assert_eq!(text(&metrics, Vec::new()), format!("{head}{}{lasting}", gauge(other, "3.0")));
        metrics.process_gone(other);
        metrics.process_gone(other);
        assert_eq!((text(&metrics, Vec::new()), metrics.lines), (lasting.into(), 6));
    }

    #[test]
    fn what_does_not_go_together_is_refused_once_and_noted() {
        let mut metrics = Metrics::default();
        metrics.record(worker(1), sample(MetricKind::Counter, "x", &[], 1.0)).expect("it fits");
        let clash = sample(MetricKind::Gauge, "x_total", &[], 1.0);
        let expected = NotRecorded::OtherKind("x_total".into(), "counter", "gauge");
        assert_eq!(metrics.record(worker(1), clash.clone()), Err(expected.clone()));
        assert_eq!(metrics.record(worker(2), clash), Ok(()));
        metrics.record(worker(1), histogram(&[1.0], &[1, 0], 1.0)).expect("it fits");
        let expected_too = NotRecorded::OtherBoundaries("seconds".into());
        assert_eq!(metrics.record(worker(1), histogram(&[2.0], &[1, 0], 1.0)), Err(expected_too.clone()));
        let long = "v".repeat(METRIC_TEXT_BYTES_MAX);
        let long = metrics.record(worker(1), sample(MetricKind::Counter, "x", &[("k", &long)], 1.0));
        assert_eq!(long, Err(NotRecorded::Long("x".into())));
        assert_eq!(metrics.notes().count(), 3);
        assert!(text(&metrics, Vec::new()).contains("ray_x_total 1.0\n"));
    }

    #[test]
    fn gauges_of_the_cluster_have_their_names_for_themselves() {
        let mut metrics = Metrics::default();
        let told = metrics.record(worker(1), sample(MetricKind::Gauge, "actors", &[], 1.0));
        assert_eq!(told, Err(NotRecorded::OfTheCluster("actors".into())));
        metrics.record(worker(1), sample(MetricKind::Counter, "actors", &[], 1.0)).expect("its name ends otherwise");
        let actors = |state: &str, count| (ClusterGauge::Actors, vec![("State", state.to_owned())], count);
        let shown = "# HELP ray_actors Actors by state, the dead that are remembered among them\n# TYPE ray_actors gauge\n\
             ray_actors{State=\"ALIVE\"} 2.0\nray_actors{State=\"DEAD\"} 1.0\n\
             # TYPE ray_actors_total counter\nray_actors_total 1.0\n";
        assert_eq!(text(&metrics, vec![actors("DEAD", 1.0), actors("ALIVE", 2.0)]), shown);
        let common: Tags =
            [("SessionName", "s"), ("Version", "2")].map(|(key, value)| (key.into(), value.into())).into();
        let told = metrics.text(vec![actors("DEAD", 1.0)], Vec::new(), false, &common);
        assert!(told.ends_with("\nray_actors{SessionName=\"s\",State=\"DEAD\",Version=\"2\"} 1.0\n"), "{told}");
    }

    #[test]
    fn histograms_of_the_cluster_are_shown_as_such() {
        let metrics = Metrics::default();
        let of = |resource: &str, counts: &[u64], sum| ClusterHistogram {
            gauge: ClusterGauge::DeviceReturn,
            tags: vec![("resource", resource.to_owned())],
            boundaries: vec![0.5],
            counts: counts.into(),
            sum,
        };
        let shown =
            metrics.text(Vec::new(), vec![of("GPU", &[2, 1], 3.5), of("TPU", &[1, 0], 0.5)], false, &Tags::new());
        let lines: Vec<&str> = shown.lines().filter(|line| line.contains("GPU")).collect();
        assert!(shown.contains("# TYPE oxiray_device_return_seconds histogram\n"), "{shown}");
        let expected = [
            "oxiray_device_return_seconds_bucket{resource=\"GPU\",le=\"0.5\"} 2",
            "oxiray_device_return_seconds_bucket{resource=\"GPU\",le=\"+Inf\"} 3",
            "oxiray_device_return_seconds_sum{resource=\"GPU\"} 3.5",
            "oxiray_device_return_seconds_count{resource=\"GPU\"} 3",
        ];
        assert_eq!(lines, expected);
        assert!(shown.contains("_count{resource=\"TPU\"} 1\n"), "{shown}");
    }

    #[test]
    fn each_gauge_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = ClusterGauge::SHOWN.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), ClusterGauge::SHOWN.len());
    }

    #[test]
    fn there_is_an_end_to_the_lines_and_room_again_when_gauges_go() {
        let mut metrics = Metrics::default();
        let gauge = |number: usize| sample(MetricKind::Gauge, "g", &[("n", &number.to_string())], 1.0);
        for number in 0..METRIC_LINES_MAX {
            metrics.record(worker(1), gauge(number)).expect("it fits");
        }
        assert_eq!(metrics.record(worker(2), gauge(0)), Err(NotRecorded::Full("g".into())));
        metrics.record(worker(1), gauge(5)).expect("what is there already always fits");
        metrics.process_gone(worker(1));
        assert_eq!((metrics.lines, metrics.families.len()), (0, 0));
        metrics.record(worker(2), gauge(0)).expect("there is room");
        assert!(text(&metrics, Vec::new()).contains("n=\"0\""));
    }
}
