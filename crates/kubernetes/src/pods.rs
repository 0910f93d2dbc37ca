//! The pods of a cluster, as they are applied.

use crate::applied::make_applicable;
use crate::capacity::{PodCapacity, Shape, capacity};
use crate::cluster::{HEAD_GROUP, HeadGroup, RayCluster, WorkerGroup, hash_of};
use crate::command::{SECRET_PATH, SESSIONS_PATH, START_PATH, Start, command, script};
use crate::devices::taints_of;
use crate::gang::Gang;
use crate::machine_labels::{MACHINE_LABELS_ANNOTATION, MACHINE_LABELS_VARIABLE, MACHINE_PATH};
use crate::settings::Settings;
use oxiray_families::{FAMILIES, Hiding, TPU};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Says which cluster a pod is of.
pub const CLUSTER_LABEL: &str = "ray.io/cluster";
/// Says which group a pod is of.
pub const GROUP_LABEL: &str = "ray.io/group";
/// Says which replica a pod is of.
pub const REPLICA_LABEL: &str = "ray.io/worker-group-replica-index";
/// Says which host of its replica a pod is.
pub const HOST_LABEL: &str = "ray.io/replica-host-index";
/// Says of which template a pod was made.
pub const HASH_LABEL: &str = "oxiray.io/template-hash";
/// Says who made an object.
pub const CREATED_BY_LABEL: &str = "app.kubernetes.io/created-by";
/// What that label says.
pub const CREATED_BY: &str = "oxiray-operator";
/// On a cluster or a pod template: the container keeps its own command.
const OWN_COMMAND: &str = "ray.io/overwrite-container-cmd";
/// On a pod whose container does: the script that starts the node.
const START_ANNOTATION: &str = "oxiray.io/start";
/// How long a pod may take to end where its template says nothing.
const GRACE_S: u64 = 60;
/// How much of that is left when the drain is over.
const GRACE_MARGIN_S: u64 = 10;

/// For how many seconds who needs a machine of the autoscaler's waits for one that is away: as long as an operator may take
/// to be moved to another machine.
const AUTOSCALER_WAIT_S: u32 = 300;

/// What a pod has to do with a group of the cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) cluster: &'a RayCluster,
    /// The group, the replica and the host; nothing for the head.
    pub(crate) worker: Option<(&'a WorkerGroup, u32, u32)>,
    pub(crate) settings: &'a Settings,
    /// Machines on which pods of the group failed again and again.
    pub(crate) avoided: &'a [String],
}

/// What each pod of a group offers, at zero replicas too.
pub fn worker_capacity(group: &WorkerGroup, settings: &Settings) -> PodCapacity {
    let shape = Shape {
        template: &group.template,
        start: &group.ray_start_params,
        resources: &group.resources,
        labels: &group.labels,
        hosts: group.hosts(),
    };
    with_notes(capacity(&shape, &settings.catalogue), &group.ray_start_params)
}

/// What the head's pod offers.
pub fn head_capacity(head: &HeadGroup, settings: &Settings) -> PodCapacity {
    let shape = Shape {
        template: &head.template,
        start: &head.ray_start_params,
        resources: &head.resources,
        labels: &head.labels,
        hosts: 1,
    };
    with_notes(capacity(&shape, &settings.catalogue), &head.ray_start_params)
}

fn with_notes(mut told: PodCapacity, parameters: &BTreeMap<String, String>) -> PodCapacity {
    let unknown = Start::unknown(parameters);
    if !unknown.is_empty() {
        told.notes.push(format!("without effect in rayStartParams: {}", unknown.join(", ")));
    }
    told
}

/// The hash of all in a group that makes its pods what they are. What Kueue adds to templates is not in it, so that
/// nothing is replaced for it.
pub(crate) fn worker_hash(group: &WorkerGroup) -> String {
    let parts = (&group.ray_start_params, &group.resources, &group.labels, group.hosts());
    template_hash(&group.template, &json!(parts))
}

/// The same of the head.
pub(crate) fn head_hash(head: &HeadGroup) -> String {
    template_hash(&head.template, &json!((&head.ray_start_params, &head.resources, &head.labels)))
}

fn template_hash(template: &Value, rest: &Value) -> String {
    let mut template = template.clone();
    if let Some(spec) = template["spec"].as_object_mut() {
        spec.remove("tolerations");
        spec.remove("schedulingGates");
    }
    hash_of(&json!([template, rest]))
}

