#!/bin/bash
# Install what a cluster needs and this machine lacks. usage: deps.sh node|control-plane
# Quiet when nothing is missing. Only a Debian-like machine, as root, is installed on.
set -euo pipefail
level=${1:-node}
declare -A package=([ip]=iproute2 [iptables]=iptables [openssl]=openssl [unshare]=util-linux)
if [ "$level" = node ]; then
  package+=([containerd]=containerd [runc]=runc [docker-registry]=docker-registry [debootstrap]=debootstrap [strip]=binutils
    [/usr/lib/cni/ptp]=containernetworking-plugins [/etc/ssl/certs/ca-certificates.crt]=ca-certificates)
fi
root=yes
if [ "$(id -u)" != 0 ]; then root=; fi
# One at a time: of two that start beside each other on a new machine, apt would refuse one.
if [ -n "$root" ]; then
  mkdir -p /run/kubectl-ray
  exec 9> /run/kubectl-ray/deps.lock
  flock 9
fi
missing=()
for program in "${!package[@]}"; do
  if [ ! -e "$program" ] && ! PATH=$PATH:/usr/sbin:/sbin command -v "$program" > /dev/null; then missing+=("${package[$program]}"); fi
done
if [ -n "$root" ] && [ ${#missing[@]} = 0 ]; then exit 0; fi

if [ -z "$root" ]; then
  echo "the local Kubernetes needs root (namespaces, mounts, firewall rules): run this as root, or set KUBECONFIG to a cluster to use instead" >&2
fi
if [ ${#missing[@]} -gt 0 ]; then
  if [ -n "$root" ] && command -v apt-get > /dev/null; then
    echo "installing ${missing[*]}" >&2
    log=$(mktemp)
    if { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } > "$log" 2>&1 < /dev/null 9>&-; then rm "$log"; exit 0; fi
    tail -n 5 "$log" >&2
    rm "$log"
  fi
  echo "missing packages (Debian's names): ${missing[*]}: install them, or set KUBECONFIG to a cluster to use instead" >&2
fi
exit 1
