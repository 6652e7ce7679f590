#!/bin/bash
# The container that holds a pod's namespaces. usage: pause.sh ROOT TAG
set -euo pipefail
here=$(dirname "$(realpath "$0")")
cp "$("$here/../../build.sh" pause)" "$1/pause"
printf -- '--entrypoint=%s\n' /pause
printf -- '--user=%s\n' 65535:65535
