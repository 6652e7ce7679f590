#!/bin/bash
# The local Kubernetes of the tests: one real node (or its control plane alone) in its own namespaces.
set -euo pipefail
here=$(dirname "$(realpath "$0")")

usage() {
  cat >&2 <<U
usage: $0 COMMAND ...
  up [STATE] [LEVEL]              start; LEVEL is node (default) or control-plane; STATE is a folder (default .local)
  down [STATE]                    take everything away; safe to repeat
  exec STATE COMMAND...           run a command inside the cluster's namespaces, with its kubectl and KUBECONFIG
  image STATE NAME:TAG FILE...    pack programs into an image and push it to the cluster's registry (its name: registry.local:5000)
  push [--plain-http] NAME:TAG FILE...   the same to any registry, with the credentials of docker's configuration
  kwok STATE [NODES] [CIDR]       simulated nodes (default 1), whose pods' addresses (default 10.128.0.0/16) answer locally
  stop|start STATE COMPONENT      one component, for fault tests: etcd, kube-apiserver, registry, kubelet, ...
U
  exit 2
}

command=${1:-}
[ $# -gt 0 ] && shift
case $command in
  up|down|kwok) exec "$here/$command.sh" "$@" ;;
  push) exec "$here/image.sh" "$@" ;;
  image)
    [ $# -ge 3 ] || usage
    [ -f "$1/env" ] || { echo "no cluster runs in $1: start it with cluster.sh up $1" >&2; exit 1; }
    exec "$here/image.sh" --plain-http "$(sed -n 's/^REGISTRY_ADDRESS=//p' "$1/env")/${2#registry.local:5000/}" "${@:3}" ;;
  exec) [ $# -ge 2 ] || usage; exec "$here/enter.sh" "$@" ;;
  stop|start) [ $# -eq 2 ] || usage; exec "$here/enter.sh" "$1" "$here/component.sh" "$command" "$(realpath "$1")" "$2" ;;
  *) usage ;;
esac
