# Sourced by inside.sh after the control plane: a registry, containerd, DNS, the service proxy and the kubelet.
storage=$data/registry/docker/registry/v2
mkdir -p "$storage" "$data/cni" "$data/certs.d" "$data/pod-logs"

# Blobs are immutable and shared with the image cache by hard links; tags are rewritten in place, so those are copied.
while read -r image; do
  if [ -z "$image" ]; then continue; fi
  cp -r --link --no-clobber "$image/docker/registry/v2/blobs" "$storage" 2> /dev/null || cp -r "$image/docker/registry/v2/blobs" "$storage"
  cp -r "$image/docker/registry/v2/repositories" "$storage"
done < "$data/images"
cat > "$data/registry.yml" <<K
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: $data/registry}, delete: {enabled: true}}
http: {addr: "$address:5000"}
K
start registry docker-registry serve "$data/registry.yml"

# Nothing leaves the machine: both names are this registry, without falling back to the real one.
for host in docker.io registry.local:5000 "$address:5000"; do
  mkdir "$data/certs.d/$host"
  printf 'server = "http://%s:5000"\n[host."http://%s:5000"]\n  capabilities = ["pull", "resolve"]\n' "$address" "$address" > "$data/certs.d/$host/hosts.toml"
done
# An overlay cannot lie on another one, as inside a container.
snapshotter=overlayfs
if [ "$(stat -f -c %T "$data")" = overlayfs ]; then snapshotter=native; fi
# restrict_oom_score_adj: without CAP_SYS_RESOURCE containers fail to start otherwise.
cat > "$data/containerd.toml" <<K
version = 2
root = "$data/containerd"
state = "/run/containerd/state"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$data/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.local:5000/pause:1"
  restrict_oom_score_adj = true
  max_concurrent_downloads = 8
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$data/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$data/certs.d"
K
# A link to each pod, no bridge: every packet passes the service proxy's rules, with or without the br_netfilter module.
cat > "$data/cni/10-pods.conflist" <<K
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "dataDir": "$data/cni-addresses", "ranges": [[{"subnet": "10.244.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
K
start containerd containerd --config "$data/containerd.toml"

# A second registry, empty, that wants a login: user `push`, password `push-word`.
echo 'push:$2b$05$kubectlraytestsregisteKsh6tm76PVosKaSD7cyRWSPGYe8B3OC' > "$data/htpasswd"
cat > "$data/private-registry.yml" <<K
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: $data/private-registry}, delete: {enabled: true}}
http: {addr: "$address:5001"}
auth: {htpasswd: {realm: private, path: $data/htpasswd}}
K
start private-registry docker-registry serve "$data/private-registry.yml"
mkdir -p "$data/certs.d/registry.local:5001"
printf 'server = "http://%s:5001"\n[host."http://%s:5001"]\n  capabilities = ["pull", "resolve"]\n' "$address" "$address" > "$data/certs.d/registry.local:5001/hosts.toml"

kubeconfig coredns /CN=system:coredns "$pki/coredns.kubeconfig"
kubectl apply -f - <<K
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:coredns}
rules:
- {apiGroups: [""], resources: [services, namespaces, pods], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:coredns}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: system:coredns}]
K
cat > "$data/Corefile" <<K
.:53 {
  errors
  cache 5
  hosts {
    $address registry.local
    fallthrough
  }
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $pki/coredns.kubeconfig
    ttl 5
  }
$(if grep -q ^nameserver "$data/resolv.conf"; then echo "  forward . $data/resolv.conf"; fi)
}
K
start coredns kube coredns -conf "$data/Corefile"

kubeconfig kube-proxy /CN=system:kube-proxy "$pki/kube-proxy.kubeconfig"
# conntrack: its settings belong to the whole machine and are not ours to write.
cat > "$data/kube-proxy.yaml" <<K
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $pki/kube-proxy.kubeconfig}
clusterCIDR: 10.244.0.0/16
mode: iptables
iptables: {minSyncPeriod: 100ms}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
metricsBindAddress: 127.0.0.1:10249
hostnameOverride: local
K
start kube-proxy kube kube-proxy --config="$data/kube-proxy.yaml"

. "$here/kubelet.sh"
for port in 53 5000 5001; do until_ready 30 bash -c "< /dev/tcp/$address/$port"; done
until_ready 60 kubectl get node local
kubectl wait --for=condition=Ready node/local --timeout=60s
