# What the submitter's pod of KubeRay runs (ray-operator/controllers/ray/common/job.go at feeaf72), word for word but for the address,
# the job's name and its entrypoint: sh kuberay_submitter.sh ADDRESS JOB ENTRYPOINT...
A=$1 ID=$2
shift 2
until python -c "import urllib.request; exit(0 if b'success' in urllib.request.urlopen('$A/api/gcs_healthz', timeout=10).read() else 1)" ; do echo waiting; sleep 2; done
if ! ray job status --address $A $ID >/dev/null 2>&1 ; then ray job submit --address $A --no-wait --submission-id $ID -- "$@" ; fi
ray job logs --address $A --follow $ID
