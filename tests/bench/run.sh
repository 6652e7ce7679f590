#!/bin/bash
# Figures of design section 8, on clusters of their own. usage: run.sh [ROW...]   (default: all rows)
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
cluster=tests/cluster/cluster.sh
state=.local/bench
binaries=$(realpath "${CARGO_TARGET_DIR:-target}")/release
bench=$binaries/ray-bench

trap '"$cluster" down "$state" > /dev/null 2>&1' EXIT
trap 'exit 130' INT TERM

# A control plane with simulated nodes and our CRDs. usage: simulated NODES [POD_CIDR]
simulated() {
  "$cluster" up "$state" control-plane > /dev/null
  "$cluster" kwok "$state" "$@"
  crds
}
crds() {
  local kubectl="$state/cluster/bin/kubectl --kubeconfig $state/kubeconfig" path
  $kubectl apply --server-side -k manifests/crds > /dev/null
  # kubectl wait fails at once on a CRD that has no condition yet.
  for path in ray.io/v1 templates.ray.io/v1alpha1; do until $kubectl get --raw "/apis/$path" > /dev/null 2>&1; do sleep 0.2; done; done
}
inside() { "$cluster" exec "$state" bash -c 'ulimit -n "$(ulimit -Hn)"; exec "$@"' - "$@"; }
down() { "$cluster" down "$state" > /dev/null; }

# One function a row.
# BENCH_PEER names a KubeRay operator to measure before ours, BENCH_PEER_CRDS the folder with its CRDs: it needs all its kinds.
cluster() {
  local load times=$state.times
  for load in "100 4" "400 4" "1600 4" "1 1000"; do
    rm -f "$times"
    printf '%s: clusters and workers of each; start of the operator → all ready\n' "$load"
    if [ -n "${BENCH_PEER:-}" ]; then
      contestant "$load" "$times" peer "$BENCH_PEER"
      contestant "$load" "$times" fast-peer "$BENCH_PEER"
    fi
    contestant "$load" "$times" ours "$binaries/ray-operator"
    rm -f "$times"
  done
}
# usage: contestant LOAD TIMES NAME BINARY
contestant() {
  simulated 20
  if [ "$3" != ours ]; then
    find "${BENCH_PEER_CRDS:?the folder with the CRDs of BENCH_PEER}" -name '*.yaml' ! -name '*rayclusters*' \
      -exec "$state/cluster/bin/kubectl" --kubeconfig "$state/kubeconfig" create -f {} \; > /dev/null
  fi
  # What it logs is told where it fails only.
  # shellcheck disable=SC2086
  inside "$bench" cluster "$state/audit.log" "$2" $1 "$3" "$4" 2> "$state/$3.log" || { tail -n 20 "$state/$3.log" >&2; return 1; }
  down
}
ready() {
  "$cluster" up "$state" node > /dev/null
  STATE=$state BUILD=no tests/install.sh > /dev/null
  inside "$bench" ready 3
  down
}
serve() {
  local pods
  for pods in 2000 10000; do
    simulated 20 10.128.0.0/16
    inside "$bench" serve "$binaries/ray-operator" "$pods" 20
    down
  done
}

admission() {
  simulated 1
  inside "$bench" admission "$binaries/ray-webhook"
  down
}

plugin() {
  "$cluster" up "$state" control-plane > /dev/null
  crds
  inside "$bench" plugin "$binaries/kubectl-ray" "$(realpath "$state")/cluster/bin/kubectl"
  down
}

cargo build --release --workspace --locked
[ $# -gt 0 ] || set -- cluster ready serve admission plugin
for row in "$@"; do
  printf '\n== %s\n' "$row"
  "$row"
done
