#!/bin/bash
# The long fault tests: tests of `make test` with many more rounds, on clusters of their own. usage: soak.sh [ROW...]   (default: all rows)
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
cluster=tests/cluster/cluster.sh
state=$PWD/.local/soak

trap '"$cluster" down "$state" > /dev/null 2>&1' EXIT
trap 'exit 130' INT TERM

# With simulated nodes. usage: simulated NODES
simulated() { control_plane && "$cluster" kwok "$state" "$@"; }
control_plane() { "$cluster" up "$state" control-plane > /dev/null && export RAY_TESTS_CONTROL_PLANE=$state/kubeconfig; }
node() {
  "$cluster" up "$state" node > /dev/null && export RAY_TESTS_NODE=$state/kubeconfig
  STATE=$state PROFILE=dev BUILD=no tests/install.sh > /dev/null
}
down() { "$cluster" down "$state" > /dev/null; }
# usage: tests FILE FILTER
tests() { cargo test --workspace --locked --test "$1" -- --ignored --nocapture "$2"; }

# One function a row.

# A cluster and its image come at the same moment, 1 000 times: no gate stays shut.
gates() {
  control_plane
  RAY_TESTS_RACES=1000 tests template_gate cluster_and_image_race
  down
}

# The operator is killed 20 times, at every step of a build: one image for each, none lost, none twice.
images() {
  node
  RAY_TESTS_KILLS=20 tests e2e_image_operator killed_at_every_step
  down
}

# The operator is killed 20 times while it creates 200 pods: never one more than asked for.
kills() {
  simulated 3
  RAY_TESTS_KILLS=20 tests kwok_cluster_life an_operator_killed
  down
}

cargo build --workspace --all-targets --locked
[ $# -gt 0 ] || set -- gates images kills
for row in "$@"; do
  printf '\n== %s\n' "$row"
  started=$SECONDS
  "$row"
  printf '== %s: ok, %d s\n' "$row" $((SECONDS - started))
done
