# Sourced. A cluster's number N gives its address block 100.64.N.0/30 (.1 on this machine, .2 inside), the device kube-N,
# the cgroup kubectl-ray-N and the comment on its firewall rules, so that N alone is enough to take it all away.
claims=/run/kubectl-ray

start_time() { sed 's/.*) //' "/proc/$1/stat" 2> /dev/null | cut -d' ' -f20; }

# alive PID START_TIME: process numbers are used again, so the time tells whether it is the same process; a zombie is dead.
alive() {
  [ -n "${1:-}" ] && [ -n "${2:-}" ] && [ "$(start_time "$1")" = "$2" ] && ! grep -q '^State:.*[ZX]' "/proc/$1/status" 2> /dev/null
}

# claim STATE: takes a free number into $n; one whose owner is gone is cleaned up and used.
claim() {
  mkdir -p "$claims"
  exec 8> "$claims/lock"
  flock 8
  for n in $(seq 1 250); do
    if [ -e "$claims/$n" ]; then
      local pid start
      read -r pid start _ < "$claims/$n" || true
      if alive "$pid" "$start"; then continue; fi
      sweep "$n"
    fi
    if [ -e "/sys/class/net/kube-$n" ]; then continue; fi
    echo "$$ $(start_time $$) $1" > "$claims/$n"
    exec 8>&-
    return
  done
  echo "no free cluster number: see $claims" >&2
  return 1
}

# sweep N: takes away what cluster N left on this machine outside its namespaces.
sweep() {
  local id=kubectl-ray-$1
  ip link delete "kube-$1" 2> /dev/null || true
  local table
  for table in nat filter; do
    # No rule left is no failure: a `down` may have been interrupted behind them.
    iptables -w -t "$table" -S 2> /dev/null | { grep -E -- "--comment \"?$id\"? " || true; } | sed 's/^-A/-D/' |
      while read -r rule; do xargs iptables -w -t "$table" <<< "$rule" || true; done
  done
  local root
  for root in /sys/fs/cgroup /sys/fs/cgroup/*; do
    if [ -d "$root/$id" ]; then remove_cgroup "$root/$id"; fi
  done
  rm -f "$claims/$1"
}

# remove_cgroup DIR: killed processes leave their cgroup a moment later, hence the retries.
remove_cgroup() {
  for _ in $(seq 50); do
    if [ -f "$1/cgroup.kill" ]; then echo 1 > "$1/cgroup.kill" || true; fi
    find "$1" -depth -type d -exec rmdir {} + 2> /dev/null || true
    if [ ! -d "$1" ]; then return; fi
    sleep 0.1
  done
  echo "cgroup $1 could not be removed" >&2
}
