#!/bin/bash
# The stand-in for kaniko's executor, alone on an empty root as the real one. usage: kaniko.sh ROOT TAG
set -euo pipefail
here=$(dirname "$(realpath "$0")")
mkdir -p "$1/kaniko/.docker" "$1/kaniko/ssl/certs" "$1/workspace"
cp "$("$here/../../build.sh" kaniko)" "$1/kaniko/executor"
cp /etc/ssl/certs/ca-certificates.crt "$1/kaniko/ssl/certs/"
printf -- '--entrypoint=%s\n' /kaniko/executor
printf -- '--working-dir=%s\n' /workspace
printf -- '--env=%s\n' HOME=/root USER=root PATH=/usr/local/bin:/kaniko SSL_CERT_DIR=/kaniko/ssl/certs DOCKER_CONFIG=/kaniko/.docker/
