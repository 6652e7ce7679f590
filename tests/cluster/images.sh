#!/bin/bash
# Build one of the images that a node starts with, or take it from the cache; prints its folder, laid out as a registry's storage.
# usage: images.sh pause|glibc|kaniko|ray|tiny
# A recipe fills a root folder and prints the arguments that `image store` adds to the image's configuration, one a line.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kubectl-ray/images
declare -A names=([pause]=pause:1 [glibc]=base/glibc:1 [kaniko]=kaniko/executor:stand-in [ray]=rayproject/ray:2.60.0 [tiny]=tests/tiny:1)

recipe=${1:-}
if [ -z "$recipe" ] || [ -z "${names[$recipe]:-}" ]; then echo "usage: $0 ${!names[*]}" >&2; exit 2; fi
# The packer's sources, not its binary: a newer Go or library packs no other image.
inputs=("${names[$recipe]}" "$(cat "$here/images/recipes/$recipe.sh" "$here"/images/{image,layer}/*.go)")
case $recipe in pause|kaniko) inputs+=("$("$here/build.sh" "$recipe")") ;; esac
entry=$cache/$recipe-$(printf '%s\n' "${inputs[@]}" | sha256sum | cut -c1-16)

mkdir -p "$cache"
exec 9> "$cache/$recipe.lock"
flock 9
if [ ! -d "$entry" ]; then
  echo "building the image ${names[$recipe]}" >&2
  work=$(mktemp -d "$cache/.building-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir "$work/root" "$work/storage"
  chmod 755 "$work/root"
  if ! "$here/images/recipes/$recipe.sh" "$work/root" "${names[$recipe]#*:}" > "$work/arguments" 2> "$work/log"; then tail -n 20 "$work/log" >&2; exit 1; fi
  mapfile -t arguments < "$work/arguments"
  packer=$("$here/build.sh" image)
  "$packer" store "${arguments[@]}" "$work/root" "registry.local:5000/${names[$recipe]}" "$work/storage" >&2
  mv "$work/storage" "$entry"
fi
touch "$entry"
find "$cache" -mindepth 1 -maxdepth 1 -type d -mtime +14 -exec rm -rf {} +
echo "$entry"
