#!/bin/bash
# Take a cluster away, whole: processes, mounts, network device, firewall rules, cgroups and data; the logs stay.
# Safe to repeat, and after a crash.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
. "$here/claim.sh"
state=${1:-.local}
[ -d "$state/cluster" ] || exit 0
state=$(realpath "$state")
# up.sh calls this with the folder's lock already held.
if ! { : >&7; } 2> /dev/null; then exec 7> "$state/lock"; flock 7; fi

pid='' start='' n=''
if [ -f "$state/cluster/process" ]; then read -r pid start < "$state/cluster/process" || true; fi
if [ -f "$state/cluster/number" ]; then n=$(cat "$state/cluster/number"); fi
if alive "$pid" "$start"; then
  kill -KILL "$pid"            # process 1 of the pid namespace: the kernel ends everything in it, and its mounts go with it
  for _ in $(seq 100); do alive "$pid" "$start" || break; sleep 0.1; done
fi
# A number that another folder has claimed since a crash is no longer ours.
if [ -n "$n" ] && [ -e "$claims/$n" ] && [ "$(cut -d' ' -f3- "$claims/$n")" = "$state" ]; then
  read -r pid start _ < "$claims/$n"
  if [ "$pid" != "$PPID" ] && alive "$pid" "$start"; then
    kill -KILL "$pid" 2> /dev/null || true
    for _ in $(seq 50); do alive "$pid" "$start" || break; sleep 0.1; done
  fi
  sweep "$n"
fi
rm -rf --one-file-system "$state/cluster" "$state/kubeconfig" "$state/env"
