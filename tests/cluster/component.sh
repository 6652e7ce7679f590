#!/bin/bash
# One component of a cluster, called inside its namespaces.
# usage: component.sh start STATE NAME [COMMAND...]   (without a command: the one of last time)
#        component.sh stop STATE NAME
set -euo pipefail
action=$1 state=$2 name=$3
shift 3
run=$state/cluster/run
pid=$(cat "$run/$name.pid" 2> /dev/null || true)
case $action in
  start)
    if [ $# -gt 0 ]; then { printf 'exec'; printf ' %q' "$@"; echo; } > "$run/$name.command"; fi
    [ -f "$run/$name.command" ] || { echo "no component '$name' here; there are: $(cd "$run" && ls -- *.command | sed 's/\.command//' | xargs)" >&2; exit 2; }
    if [ -n "$pid" ] && kill -0 "$pid" 2> /dev/null; then exit 0; fi
    setsid bash "$run/$name.command" >> "$state/logs/$name.log" 2>&1 < /dev/null &
    echo $! > "$run/$name.pid" ;;
  stop)
    [ -n "$pid" ] || exit 0
    kill "$pid" 2> /dev/null || true
    for _ in $(seq 100); do kill -0 "$pid" 2> /dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2> /dev/null || true
    rm -f "$run/$name.pid" ;;
esac
