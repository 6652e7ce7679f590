#!/bin/bash
# Process 1 of a cluster's own network, mount and pid namespaces; started by up.sh. usage: inside.sh STATE N LEVEL
set -euo pipefail
here=$(dirname "$(realpath "$0")")
state=$1 n=$2 level=$3
data=$state/cluster pki=$state/cluster/pki address=100.64.$n.2
export PATH=$data/bin:$PATH
mkdir -p "$pki"
start() { "$here/component.sh" start "$state" "$@"; }
# until_ready SECONDS COMMAND...: polls; the components start in well under a second each.
until_ready() {
  local tries=$(($1 * 10))
  shift
  for _ in $(seq $tries); do if "$@" > /dev/null 2>&1; then return; fi; sleep 0.1; done
  echo "timed out waiting for: $*"
  "$@"
}

# Servers on this machine's loopback cannot be reached from in here.
grep -v '^nameserver *\(127\.\|::1\)' "$(if [ -s /run/systemd/resolve/resolv.conf ]; then echo /run/systemd/resolve/resolv.conf; else echo /etc/resolv.conf; fi)" > "$data/resolv.conf" || true
mount --make-rprivate /
# What the container runtime and the node agent write outside the state folder stays in here and goes with the namespace.
mkdir -p /var/lib/cni /var/log/containers
for dir in /run /var/lib/cni /var/log/containers; do mount -t tmpfs -o mode=755 tmpfs "$dir"; done
mkdir -p /run/lock
{ cat /etc/hosts; echo "$address registry.local"; } > "$data/hosts" && mount --bind "$data/hosts" /etc/hosts
resolv=$(realpath -m /etc/resolv.conf)
mkdir -p "$(dirname "$resolv")" && touch "$resolv" && mount --bind "$data/resolv.conf" "$resolv"

ip link set lo up
until_ready 10 ip link show eth0
ip addr add "$address/30" dev eth0
ip link set eth0 up
ip route add default via "100.64.$n.1"

. "$here/pki.sh"
. "$here/control-plane.sh"
if [ "$level" = node ]; then . "$here/node.sh"; fi
touch "$data/ready"
# As process 1 it also reaps what containers leave behind.
trap 'exit 0' TERM
while :; do sleep infinity & wait $! || true; done
