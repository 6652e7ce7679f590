#!/bin/bash
# Pack programs (linked with glibc) into an image that runs the first of them as an unprivileged user, push it and print its digest.
# usage: image.sh [--plain-http] NAME:TAG FILE...
set -euo pipefail
here=$(dirname "$(realpath "$0")")
flags=()
if [ "${1:-}" = --plain-http ]; then flags+=("$1"); shift; fi
[ $# -ge 2 ] || { echo "usage: $0 [--plain-http] NAME:TAG FILE..." >&2; exit 2; }
name=$1
shift
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
mkdir -p "$root/usr/local/bin"
for program in "$@"; do strip -o "$root/usr/local/bin/$(basename "$program")" "$program"; done
chmod 755 "$root"/usr/local/bin/*
base=$("$here/images.sh" glibc)
"$("$here/build.sh" image)" push "${flags[@]}" --entrypoint="/usr/local/bin/$(basename "$1")" "$base" registry.local:5000/base/glibc:1 "$root" "$name"
