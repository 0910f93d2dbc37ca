//! `RayCluster` of `ray.io/v1`, as KubeRay's users write it. What is not named here is kept by the API and left alone.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The group of the API that clusters are objects of.
pub const API_GROUP: &str = "ray.io";
/// Its version.
pub const API_VERSION: &str = "v1";
/// The name that the head's pods have for a group.
pub const HEAD_GROUP: &str = "headgroup";

/// What an object is known by.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its identity: another object of the same name has another.
    pub uid: String,
    /// Which of its versions this is.
    pub resource_version: String,
    /// Counts the changes of its `spec`.
    pub generation: i64,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// When its deletion was asked for.
    pub deletion_timestamp: Option<String>,
}

/// A cluster.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RayCluster {
    /// What it is known by.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: Spec,
    /// What was told last.
    pub status: Value,
    /// What of it has no effect.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// What is wanted of a cluster.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// The head's pod.
    pub head_group_spec: HeadGroup,
    /// The groups of workers.
    pub worker_group_specs: Vec<WorkerGroup>,
    /// Whether the cluster's autoscaler says how many replicas there are.
    pub enable_in_tree_autoscaling: bool,
    /// How it does.
    pub autoscaler_options: AutoscalerOptions,
    /// Whether nothing is to run.
    pub suspend: bool,
    /// Who looks after it, where that is somebody else.
    pub managed_by: Option<String>,
    /// What becomes of running pods when a template changes.
    pub upgrade_strategy: UpgradeStrategy,
    /// Asks for a head that goes on where its pod ends.
    pub gcs_fault_tolerance_options: Option<FaultTolerance>,
}

/// The head's pod.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HeadGroup {
    /// The pod.
    #[schemars(schema_with = "crate::crd::anything")]
    pub template: Value,
    /// Parameters of the start command.
    pub ray_start_params: BTreeMap<String, String>,
    /// `ClusterIP`, `NodePort` or `LoadBalancer`.
    pub service_type: Option<String>,
    /// Resources in place of those that the template declares.
    #[schemars(schema_with = "crate::crd::quantities")]
    pub resources: BTreeMap<String, Value>,
    /// Labels of the node and of its pod.
    pub labels: BTreeMap<String, String>,
}

/// A group of workers.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerGroup {
    /// Its name.
    pub group_name: String,
    /// How many replicas are wanted, within the bounds.
    pub replicas: u32,
    /// The fewest.
    pub min_replicas: u32,
    /// The most.
    pub max_replicas: u32,
    /// How many pods a replica is.
    pub num_of_hosts: u32,
    /// Parameters of the start command.
    pub ray_start_params: BTreeMap<String, String>,
    /// The pod.
    #[schemars(schema_with = "crate::crd::anything")]
    pub template: Value,
    /// Resources in place of those that the template declares.
    #[schemars(schema_with = "crate::crd::quantities")]
    pub resources: BTreeMap<String, Value>,
    /// Labels of the nodes and of their pods.
    pub labels: BTreeMap<String, String>,
    /// After how many idle seconds the autoscaler removes a replica.
    pub idle_timeout_seconds: Option<u32>,
    /// Which group the autoscaler takes first, the highest.
    pub priority: Option<i32>,
    /// Which pods are to go.
    pub scale_strategy: ScaleStrategy,
    /// Whether nothing of it is to run.
    pub suspend: bool,
}

impl Default for WorkerGroup {
    fn default() -> Self {
        Self {
            group_name: String::new(),
            replicas: 0,
            min_replicas: 0,
            max_replicas: i32::MAX as u32,
            num_of_hosts: 1,
            ray_start_params: BTreeMap::new(),
            template: Value::Null,
            resources: BTreeMap::new(),
            labels: BTreeMap::new(),
            idle_timeout_seconds: None,
            priority: None,
            scale_strategy: ScaleStrategy::default(),
            suspend: false,
        }
    }
}

impl WorkerGroup {
    /// How many replicas there are to be.
    pub fn wanted(&self) -> u32 {
        if self.suspend { 0 } else { self.replicas.min(self.max_replicas).max(self.min_replicas) }
    }

    /// How many pods a replica is, at least one.
    pub fn hosts(&self) -> u32 {
        self.num_of_hosts.max(1)
    }
}

