# Sourced by inside.sh: etcd, the API server, the controller manager and the scheduler.
authority
server_certificate kube-apiserver "IP:$address,IP:10.96.0.1,IP:127.0.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
client_certificate kube-apiserver-kubelet-client "/O=system:masters/CN=kube-apiserver-kubelet-client"
kubeconfig admin "/O=system:masters/CN=kubernetes-admin" "$state/kubeconfig"
export KUBECONFIG=$state/kubeconfig

start etcd kube etcd --data-dir "$data/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --unsafe-no-fsync --log-level error --quota-backend-bytes 4294967296 --auto-compaction-retention 5m

cat > "$data/audit-policy.yaml" <<K
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
K
start kube-apiserver kube kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address="$address" --advertise-address="$address" \
  --tls-cert-file="$pki/kube-apiserver.crt" --tls-private-key-file="$pki/kube-apiserver.key" --client-ca-file="$pki/ca.crt" --cert-dir="$pki" \
  --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true --service-cluster-ip-range=10.96.0.0/16 \
  --service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file="$pki/service-account.pub" --service-account-signing-key-file="$pki/service-account.key" \
  --kubelet-preferred-address-types=InternalIP --kubelet-certificate-authority="$pki/ca.crt" \
  --kubelet-client-certificate="$pki/kube-apiserver-kubelet-client.crt" --kubelet-client-key="$pki/kube-apiserver-kubelet-client.key" \
  --audit-policy-file="$data/audit-policy.yaml" --audit-log-path="$state/audit.log" --audit-log-maxsize=1000 --audit-log-maxbackup=2

# delegated NAME: a component's own identity, and its endpoints open to it alone.
delegated() {
  kubeconfig "$1" "/CN=system:$1" "$pki/$1.kubeconfig"
  options=(--kubeconfig="$pki/$1.kubeconfig" --authentication-kubeconfig="$pki/$1.kubeconfig" --authorization-kubeconfig="$pki/$1.kubeconfig"
    --bind-address=127.0.0.1 --leader-elect=false)
}
delegated kube-controller-manager
controller_manager=("${options[@]}")
delegated kube-scheduler

until_ready 60 kubectl get --raw /readyz
start kube-controller-manager kube kube-controller-manager "${controller_manager[@]}" --use-service-account-credentials=true \
  --service-account-private-key-file="$pki/service-account.key" --root-ca-file="$pki/ca.crt" --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key"
# The default of 50 bindings a second would hide every operator behind the scheduler.
start kube-scheduler kube kube-scheduler "${options[@]}" --kube-api-qps=5000 --kube-api-burst=5000
# Pods are refused before their namespace has its account.
until_ready 30 kubectl get serviceaccount default
