#!/bin/bash
# Figures of design section 8, on clusters of their own. usage: run.sh [ROW...]   (default: all rows)
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
cluster=tests/cluster/cluster.sh
state=.local/bench
# What peers took: see contestant.rs.
times=.local/bench.times
binaries=$(realpath "${CARGO_TARGET_DIR:-target}")/release
bench=$binaries/ray-bench

trap '"$cluster" down "$state" > /dev/null 2>&1; rm -f "$times"' EXIT
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
# BENCH_LOADS picks loads. BENCH_PEER names a KubeRay operator to measure before ours, BENCH_PEER_CRDS the folder with its CRDs: it needs all its kinds.
cluster() {
  local load
  for load in ${BENCH_LOADS:-100x4 400x4 1600x4 1x1000}; do
    rm -f "$times"
    printf '%s: clusters and workers of each; start of the operator → all ready\n' "$load"
    if [ -n "${BENCH_PEER:-}" ]; then
      contestant "$load" peer "$BENCH_PEER"
      contestant "$load" fast-peer "$BENCH_PEER"
    fi
    contestant "$load" ours "$binaries/ray-operator"
  done
}
# usage: contestant LOAD NAME BINARY
contestant() {
  simulated 20
  [ "$2" = ours ] || peer_crds
  # What it logs is told where it fails only.
  inside "$bench" cluster "$state/audit.log" "$times" "${1%x*}" "${1#*x}" "$2" "$3" 2> "$state/$2.log" || { tail -n 20 "$state/$2.log" >&2; return 1; }
  down
}
peer_crds() {
  find "${BENCH_PEER_CRDS:?the folder with the CRDs of BENCH_PEER}" -name '*.yaml' ! -name '*rayclusters*' \
    -exec "$state/cluster/bin/kubectl" --kubeconfig "$state/kubeconfig" create -f {} \; > /dev/null
}

ready() {
  local kubectl="$state/cluster/bin/kubectl --kubeconfig $state/kubeconfig -n ray-system"
  rm -f "$times"
  "$cluster" up "$state" node > /dev/null
  STATE=$state BUILD=no tests/install.sh > /dev/null
  if [ -n "${BENCH_PEER:-}" ]; then
    # The peer works from outside, in place of ours.
    $kubectl scale deployment ray-operator --replicas=0 > /dev/null
    $kubectl wait --for=delete pod -l app.kubernetes.io/name=ray-operator --timeout=60s > /dev/null
    peer_crds
    inside bash -c '"$1" --enable-leader-election=false --metrics-addr=127.0.0.1:18080 --health-probe-bind-address=127.0.0.1:18082 2> "$2" &
      trap "kill $!; wait $!" EXIT; shift 2; "$@"' - "$BENCH_PEER" "$state/peer.log" "$bench" ready "$times" 3 peer ||
      { tail -n 20 "$state/peer.log" >&2; return 1; }
    $kubectl scale deployment ray-operator --replicas=2 > /dev/null
    $kubectl rollout status deployment ray-operator > /dev/null
  fi
  inside "$bench" ready "$times" 3 ours
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
