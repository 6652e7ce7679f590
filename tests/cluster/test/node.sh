# Sourced by test.sh: what a whole node must do.

test_node() {
  local state=$1 name=${1##*/} address output
  address=$(setting "$state" NODE_ADDRESS)
  check "$name: the certificate of the API server verifies" curl -sf --cacert "$state/cluster/pki/ca.crt" "https://$address:6443/version"
  k "$state" apply -f - > /dev/null <<K
apiVersion: v1
kind: Pod
metadata: {name: ray, labels: {app: ray}}
spec:
  containers:
  - name: main
    image: rayproject/ray:2.60.0
    args: ["/bin/bash", "-lc", "python -c 'import ray; print(ray.__version__)'; exec python -m http.server 8000"]
    readinessProbe: {httpGet: {port: 8000}, periodSeconds: 1}
    resources: {requests: {cpu: 100m, memory: 100Mi, ephemeral-storage: 100Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: ray}
spec: {selector: {app: ray}, ports: [{port: 80, targetPort: 8000}]}
K
  check "$name: Ray's image runs by the name that the samples use" k "$state" wait --for=condition=Ready pod/ray --timeout=120s
  check "$name: logs" grep -x 2.60.0 <(k "$state" logs ray)
  check "$name: exec, as user ray with its own Python first in a login shell" test "$(k "$state" exec ray -- bash -lc 'id -un; which python' | xargs)" = "ray /home/ray/venv/bin/python"
  check "$name: a Service by its DNS name and ClusterIP, from its own pod" k "$state" exec ray -- wget -q -T 5 -O /dev/null http://ray.default.svc.cluster.local
  check "$name: a Service's ClusterIP from the API server's place" cluster exec "$state" curl -sf -m 5 -o /dev/null "http://$(k "$state" get service ray -o 'jsonpath={.spec.clusterIP}')"
  check "$name: the API server from a pod, with its account and certificate" k "$state" exec ray -- bash -c \
    'cd /run/secrets/kubernetes.io/serviceaccount && wget -q -T 5 -O- --ca-certificate=ca.crt --header="Authorization: Bearer $(cat token)" https://kubernetes.default/version'
  check "$name: names outside the cluster resolve in a pod" k "$state" exec ray -- python -c "import socket; socket.gethostbyname('deb.debian.org')"
  check "$name: port-forward" port_forward "$state"
  output=$(cluster image "$state" registry.local:5000/test/echo:1 /bin/echo)
  check "$name: a program packed and pushed, run by tag" test "$(run_pod "$state" echo-tag registry.local:5000/test/echo:1 by tag)" = "by tag"
  check "$name: run by digest" test "$(run_pod "$state" echo-digest "registry.local:5000/test/echo@$output" by digest)" = "by digest"
  check "$name: the audit log names who asked" grep -q '"userAgent":"kubectl/v' "$(setting "$state" AUDIT_LOG)"
  # The kubelet asks for pods that go meanwhile, and is refused what it no longer needs.
  check "$name: nothing of the cluster itself is forbidden anything" test -z "$(grep '"code":403' "$(setting "$state" AUDIT_LOG)" | grep -v '"user":{"username":"system:\(anonymous\|node:local\)"' | head -n 3)"
  check "$name: PodSecurity is enforced" pod_security "$state"
  check "$name: a second start finds it running" grep -q "already up" <(cluster up "$state")
}

# run_pod STATE NAME IMAGE ARGUMENTS...: the log of a pod that ran to its end, with nothing but what an unprivileged pod has.
run_pod() {
  local state=$1 name=$2 image=$3
  shift 3
  k "$state" apply -f - > /dev/null <<K
apiVersion: v1
kind: Pod
metadata: {name: $name}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: $image
    args: [$(printf '"%s",' "$@")]
    securityContext: {runAsNonRoot: true, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
K
  k "$state" wait --for=jsonpath='{.status.phase}'=Succeeded "pod/$name" --timeout=60s > /dev/null && k "$state" logs "$name"
}

port_forward() {
  local port pid
  "$1/cluster/bin/kubectl" --kubeconfig "$1/kubeconfig" port-forward pod/ray :8000 > "$work/forward" 2>&1 &
  pid=$!
  for _ in $(seq 50); do port=$(sed -n 's/.*127.0.0.1:\([0-9]*\) .*/\1/p' "$work/forward"); [ -z "$port" ] || break; sleep 0.1; done
  curl -sf -m 5 -o /dev/null "http://127.0.0.1:$port"
  local status=$?
  kill $pid
  return $status
}

pod_security() {
  k "$1" create namespace restricted > /dev/null
  k "$1" label namespace restricted pod-security.kubernetes.io/enforce=restricted > /dev/null
  ! k "$1" -n restricted run pod --image=pause:1 2> "$work/denied" && grep -q 'violates PodSecurity "restricted' "$work/denied"
}

test_faults() {
  local state=$1
  check "a component can be stopped" cluster stop "$state" registry
  check "and is gone" bash -c "! curl -s -m 2 http://$(setting "$state" REGISTRY_ADDRESS)/v2/"
  check "and started again" cluster start "$state" registry
  check "and answers" curl -sf --retry 20 --retry-delay 1 --retry-connrefused -o /dev/null "http://$(setting "$state" REGISTRY_ADDRESS)/v2/"
}
