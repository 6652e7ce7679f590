#!/bin/bash
# From nothing to a Ray job's result, each step with its time. `make demo` runs this; it leaves the cluster up.
# PROFILE is dev (default), which is quicker to build, or release. BUILD=no: the binaries are there.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
cluster=tests/cluster/cluster.sh
state=$PWD/.local
namespace=demo
begin=$SECONDS step=0
trap 'code=$?; if [ $code != 0 ]; then echo "demo: failed in step $step: $what (after $((SECONDS - begin)) s); the reason stands above" >&2; fi' EXIT

next() { # announces a step
  [ -n "${from:-}" ] && printf '   … %d s\n' $((SECONDS - from))
  step=$((step + 1)) what=$1 from=$SECONDS
  printf '\n[%d] %s\n' "$step" "$what"
}
shown() { printf '   $ %s\n' "$*"; "$@" | sed 's/^/   /'; }

what=start
next "build: workspace, Kubernetes, images (from the cache where nothing changed)"
export PROFILE=${PROFILE:-dev}
[ "$PROFILE" = dev ] && folder=debug || folder=$PROFILE
# As `make test` builds, which then finds it done: other targets would unify features otherwise.
[ "${BUILD:-}" = no ] || cargo build --workspace --all-targets --locked --profile "$PROFILE"
export BUILD=no
if [ -z "${KUBECONFIG:-}" ]; then
  next "start a one-node Kubernetes"
  "$cluster" up "$state" node
  # shellcheck disable=SC1091
  . "$state/env"
  # kubectl keeps what a server serves by its address, and clusters reuse addresses.
  export KUBECACHEDIR=$state/cluster/kubectl-cache
  export KUBECONFIG
  PATH=$state/cluster/bin:$PATH
  registry=$REGISTRY
else
  next "use the cluster of KUBECONFIG"
  registry=${REGISTRY:?set REGISTRY=host/prefix, where this cluster can push and pull}
fi
PATH=$(realpath "${CARGO_TARGET_DIR:-target}")/$folder:$PATH
export PATH
kubectl version | sed 's/^/   /'

next "install CRDs, webhook and operator"
tests/install.sh | tail -n 4 | sed 's/^/   /'

next "publish hardware: a ComputeTemplate"
kubectl create namespace "$namespace" --dry-run=client -o yaml | kubectl apply --server-side -f - > /dev/null
kubectl ray -n "$namespace" delete raycluster/demo --yes --ignore-not-found > /dev/null
kubectl -n "$namespace" delete computetemplate/small imagetemplate/cowsay --ignore-not-found > /dev/null
shown kubectl ray -n "$namespace" create compute-template small --cpu 200m --memory 2Gi --shared-memory 512Mi

next "list packages: an ImageTemplate, built by a Job in the cluster and pushed to $registry"
shown kubectl ray -n "$namespace" create image-template cowsay --base-image rayproject/ray:2.60.0 --pip cowsay==6.1 --wait

next "a Ray cluster from the two"
shown kubectl ray -n "$namespace" create cluster demo --image-template cowsay --head-compute-template small \
  --worker-group name=w,replicas=1,compute-template=small --wait
shown kubectl -n "$namespace" get rayclusters
image=$(kubectl -n "$namespace" get raycluster demo -o jsonpath='{.spec.headGroupSpec.template.spec.containers[0].image}')
[[ $image == *@sha256:* ]] || { echo "the image is not pinned by digest: $image"; exit 1; }
[ "$(kubectl -n "$namespace" get raycluster demo -o jsonpath='{.status.state} {.status.availableWorkerReplicas}/{.status.desiredWorkerReplicas}')" = "ready 1/1" ]

next "a Ray job that imports the package on the worker"
job=$(mktemp -d)
cat > "$job/main.py" <<'PY'
import ray

ray.init()
head = ray.get_runtime_context().get_node_id()
worker = next(n["NodeID"] for n in ray.nodes() if n["Alive"] and n["NodeID"] != head)


@ray.remote(num_cpus=0)
def version():
    import importlib.metadata

    import cowsay  # noqa: F401 the base image lacks it

    return importlib.metadata.version("cowsay"), ray.get_runtime_context().get_node_id()


strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(worker, soft=False)
found, where = ray.get(version.options(scheduling_strategy=strategy).remote())
assert where == worker, "the task did not run on the worker"
print(f"cowsay {found} on the worker, {len([n for n in ray.nodes() if n['Alive']])} Ray nodes")
PY
log=$(mktemp)
kubectl ray -n "$namespace" job submit demo --working-dir "$job" -- python main.py 2>&1 | tee "$log" | sed 's/^/   /'
grep -q "cowsay 6.1 on the worker, 2 Ray nodes" "$log" || { echo "the job did not print what it should"; exit 1; }

next "the same from committed YAML: templates, image and cluster together"
kubectl create namespace gitops --dry-run=client -o yaml | kubectl apply --server-side -f - > /dev/null
shown kubectl -n gitops apply -f manifests/samples/
shown kubectl -n gitops wait --for=jsonpath='{.status.state}'=ready raycluster/train --timeout=600s
generations() { kubectl -n gitops get rayclusters,imagetemplates,computetemplates -o jsonpath='{range .items[*]}{.kind}/{.metadata.name}={.metadata.generation} {end}'; }
before=$(generations)
shown kubectl -n gitops apply -f manifests/samples/
after=$(generations)
[ "$before" = "$after" ] || { echo "applying again changed generations: $before -> $after"; exit 1; }
echo "   generations after applying again: $after"
printf '   … %d s\n' $((SECONDS - from))

printf '\ndemo: ok (%d s)\n' $((SECONDS - begin))
[ -z "${REGISTRY_ADDRESS:-}" ] || echo "the cluster is up: export KUBECONFIG=$KUBECONFIG PATH=$state/cluster/bin:\$PATH; make cluster-down ends it"
