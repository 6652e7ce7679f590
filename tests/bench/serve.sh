#!/bin/bash
# Serve health at scale, on a control plane with simulated pods of its own. usage: serve.sh [PODS...]   (default 2000 10000)
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
state=.local/bench-serve nodes=20
cluster=tests/cluster/cluster.sh

cargo build --release -p ray-operator -p ray-tests --bin ray-operator --bin bench-serve
trap '"$cluster" down "$state" > /dev/null 2>&1' EXIT
trap 'exit 130' INT TERM
[ $# -gt 0 ] || set -- 2000 10000
for count in "$@"; do
  "$cluster" up "$state" control-plane > /dev/null
  "$cluster" kwok "$state" "$nodes" 10.128.0.0/16
  KUBECONFIG=$state/kubeconfig "$state/cluster/bin/kubectl" apply --server-side -k manifests/crds > /dev/null
  "$cluster" exec "$state" bash -c 'ulimit -n "$(ulimit -Hn)"; exec "$@"' - \
    target/release/bench-serve "$PWD/target/release/ray-operator" "$count" "$nodes"
  "$cluster" down "$state" > /dev/null
done
