# Sourced by node.sh: the kubelet, its cgroup and the machine's settings that it insists on.
cgroup=kubectl-ray-$n

# The kubelet sets these for the whole machine unless they are as it wants them; so it sees them so.
mkdir -p "$data/sysctl"
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  path=/proc/sys/${setting%=*} file=$data/sysctl/$(basename "${setting%=*}")
  echo "${setting#*=}" > "$file"
  mount --bind "$file" "$path"
done

if [ -f /sys/fs/cgroup/cgroup.controllers ]; then     # v2: a controller reaches a cgroup when its parent hands it down
  mkdir -p "/sys/fs/cgroup/$cgroup"
  for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control || echo "cgroup controller $controller is not handed down: move this machine's processes out of its root cgroup"
  done 2> /dev/null
else                                                  # v1: the kubelet's root must exist in every hierarchy
  for hierarchy in /sys/fs/cgroup/*/; do mkdir -p "$hierarchy$cgroup" 2> /dev/null || true; done
  for file in cpuset.cpus cpuset.mems; do
    if [ -f "/sys/fs/cgroup/cpuset/$file" ]; then cat "/sys/fs/cgroup/cpuset/$file" > "/sys/fs/cgroup/cpuset/$cgroup/$file"; fi
  done
fi

kubeconfig kubelet "/O=system:nodes/CN=system:node:local" "$pki/kubelet.kubeconfig"
server_certificate kubelet-server "IP:$address,DNS:local"
# failCgroupV1: v1 is deprecated, but is what older machines have. localStorageCapacityIsolation: without it a pod that
# requests ephemeral storage stays pending. The eviction limits suit a machine shared with compilers.
cat > "$data/kubelet.yaml" <<K
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $address
tlsCertFile: $pki/kubelet-server.crt
tlsPrivateKeyFile: $pki/kubelet-server.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup
failCgroupV1: false
failSwapOn: false
clusterDNS: ["$address"]
clusterDomain: cluster.local
resolvConf: $data/resolv.conf
maxPods: 500
serializeImagePulls: false
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 500
kubeAPIBurst: 1000
imageGCHighThresholdPercent: 100
evictionPressureTransitionPeriod: 10s
evictionHard: {memory.available: "50Mi", nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%"}
localStorageCapacityIsolation: true
podLogsDir: $data/pod-logs
volumePluginDir: $data/volume-plugins
K
start kubelet kube kubelet --config="$data/kubelet.yaml" --kubeconfig="$pki/kubelet.kubeconfig" --root-dir="$data/kubelet" \
  --hostname-override=local --node-ip="$address" --cert-dir="$pki"
