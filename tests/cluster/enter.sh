#!/bin/bash
# Run a command inside a cluster's namespaces, in the same folder, with its kubectl and KUBECONFIG. usage: enter.sh STATE COMMAND...
set -euo pipefail
here=$(dirname "$(realpath "$0")")
. "$here/claim.sh"
state=$(realpath "$1")
shift
read -r pid start 2> /dev/null < "$state/cluster/process" || true
alive "${pid:-}" "${start:-}" || { echo "no cluster runs in $state: start it with cluster.sh up $state" >&2; exit 1; }
export KUBECONFIG=$state/kubeconfig PATH=$state/cluster/bin:$PATH
# The mount namespace brings its own root folder as the current one.
exec nsenter --target "$pid" --net --mount --pid -- sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
