#!/bin/bash
# All tests, from lint to real Ray on a real node; ends with the counts. `make test` runs this.
# PHASES picks some: lint unit cluster control-plane node (default all).
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.."
phases=" ${PHASES:-lint unit cluster control-plane node} "
cluster=tests/cluster/cluster.sh
state=$PWD/.local/test
output=$state/output${PHASES:+-${PHASES// /-}}
failed_phases=()
started=$SECONDS

mkdir -p "$state"
: > "$output"

say() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - started)); }

# Runs a phase's command, keeps its output for the counts, and notes a failure without stopping: one run shows all.
run() {
  local name=$1
  shift
  say "$name"
  if ! "$@" 2>&1 | tee -a "$output"; then failed_phases+=("$name"); fi
}

cleanup() {
  for level in control-plane node; do
    if wanted "$level" && [ -d "$state/$level" ]; then "$cluster" down "$state/$level" > /dev/null 2>&1; fi
  done
}
trap cleanup EXIT
trap 'exit 130' INT TERM

wanted() { [[ $phases == *" $1 "* ]]; }

if wanted lint; then
  run "rustfmt" cargo fmt --all --check
  run "clippy" cargo clippy --workspace --all-targets --locked -- -D warnings
  # A workspace of its own, so that nothing else would notice.
  run "the fuzz targets' lock file" cargo fetch --quiet --locked --manifest-path fuzz/Cargo.toml
fi

# Always the whole workspace with all targets: another selection would unify features otherwise, and build every dependency again.
run "build" cargo build --workspace --all-targets --locked

if wanted unit; then
  run "unit and mocked tests" cargo test --workspace --locked --no-fail-fast
  for module in tests/cluster/*/go.mod; do
    folder=$(dirname "$module")
    if compgen -G "$folder/**/*_test.go" > /dev/null || compgen -G "$folder/*_test.go" > /dev/null; then
      run "go test $folder" bash -c "cd '$folder' && go vet ./... && go test -v ./... | grep -v '^=== '"
    fi
  done
fi

if wanted cluster; then run "the local cluster itself" tests/cluster/test.sh; fi

# Test files called e2e_* need a node, kwok_* a control plane with simulated nodes, the others a control plane without any.
tests_of() { for file in tests/tests/*.rs; do name=$(basename "$file" .rs); case $name in e2e_*) kind=node ;; kwok_*) kind=simulated-nodes ;; *) kind=control-plane ;; esac; [ "$kind" = "$1" ] && printf -- '--test %s ' "$name"; done; }

# The control plane's tests mostly wait for periods and thresholds, so they run beside the node's.
beside=
if wanted control-plane && wanted node; then
  PHASES=control-plane tests/run.sh > "$state/beside" 2>&1 &
  beside=$!
  phases=${phases/ control-plane / }
fi

if wanted control-plane; then
  run "start a control plane" "$cluster" up "$state/control-plane" control-plane
  export RAY_TESTS_CONTROL_PLANE=$state/control-plane/kubeconfig
  # shellcheck disable=SC2046
  run "integration tests" cargo test --workspace --locked --no-fail-fast $(tests_of control-plane) -- --ignored
  run "simulate nodes" "$cluster" kwok "$state/control-plane" 3
  # shellcheck disable=SC2046
  run "integration tests with simulated nodes" cargo test --workspace --locked --no-fail-fast $(tests_of simulated-nodes) -- --ignored
  "$cluster" down "$state/control-plane"
fi

if wanted node; then
  run "start a node" "$cluster" up "$state/node" node
  export RAY_TESTS_NODE=$state/node/kubeconfig
  run "install" env STATE="$state/node" PROFILE=dev BUILD=no tests/install.sh
  # shellcheck disable=SC2046
  run "end-to-end tests" cargo test --workspace --locked --no-fail-fast $(tests_of node) -- --ignored --test-threads=2
  "$cluster" down "$state/node"
fi

if [ -n "$beside" ]; then
  wait "$beside" || failed_phases+=("control-plane")
  grep -v '^[0-9]* passed, [0-9]* failed$' "$state/beside" | tee -a "$output"
fi

# Counts of `test result:` lines (cargo), `--- PASS/FAIL` lines (go) and `ok/FAIL` lines (local cluster); a test that is ignored in one phase runs in a later one.
read -r passed failed <<< "$(awk '
  /^test result:/ { passed += $4; failed += $6 }
  /^ok    / { passed++ } /^FAIL  / { failed++ }
  /^--- PASS/ { passed++ } /^--- FAIL/ { failed++ }
  END { print passed + 0, failed + 0 }' "$output")"
failed=$((failed > ${#failed_phases[@]} ? failed : ${#failed_phases[@]}))

say "done"
for phase in "${failed_phases[@]-}"; do [ -n "$phase" ] && echo "failed: $phase"; done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ ${#failed_phases[@]} = 0 ] && [ "$passed" -gt 0 ]
