#!/bin/bash
# Tests of the local cluster itself: two side by side with everything that a user of one relies on, the stand-in for kaniko's
# executor on a real node, simulated nodes, faults, and that nothing is left behind.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d /tmp/kubectl-ray-cluster.XXXXXX)
a=$work/a b=$work/b c=$work/c
passed=0 failed=0
cluster() { "$here/cluster.sh" "$@"; }
k() { local state=$1; shift; "$state/cluster/bin/kubectl" --kubeconfig "$state/kubeconfig" "$@"; }
setting() { sed -n "s/^$2=//p" "$1/env"; }

# check WHAT COMMAND...: counts; a failure shows the command's output and goes on.
check() {
  local what=$1 output
  shift
  if output=$("$@" 2>&1); then passed=$((passed + 1)); echo "ok    $what"; else failed=$((failed + 1)); printf 'FAIL  %s\n%s\n' "$what" "$output"; fi
}

# A number is given again only when its cluster is gone, so what is left under a number is of the cluster that had it last.
numbers=''
started() { numbers+=" $(cat "$1/cluster/number")"; }

# left: what the clusters that were started left on the machine, one a line; other people's clusters run beside.
left() {
  local n
  for n in $numbers; do
    if [ -e "/run/kubectl-ray/$n" ] && ! grep -qF " $work/" "/run/kubectl-ray/$n"; then continue; fi
    find "/sys/class/net/kube-$n" "/run/kubectl-ray/$n" -maxdepth 0 2> /dev/null
    find /sys/fs/cgroup -type d -name "kubectl-ray-$n"
    for table in nat filter; do iptables -w -t $table -S; done | grep -E -- "--comment \"?kubectl-ray-$n\"? "
  done
  grep -F "$work" /proc/mounts
  pgrep -f "$work/[abc]" | grep -vx $$ | xargs -r ps -o args= -p
}

# host: what a cluster must not touch outside its namespaces.
host() {
  cat /proc/sys/vm/overcommit_memory /proc/sys/vm/panic_on_oom /proc/sys/kernel/panic /proc/sys/kernel/panic_on_oops
  for dir in /run/containerd /var/lib/cni /var/log/containers /var/log/pods /run/netns /var/lib/kubelet; do echo "$dir: $(ls "$dir" 2> /dev/null | xargs)"; done
}
finish() {
  local status=$?
  for state in "$a" "$b" "$c"; do cluster down "$state" || true; done
  rm -rf --one-file-system "$work"
  return $status
}
trap finish EXIT

. "$here/test/node.sh"
. "$here/test/kaniko.sh"
. "$here/test/control-plane.sh"

before=$(host)
cluster up "$a" > "$work/a.up" 2>&1 &
first=$!
cluster up "$b" > "$work/b.up" 2>&1 &
second=$!
wait $first $second || true
# is_up LOG: what `up` printed where it failed.
is_up() { grep '^up: ' "$1" || { cat "$1"; return 1; }; }
check "a cluster starts" is_up "$work/a.up"
check "a second one starts beside it" is_up "$work/b.up"
check "they have different addresses" test "$(setting "$a" NODE_ADDRESS)" != "$(setting "$b" NODE_ADDRESS)"
for state in "$a" "$b"; do
  started "$state"
  test_node "$state"
done
test_kaniko "$a"
test_kwok "$b"
test_faults "$b"
check "one ends and the other lives" cluster down "$a"
check "the other still runs pods" k "$b" exec ray -- true
cluster down "$b"
test_control_plane "$c"
check "a second end of the same cluster is nothing" cluster down "$c"
check "nothing is left on the machine" diff /dev/null <(left)
check "nothing outside was touched" diff <(echo "$before") <(host)
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
