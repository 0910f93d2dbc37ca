{{- /* What the operator may do in the namespaces that it watches, and no more: the tests hold it to these rules. */}}
{{- define "oxiray.rules" -}}
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, watch]
# `replicas` and `workersToDelete` of clusters with enableInTreeAutoscaling.
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [patch]
- apiGroups: [ray.io]
  resources: [rayclusters/status]
  verbs: [patch]
# Owner references that block an owner's deletion need this where the API checks them.
- apiGroups: [ray.io]
  resources: [rayclusters/finalizers]
  verbs: [update]
# Jobs: their clusters are made and deleted, and they themselves where their rules say so.
- apiGroups: [ray.io]
  resources: [rayjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [create, delete]
- apiGroups: [ray.io]
  resources: [rayjobs/status, rayservices/status]
  verbs: [patch]
- apiGroups: [ray.io]
  resources: [rayjobs/finalizers]
  verbs: [update]
- apiGroups: [ray.io]
  resources: [rayservices]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, persistentvolumeclaims]
  verbs: [create, patch]
# One for each cluster, made once; read to visit the heads of those with enableInTreeAutoscaling, or with a job.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, get]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# To count claimed devices.
- apiGroups: [resource.k8s.io]
  resources: [resourceclaimtemplates, resourceclaims]
  verbs: [get]
# Groups of pods, where the API has them.
- apiGroups: [scheduling.k8s.io, scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [list, create, patch]
{{- end }}

{{- /* What is of no namespace. */}}
{{- define "oxiray.clusterRules" -}}
- apiGroups: [resource.k8s.io]
  resources: [deviceclasses]
  verbs: [list]
# The zone, the region and the domain of GPUs of pods' machines.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
{{- end }}
