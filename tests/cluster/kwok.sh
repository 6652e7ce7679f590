#!/bin/bash
# Simulated nodes: kwok plays their kubelets, the scheduler is the real one, and every pod's address answers inside the cluster's
# network namespace. usage: kwok.sh STATE [NODES] [CIDR]
# Run again, it adds the nodes that are missing.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
state=${1:-.local} nodes=${2:-1} cidr=${3:-10.128.0.0/16}
inside() { "$here/enter.sh" "$state" "$@"; }
inside true
state=$(realpath "$state")
kwok=$("$here/build.sh" kwok)
level=$(sed -n 's/^LEVEL=//p' "$state/env")

inside ip route replace local "$cidr" dev lo
inside "$here/component.sh" start "$state" kwok "$kwok" --kubeconfig="$state/kubeconfig" --config="$here/kwok/stages.yaml" --cidr="$cidr" \
  --node-ip="$(sed -n 's/^NODE_ADDRESS=//p' "$state/env")" --node-name=kwok-controller --manage-nodes-with-label-selector=type=kwok \
  --node-lease-duration-seconds=40 --server-address=127.0.0.1:10247
# Beside a real node, only pods that tolerate simulated ones land there.
taints='[]'
if [ "$level" = node ]; then taints='[{key: kwok.x-k8s.io/node, value: fake, effect: NoSchedule}]'; fi
for i in $(seq 0 $((nodes - 1))); do
  cat <<K
---
apiVersion: v1
kind: Node
metadata:
  name: kwok-$i
  labels: {type: kwok, kubernetes.io/hostname: kwok-$i, kubernetes.io/os: linux, kubernetes.io/arch: amd64}
spec: {taints: $taints}
K
done | inside kubectl apply --server-side -f - > /dev/null
inside kubectl wait --for=condition=Ready node -l type=kwok --timeout=60s > /dev/null
