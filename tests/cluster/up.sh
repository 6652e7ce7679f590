#!/bin/bash
# Start a cluster in its own network, mount and pid namespaces: ports never collide, any number run side by side,
# and ending the one parent ends all of it. See cluster.sh.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
. "$here/claim.sh"
state=${1:-.local} level=${2:-node}
case $level in node|control-plane) ;; *) echo "$0: LEVEL is node or control-plane, not '$level'" >&2; exit 2 ;; esac
"$here/deps.sh" "$level"
mkdir -p "$state"
state=$(realpath "$state")

exec 7> "$state/lock"          # one start or stop of this folder at a time
flock 7

kube=$("$here/build.sh" kube)
images=()
if [ "$level" = node ]; then
  for image in ${CLUSTER_IMAGES:-pause glibc kaniko ray tiny}; do images+=("$("$here/images.sh" "$image")"); done
fi
signature=$(cat "$here"/{up,inside,pki,control-plane,node,kubelet,component}.sh | sha256sum | cut -c1-16)" $level $kube ${images[*]-}"
if [ -f "$state/cluster/signature" ] && [ "$(cat "$state/cluster/signature")" = "$signature" ] && "$here/enter.sh" "$state" kubectl get --raw /readyz > /dev/null 2>&1; then
  echo "already up: export KUBECONFIG=$state/kubeconfig"
  exit 0
fi
"$here/down.sh" "$state"

claim "$state"
trap '[ $? = 0 ] || { "$here/down.sh" "$state" || true; }' EXIT
mkdir -p "$state/cluster/bin" "$state/cluster/run" "$state/logs"
rm -f "$state"/logs/* "$state"/audit*.log
echo "$n" > "$state/cluster/number"
printf '%s\n' "${images[@]-}" > "$state/cluster/images"
ln -s "$kube" "$state/cluster/bin/kube"
ln -s "$kube" "$state/cluster/bin/kubectl"

setsid unshare --net --mount --pid --fork --kill-child --mount-proc \
  "$here/inside.sh" "$state" "$n" "$level" > "$state/logs/up.log" 2>&1 < /dev/null 7>&- &
parent=$!
echo "$parent $(start_time $parent) $state" > "$claims/$n"
child=
for _ in $(seq 100); do
  child=$(cat "/proc/$parent/task/$parent/children" 2> /dev/null || true)
  if [ -n "$child" ]; then break; fi
  sleep 0.05
done
child=${child%% *}
echo "$child $(start_time "$child")" > "$state/cluster/process"

id=kubectl-ray-$n device=kube-$n block=100.64.$n.0/30
ip link add "$device" type veth peer name eth0 netns "$child"
ip addr add "100.64.$n.1/30" dev "$device"
ip link set "$device" up
echo 1 > /proc/sys/net/ipv4/ip_forward
# rule TARGET RULE...: the comment is how down.sh finds it again.
rule() {
  local target=$1
  shift
  iptables -w "$@" -m comment --comment "$id" -j "$target"
}
rule MASQUERADE -t nat -A POSTROUTING -s "$block" ! -o "$device"
rule ACCEPT -I INPUT -i "$device"
rule ACCEPT -I FORWARD -i "$device"
rule ACCEPT -I FORWARD -o "$device" -m conntrack --ctstate RELATED,ESTABLISHED

for _ in $(seq 1200); do
  if [ -f "$state/cluster/ready" ] || ! alive "$child" "$(cut -d' ' -f2 "$state/cluster/process")"; then break; fi
  sleep 0.1
done
if [ ! -f "$state/cluster/ready" ]; then
  echo "the cluster did not start; the end of $state/logs/up.log:" >&2
  tail -n 15 "$state/logs/up.log" >&2
  exit 1
fi
cat > "$state/env" <<V
KUBECONFIG=$state/kubeconfig
KUBECTL=$state/cluster/bin/kubectl
LEVEL=$level
HOST_ADDRESS=100.64.$n.1
NODE_ADDRESS=100.64.$n.2
AUDIT_LOG=$state/audit.log
V
if [ "$level" = node ]; then printf '%s\n' REGISTRY=registry.local:5000 "REGISTRY_ADDRESS=100.64.$n.2:5000" PRIVATE_REGISTRY=registry.local:5001 >> "$state/env"; fi
echo "$signature" > "$state/cluster/signature"
echo "up: export KUBECONFIG=$state/kubeconfig"
