#!/bin/bash
# Build one of our Go programs, or take it from the cache, and print the path of the binary.
# usage: build.sh kube|kwok|kaniko|image|pause
# The cache key is what the build reads: the Go version, the module's files and the flags.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kubectl-ray

name=${1:-} sources=(.)
flags=(-trimpath -buildvcs=false -mod=readonly)
ldflags="-s -w"
case $name in
  kube)
    module=kube package=.
    version=$(sed -n 's/^\tk8s.io\/kubernetes v//p' "$here/kube/go.mod")
    IFS=. read -r major minor _ <<< "$version"
    # Without a version kubectl and the API server's clients cannot parse what they talk to.
    for variable in gitVersion=v$version gitMajor=$major gitMinor=$minor; do
      ldflags+=" -X k8s.io/component-base/version.$variable"
    done ;;
  kwok) module=kwok package=sigs.k8s.io/kwok/cmd/kwok ;;
  kaniko|image|pause) module=images package=./$name sources=($name layer) ;;
  *) echo "usage: $0 kube|kwok|kaniko|image|pause" >&2; exit 2 ;;
esac

command -v go > /dev/null || { echo "$0: Go is missing: install the version that tests/cluster/$module/go.mod names, or a newer one" >&2; exit 1; }
cd "$here/$module"
key=$({ go version; echo "${flags[*]} $ldflags $package"
        find go.* "${sources[@]}" -type f \( -name 'go.*' -o -name '*.go' \) | LC_ALL=C sort -u | xargs sha256sum; } | sha256sum | cut -c1-16)
entry=$cache/go/$name-$key
mkdir -p "$cache/go"
exec 9> "$cache/go/$name.lock"
flock 9
if [ ! -x "$entry/$name" ]; then
  echo "building $name (the first time takes minutes)" >&2
  mkdir -p "$entry"
  CGO_ENABLED=0 nice go build "${flags[@]}" -ldflags "$ldflags" -o "$entry/.building" "$package" >&2
  mv "$entry/.building" "$entry/$name"
fi
touch "$entry"
find "$cache/go" -mindepth 1 -maxdepth 1 -type d -mtime +14 -exec rm -rf {} +
echo "$entry/$name"