/// Which pods are to go.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaleStrategy {
    /// Their names. A replica goes as a whole.
    pub workers_to_delete: Vec<String>,
}

/// How the autoscaler does.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalerOptions {
    /// After how many idle seconds a replica is removed.
    pub idle_timeout_seconds: Option<u32>,
    /// `Conservative` brings no more at once than there are already; `Default` and `Aggressive` bring all that is wanted.
    pub upscaling_mode: Option<String>,
}

/// What becomes of running pods when a template changes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UpgradeStrategy {
    /// `None` leaves them, `Recreate` replaces all at once; left out, replica after replica is replaced.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

/// Asks for a head that goes on where its pod ends.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultTolerance {
    /// `redis` or `rocksdb`, of which neither is used: the head has a journal of its own.
    pub backend: Option<String>,
    /// Not used.
    pub redis_address: Option<String>,
    /// The volume for the head's journal.
    pub storage: Storage,
}

/// A volume claim.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Storage {
    /// One that is there already.
    #[serde(alias = "existingClaim")]
    pub claim_name: Option<String>,
    /// The size of one that is made; `1Gi` where it is left out.
    #[schemars(schema_with = "crate::crd::quantity")]
    pub size: Option<Value>,
    /// The storage class of one that is made.
    pub storage_class_name: Option<String>,
    /// The access modes of one that is made; `ReadWriteOnce` where they are left out.
    pub access_modes: Vec<String>,
    /// The folder within it.
    pub sub_path: Option<String>,
    /// `Retain` keeps one that was made when the cluster is deleted.
    pub deletion_policy: Option<String>,
}

impl RayCluster {
    /// Reads an object of the API.
    ///
    /// # Errors
    /// Where a field that is used has another form.
    pub fn read(object: &Value) -> Result<Self, serde_json::Error> {
        let read = Self::deserialize(object)?;
        Ok(Self { notes: crate::crd::without_effect(&object["spec"]), ..read })
    }

    /// The group of this name.
    pub fn group(&self, name: &str) -> Option<&WorkerGroup> {
        self.spec.worker_group_specs.iter().find(|group| group.group_name == name)
    }

    /// The name of the service that leads to the head.
    pub fn head_service(&self) -> String {
        short(&format!("{}-head-svc", self.metadata.name))
    }

    /// The name of the service that gives every pod a name of its own.
    pub fn pods_service(&self) -> String {
        short(&format!("{}-headless", self.metadata.name))
    }

    /// The name of the secret that lets pods into the cluster.
    pub fn secret(&self) -> String {
        format!("{}-oxiray-join", self.metadata.name)
    }

    /// The port that the head listens at.
    pub fn head_port(&self) -> u16 {
        crate::command::Start::port(&self.spec.head_group_spec.ray_start_params).parse().unwrap_or(6379)
    }

    /// The name of the head's pod.
    pub fn head_pod(&self) -> String {
        short(&format!("{}-head", self.metadata.name))
    }

    /// The name of a worker's pod: the same for the same place in the cluster, whoever makes it and however often.
    pub fn worker_pod(&self, group: &str, replica: u32, host: u32) -> String {
        short(&format!("{}-{group}-{replica}-{host}", self.metadata.name))
    }

    /// Whether a volume keeps the head's journal when its pod is gone.
    pub fn keeps_head(&self) -> bool {
        self.spec.gcs_fault_tolerance_options.is_some()
    }
}

/// The longest name of a pod whose host name is the same.
const NAME_BYTES_MAX: usize = 63;

/// The name, or where it is too long the beginning of it with a hash of all of it.
pub(crate) fn short(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let hash = format!("{:08x}", fingerprint(name.as_bytes()) as u32);
    format!("{}-{hash}", &name[..NAME_BYTES_MAX - hash.len() - 1])
}

/// FNV-1a: the same on every machine and in every version, which the standard library's hashes do not promise.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes an object so that equal objects are equal texts, whatever order their fields came in.
pub(crate) fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<_, _> = fields.iter().collect();
            text.push('{');
            for (key, value) in sorted {
                text.push_str(&Value::String(key.clone()).to_string());
                text.push(':');
                canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

/// A hash of an object, in hexadecimal digits.
pub fn hash_of(value: &Value) -> String {
    let mut text = String::new();
    canonical(value, &mut text);
    format!("{:016x}", fingerprint(text.as_bytes()))
}
