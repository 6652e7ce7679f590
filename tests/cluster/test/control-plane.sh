# Sourced by test.sh: simulated nodes, and the control plane alone.

# simulated STATE PODS: that many pods run on simulated nodes, each with an address of its own that answers locally.
simulated() {
  local state=$1 pods=$2 addresses
  k "$state" apply -f - > /dev/null <<K
apiVersion: apps/v1
kind: Deployment
metadata: {name: simulated}
spec:
  replicas: $pods
  selector: {matchLabels: {app: simulated}}
  template:
    metadata: {labels: {app: simulated}}
    spec:
      nodeSelector: {type: kwok}
      tolerations: [{key: kwok.x-k8s.io/node, operator: Exists}]
      containers: [{name: main, image: any}]
K
  k "$state" wait --for=condition=Available deployment/simulated --timeout=120s > /dev/null || return
  addresses=$(k "$state" get pods -l app=simulated -o 'jsonpath={.items[*].status.podIP}' | tr ' ' '\n' | sort -u)
  [ "$(wc -l <<< "$addresses")" = "$pods" ] || { echo "addresses: $addresses"; return 1; }
  cluster exec "$state" ping -c 1 -W 2 "$(head -n 1 <<< "$addresses")" || cluster exec "$state" ip route get "$(head -n 1 <<< "$addresses")" | grep -q ^local
}

test_kwok() {
  check "simulated nodes start" cluster kwok "$1" 3
  check "pods run on them" simulated "$1" 50
  check "deleted pods go" bash -c "'$1/cluster/bin/kubectl' --kubeconfig '$1/kubeconfig' delete deployment simulated --cascade=foreground --timeout=60s"
}

test_control_plane() {
  local state=$1 pid
  check "the control plane alone starts" cluster up "$state" control-plane
  started "$state"
  check "webhooks outside are reachable by the host's address" reach_host "$state"
  test_kwok "$state"
  check "it starts again over a crashed one" crash_and_start "$state"
  check "its folder can vanish while it crashed, and the next one takes its number" vanish "$state"
}

reach_host() {
  local pid address status
  address=$(setting "$1" HOST_ADDRESS)
  python3 -m http.server --bind "$address" --directory "$1/logs" 18443 > /dev/null 2>&1 &
  pid=$!
  cluster exec "$1" curl -sf --retry 20 --retry-delay 1 --retry-connrefused -o /dev/null "http://$address:18443/"
  status=$?
  kill $pid
  return $status
}

crash() {
  local parent
  read -r parent _ < "/run/kubectl-ray/$(cat "$1/cluster/number")"
  kill -KILL "$parent"
}

crash_and_start() {
  crash "$1"
  sleep 0.5
  cluster up "$1" control-plane && k "$1" get --raw /readyz
}

vanish() {
  local number
  number=$(cat "$1/cluster/number")
  crash "$1"
  sleep 0.5
  rm -rf "${1:?}"
  cluster up "$1" control-plane && test "$(cat "$1/cluster/number")" -le "$number"
}
