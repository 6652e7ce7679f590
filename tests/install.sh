#!/bin/bash
# Puts CRDs, webhook and operator into a cluster, as pods, from manifests/. `make install` runs this.
#   KUBECONFIG   the cluster; the local one (.local/kubeconfig) where not set
#   REGISTRY     where to push our images (with docker's credentials) and, by default, the images that people build: host/prefix;
#                the local cluster has its own, and values of its own for the next three
#   INSECURE_REGISTRY  a registry host that speaks plain HTTP
#   REGISTRY_MIRROR    a registry host that serves docker.io's images to builds
#   BUILDER_IMAGE      kaniko's executor, where the default is out of reach
#   PROFILE      release (default) or dev
#   BUILD        no: the binaries of PROFILE are there already
#   STATE        folder of the local cluster (default .local)
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
cluster=tests/cluster/cluster.sh
state=$(realpath -m "${STATE:-.local}")
profile=${PROFILE:-release}
[ "$profile" = dev ] && target=debug || target=release
target=${CARGO_TARGET_DIR:-target}/$target

if [ -z "${KUBECONFIG:-}" ] || [ "$(realpath -m "${KUBECONFIG%%:*}")" = "$state/kubeconfig" ]; then
  local_cluster=yes
  [ -f "$state/env" ] || { echo "no cluster: run 'make cluster' first, or set KUBECONFIG (and REGISTRY)" >&2; exit 1; }
  # shellcheck disable=SC1091
  . "$state/env"
  # kubectl keeps what a server serves by its address, and clusters reuse addresses.
  export KUBECACHEDIR=$state/cluster/kubectl-cache
  export KUBECONFIG PATH=$state/cluster/bin:$PATH
else
  local_cluster=
  [ "${ALLOW_CLUSTER:-}" = 1 ] || { echo "$KUBECONFIG is not the local cluster: set ALLOW_CLUSTER=1 to install into it" >&2; exit 1; }
  [ -n "${REGISTRY:-}" ] || { echo "set REGISTRY=host/prefix, where this cluster can pull our images from" >&2; exit 1; }
fi
command -v kubectl > /dev/null || { echo "kubectl is missing: install it, or use the local cluster (make cluster)" >&2; exit 1; }

if [ "${1:-}" = --uninstall ]; then
  if [ "${2:-}" != --yes ]; then
    read -r -p "This deletes every RayCluster and template of the cluster too. Go on? [y/N] " answer
    [ "$answer" = y ] || exit 1
  fi
  kubectl delete -k manifests --ignore-not-found
  exit
fi

[ "${BUILD:-}" = no ] || cargo build --workspace --locked --profile "$profile" --quiet
tag=$(cat "$target/ray-operator" "$target/ray-webhook" | sha256sum | cut -c1-12)
if [ -n "$local_cluster" ]; then
  servers=$REGISTRY/kubectl-ray/servers:$tag
  "$cluster" image "$state" "$servers" "$target/ray-operator" "$target/ray-webhook"
  BUILDER_IMAGE=$REGISTRY/kaniko/executor:stand-in INSECURE_REGISTRY=$REGISTRY REGISTRY_MIRROR=$REGISTRY repository=$REGISTRY/images
else
  servers=$REGISTRY/kubectl-ray-servers:$tag
  plain_http=()
  [ "${INSECURE_REGISTRY:-}" != "${REGISTRY%%/*}" ] || plain_http=(--plain-http)
  "$cluster" push "${plain_http[@]}" "$servers" "$target/ray-operator" "$target/ray-webhook"
  repository=$REGISTRY
fi

# Both servers are in one image; arguments are added to those of the manifest.
patch() {
  local name=$1 arg
  shift
  echo "- target: {kind: Deployment, name: $name}"
  echo "  patch: |"
  echo "    - {op: add, path: /spec/template/spec/containers/0/command, value: [/usr/local/bin/$name]}"
  for arg in "$@"; do echo "    - {op: add, path: /spec/template/spec/containers/0/args/-, value: \"$arg\"}"; done
}

overlay=$state/install
mkdir -p "$overlay"
{
  echo "apiVersion: kustomize.config.k8s.io/v1beta1"
  echo "kind: Kustomization"
  echo "resources: [$(realpath --relative-to="$overlay" manifests)]"
  echo "images:"
  for name in ray-operator ray-webhook; do echo "- {name: $name, newName: ${servers%:*}, newTag: \"$tag\"}"; done
  echo "patches:"
  operator_args=("--helper-image=$servers")
  [ -z "${BUILDER_IMAGE:-}" ] || operator_args+=("--builder-image=$BUILDER_IMAGE")
  [ -z "${INSECURE_REGISTRY:-}" ] || operator_args+=("--insecure-registry=$INSECURE_REGISTRY")
  [ -z "${REGISTRY_MIRROR:-}" ] || operator_args+=("--registry-mirror=$REGISTRY_MIRROR")
  policy_args=("--default-repository=$repository")
  if [ -n "$local_cluster" ]; then
    operator_args+=("--insecure-registry=$PRIVATE_REGISTRY")
    policy_args+=("--allowed-repositories=$repository/{namespace},$PRIVATE_REGISTRY/{namespace}")
  fi
  patch ray-operator "${operator_args[@]}" "${policy_args[@]}"
  patch ray-webhook "${policy_args[@]}"
} > "$overlay/kustomization.yaml"

# CRDs first and alone: the API server must serve them before it knows what the rest speaks of.
kubectl apply --server-side --force-conflicts --field-manager=kubectl-ray-install -k manifests/crds
# kubectl wait fails at once on a CRD that has no condition yet.
established() { kubectl wait --for=condition=Established --timeout=60s -f <(kubectl kustomize manifests/crds); }
for _ in $(seq 60); do established > /dev/null 2>&1 && break; sleep 0.5; done
established > /dev/null
kubectl apply --server-side --force-conflicts --field-manager=kubectl-ray-install -k "$overlay"
for name in ray-operator ray-webhook; do
  kubectl -n ray-system rollout status "deployment/$name" --timeout=180s
done