impl Place<'_> {
    fn name(&self) -> String {
        match self.worker {
            None => self.cluster.head_pod(),
            Some((group, replica, host)) => self.cluster.worker_pod(&group.group_name, replica, host),
        }
    }

    /// The pod, whole.
    pub(crate) fn pod(&self) -> Value {
        let head = &self.cluster.spec.head_group_spec;
        let (template, parameters, told, hash) = match self.worker {
            None => (&head.template, &head.ray_start_params, head_capacity(head, self.settings), head_hash(head)),
            Some((group, ..)) => {
                (&group.template, &group.ray_start_params, worker_capacity(group, self.settings), worker_hash(group))
            }
        };
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name(),
                "labels": object(&template["metadata"]["labels"]),
                "annotations": object(&template["metadata"]["annotations"]),
            },
            "spec": object(&template["spec"]),
        });
        self.label(&mut pod["metadata"]["labels"], &told, &hash);
        self.complete(&mut pod["spec"], &told);
        let start = Start {
            is_head: self.worker.is_none(),
            group: self.worker.map_or(HEAD_GROUP, |(group, ..)| &group.group_name),
            keeps: self.cluster.keeps_head(),
            parameters,
            capacity: &told,
            host: self.worker.map_or(0, |(.., host)| host),
        };
        let of_cluster = self.cluster.metadata.annotations.get(OWN_COMMAND).is_some_and(|value| value == "true");
        if of_cluster || template["metadata"]["annotations"][OWN_COMMAND] == "true" {
            offer_script(&mut pod, &script("", &start.line()));
        } else {
            let container = &mut list(&mut pod["spec"]["containers"])[0];
            container["command"] = command(container, &start.line());
            if let Some(fields) = container.as_object_mut() {
                fields.remove("args");
            }
        }
        self.fill_container(&mut pod["spec"]);
        for family in FAMILIES.iter().filter(|family| !told.shown.contains(family.key)) {
            if let Some(hiding) = &family.kubernetes.hiding {
                hide(&mut pod["spec"], hiding);
            }
        }
        self.name_slice(&mut pod, &told);
        let replica = self.worker.map(|(group, replica, _)| (group, replica));
        Gang { cluster: self.cluster, replica }.mark(&mut pod, self.settings);
        make_applicable(&mut pod["spec"]);
        pod
    }

    fn label(&self, labels: &mut Value, told: &PodCapacity, hash: &str) {
        let name = &self.cluster.metadata.name;
        let (kind, group) = match self.worker {
            None => ("head", HEAD_GROUP),
            Some((group, ..)) => ("worker", group.group_name.as_str()),
        };
        for (key, value) in &told.labels {
            labels[key] = json!(value);
        }
        let fixed = [
            ("ray.io/is-ray-node", "yes"),
            (CLUSTER_LABEL, name),
            ("ray.io/node-type", kind),
            (GROUP_LABEL, group),
            ("ray.io/identifier", &format!("{name}-{kind}")),
            ("app.kubernetes.io/name", "oxiray"),
            (CREATED_BY_LABEL, CREATED_BY),
            (HASH_LABEL, hash),
        ];
        for (key, value) in fixed {
            labels[key] = json!(value);
        }
        if let Some((group, replica, host)) = self.worker {
            labels[REPLICA_LABEL] = json!(replica.to_string());
            labels[HOST_LABEL] = json!(host.to_string());
            labels["ray.io/worker-group-replica-name"] = json!(format!("{}-{replica}", group.group_name));
        }
    }

    /// What a pod needs as a whole.
    fn complete(&self, spec: &mut Value, told: &PodCapacity) {
        let is_head = self.worker.is_none();
        if is_head {
            spec["restartPolicy"] = json!("Always");
        } else {
            // A replica is replaced as a whole, and with a pause: see `plan`.
            spec["restartPolicy"] = json!("Never");
        }
        if spec["terminationGracePeriodSeconds"].is_null() {
            spec["terminationGracePeriodSeconds"] = json!(GRACE_S);
        }
        for key in told.devices.iter().flat_map(|device| taints_of(device)) {
            let toleration = json!({"key": key, "operator": "Exists", "effect": "NoSchedule"});
            let known = list(&mut spec["tolerations"]);
            if !known.iter().any(|one| one["key"] == key.as_str() || one["key"].is_null()) {
                known.push(toleration);
            }
        }
        if !self.avoided.is_empty() {
            avoid(spec, self.avoided);
        }
        let secret = json!({"name": "oxiray-join", "secret": {
            "secretName": self.cluster.secret(),
            "defaultMode": 0o444,
            "items": if is_head { json!([{"key": "authority", "path": "authority"}, {"key": "join-token", "path": "join-token"}]) }
                else { json!([{"key": "join-token", "path": "join-token"}]) },
        }});
        list(&mut spec["volumes"]).push(secret);
        list(&mut spec["volumes"]).push(annotation_volume("oxiray-machine", "labels", MACHINE_LABELS_ANNOTATION));
        if is_head {
            let volume = match &self.cluster.spec.gcs_fault_tolerance_options {
                None => json!({"name": "oxiray-sessions", "emptyDir": {}}),
                Some(_) => {
                    json!({"name": "oxiray-sessions", "persistentVolumeClaim": {"claimName": crate::objects::claim_name(self.cluster)}})
                }
            };
            list(&mut spec["volumes"]).push(volume);
        }
    }

    fn fill_container(&self, spec: &mut Value) {
        let grace_s = spec["terminationGracePeriodSeconds"].as_u64().unwrap_or(GRACE_S);
        let container = &mut list(&mut spec["containers"])[0];
        for (name, value) in self.variables() {
            set_variable(container, name, value);
        }
        let image = container["image"].as_str().and_then(|named| self.settings.image(named));
        if let Some(image) = image {
            container["image"] = json!(image);
        }
        list(&mut container["volumeMounts"])
            .push(json!({"name": "oxiray-join", "mountPath": SECRET_PATH, "readOnly": true}));
        list(&mut container["volumeMounts"])
            .push(json!({"name": "oxiray-machine", "mountPath": MACHINE_PATH, "readOnly": true}));
        if self.worker.is_none() {
            let storage = self.cluster.spec.gcs_fault_tolerance_options.as_ref().map(|options| &options.storage);
            let mut mount = json!({"name": "oxiray-sessions", "mountPath": SESSIONS_PATH});
            if let Some(folder) = storage.and_then(|storage| storage.sub_path.as_ref()) {
                mount["subPath"] = json!(folder);
            }
            list(&mut container["volumeMounts"]).push(mount);
        } else if container["lifecycle"]["preStop"].is_null() {
            let deadline_s = grace_s.saturating_sub(GRACE_MARGIN_S).max(1);
            let drain = format!(
                "oxiray drain \"$RAY_CLOUD_INSTANCE_ID\" --deadline={deadline_s} --reason-message='its pod ends' --wait || true"
            );
            container["lifecycle"]["preStop"] = json!({"exec": {"command": ["/bin/sh", "-c", drain]}});
        }
        if container["readinessProbe"].is_null() {
            container["readinessProbe"] = json!({
                "exec": {"command": ["/bin/sh", "-c", "oxiray status > /dev/null"]},
                "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 10,
            });
        }
    }

    fn variables(&self) -> Vec<(&'static str, Value)> {
        let cluster = self.cluster;
        let group = self.worker.map_or(HEAD_GROUP, |(group, ..)| &group.group_name);
        let port = Start::port(&cluster.spec.head_group_spec.ray_start_params);
        let domain = self.settings.domain.as_deref().unwrap_or("cluster.local");
        let host = format!("{}.{}.svc.{domain}", cluster.head_service(), cluster.metadata.namespace);
        let mut variables = vec![
            ("OXIRAY_POD_IP", json!({"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})),
            ("OXIRAY_POD_UID", json!({"valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}})),
            ("RAY_CLUSTER_NAME", json!({"value": cluster.metadata.name})),
            ("RAY_CLUSTER_NAMESPACE", json!({"value": cluster.metadata.namespace})),
            ("RAY_CLOUD_INSTANCE_ID", json!({"value": self.name()})),
            ("RAY_NODE_TYPE_NAME", json!({"value": group})),
            ("FQ_RAY_IP", json!({"value": host})),
            ("RAY_IP", json!({"value": cluster.head_service()})),
            ("RAY_PORT", json!({"value": port})),
            ("RAY_ADDRESS", json!({"value": format!("127.0.0.1:{port}")})),
            (MACHINE_LABELS_VARIABLE, json!({"value": format!("{MACHINE_PATH}/labels")})),
        ];
        if self.worker.is_none() {
            variables.push(("OXIRAY_TMPDIR", json!({"value": SESSIONS_PATH})));
            if cluster.spec.enable_in_tree_autoscaling {
                variables.push(("OXIRAY_INFEASIBLE_WAIT_S", json!({"value": AUTOSCALER_WAIT_S.to_string()})));
            }
        }
        variables
    }

    /// What the hosts of a slice must know of each other, which on GKE a webhook of its own would add.
    fn name_slice(&self, pod: &mut Value, told: &PodCapacity) {
        let Some((group, replica, host)) = self.worker.filter(|(group, ..)| group.hosts() > 1) else { return };
        let name = self.name();
        pod["spec"]["hostname"] = json!(name);
        pod["spec"]["subdomain"] = json!(self.cluster.pods_service());
        if !told.per_host.contains_key(TPU.name) {
            return;
        }
        let slice = format!("{}-{replica}", group.group_name);
        let service = self.cluster.pods_service();
        let hosts: Vec<String> = (0..group.hosts())
            .map(|host| format!("{}.{service}", self.cluster.worker_pod(&group.group_name, replica, host)))
            .collect();
        let container = &mut list(&mut pod["spec"]["containers"])[0];
        let told = [
            ("TPU_WORKER_ID", host.to_string()),
            ("TPU_WORKER_HOSTNAMES", hosts.join(",")),
            ("TPU_NAME", slice.clone()),
        ];
        for (variable, value) in told {
            set_variable(container, variable, json!({"value": value}));
        }
        pod["metadata"]["labels"]["replicaIndex"] = json!(slice);
        if pod["spec"]["nodeSelector"]["cloud.google.com/gke-tpu-topology"].is_string() {
            let rule = json!({
                "labelSelector": {"matchLabels": {"replicaIndex": slice, CLUSTER_LABEL: self.cluster.metadata.name}},
                "topologyKey": "cloud.google.com/gke-nodepool",
            });
            let rules = &mut pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
            list(rules).push(rule);
        }
    }
}

/// Lets a container that keeps its own command start the node by `$KUBERAY_GEN_RAY_START_CMD`. The words of a variable are
/// not read as the shell's again, so that they name a file: an annotation of the pod, in a volume.
fn offer_script(pod: &mut Value, script: &str) {
    pod["metadata"]["annotations"][START_ANNOTATION] = json!(script);
    list(&mut pod["spec"]["volumes"]).push(annotation_volume("oxiray-start", "node", START_ANNOTATION));
    let container = &mut list(&mut pod["spec"]["containers"])[0];
    list(&mut container["volumeMounts"])
        .push(json!({"name": "oxiray-start", "mountPath": START_PATH, "readOnly": true}));
    set_variable(container, "KUBERAY_GEN_RAY_START_CMD", json!({"value": format!("/bin/sh {START_PATH}/node")}));
}

/// A volume with one file: what an annotation of the pod says, and says later.
fn annotation_volume(name: &str, file: &str, annotation: &str) -> Value {
    let field = format!("metadata.annotations['{annotation}']");
    json!({"name": name, "downwardAPI": {"items": [{"path": file, "fieldRef": {"fieldPath": field}}]}})
}

/// Hides a vendor's devices from the containers of a pod that was given none.
fn hide(spec: &mut Value, hiding: &Hiding) {
    for kind in ["initContainers", "containers"] {
        for container in spec[kind].as_array_mut().into_iter().flatten() {
            set_variable(container, hiding.variable, json!({"value": hiding.value}));
        }
    }
}

/// Sets a variable of a container, unless the template does.
fn set_variable(container: &mut Value, name: &str, value: Value) {
    let variables = list(&mut container["env"]);
    if variables.iter().all(|variable| variable["name"] != name) {
        let mut variable = value;
        variable["name"] = json!(name);
        variables.push(variable);
    }
}

/// Keeps the pod off machines where others like it failed.
fn avoid(spec: &mut Value, machines: &[String]) {
    let required = &mut spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = list(&mut required["nodeSelectorTerms"]);
    if terms.is_empty() {
        terms.push(json!({}));
    }
    for term in terms {
        list(&mut term["matchExpressions"])
            .push(json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": machines}));
    }
}

/// The list that a field is, or is to be.
fn list(field: &mut Value) -> &mut Vec<Value> {
    if !field.is_array() {
        *field = json!([]);
    }
    field.as_array_mut().expect("it was just made one")
}

fn object(field: &Value) -> Value {
    if field.is_object() { field.clone() } else { json!({}) }
}
