#!/bin/bash
# Pack programs (linked with glibc) into an image that runs the first of them as an unprivileged user, push it to a cluster's
# registry and print its digest. usage: image.sh STATE NAME:TAG FILE...
set -euo pipefail
here=$(dirname "$(realpath "$0")")
[ $# -ge 3 ] || { echo "usage: $0 STATE NAME:TAG FILE..." >&2; exit 2; }
state=$1 name=$2
shift 2
[ -f "$state/env" ] || { echo "no cluster runs in $state: start it with cluster.sh up $state" >&2; exit 1; }
registry=$(sed -n 's/^REGISTRY_ADDRESS=//p' "$state/env")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
mkdir -p "$root/usr/local/bin"
for program in "$@"; do strip -o "$root/usr/local/bin/$(basename "$program")" "$program"; done
chmod 755 "$root"/usr/local/bin/*
"$("$here/build.sh" image)" push --entrypoint="/usr/local/bin/$(basename "$1")" "$registry/base/glibc:1" "$root" "$registry/${name#registry.local:5000/}"
