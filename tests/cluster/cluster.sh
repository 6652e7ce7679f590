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
  image STATE NAME:TAG FILE...    pack programs into an image and push it to the cluster's registry
  kwok STATE [NODES] [CIDR]       simulated nodes (default 1), whose pods' addresses (default 10.128.0.0/16) answer locally
  stop|start STATE COMPONENT      one component, for fault tests: etcd, kube-apiserver, registry, kubelet, ...
U
  exit 2
}

command=${1:-}
[ $# -gt 0 ] && shift
case $command in
  up|down|image|kwok) exec "$here/$command.sh" "$@" ;;
  exec) [ $# -ge 2 ] || usage; exec "$here/enter.sh" "$@" ;;
  stop|start) [ $# -eq 2 ] || usage; exec "$here/enter.sh" "$1" "$here/component.sh" "$command" "$(realpath "$1")" "$2" ;;
  *) usage ;;
esac
