# Sourced by test.sh: the stand-in for kaniko's executor, in the pod that an ImageTemplate's build runs.

# build STATE NAME DOCKERFILE_LINES BUILD_ARGUMENTS...: a pod that builds and then pushes; waits for its end.
build() {
  local state=$1 name=$2 dockerfile=$3
  shift 3
  k "$state" create configmap "$name" --from-literal=Dockerfile="$dockerfile" --from-literal=script.sh='echo from-a-script > $HOME/script-ran' > /dev/null
  k "$state" apply -f - > /dev/null <<K
apiVersion: v1
kind: Pod
metadata: {name: build-$name}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  initContainers:
  - name: build
    image: registry.local:5000/kaniko/executor:stand-in
    args: ["--context=dir:///workspace", "--dockerfile=/workspace/Dockerfile", "--digest-file=/dev/termination-log", "--oci-layout-path=/out/image", "--insecure-registry=registry.local:5000", "--insecure-registry=registry.local:5999", $(printf '"%s",' "$@")]
    terminationMessagePolicy: FallbackToLogsOnError
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [CHOWN, DAC_OVERRIDE, FOWNER, SETGID, SETUID, SETFCAP]}, seccompProfile: {type: RuntimeDefault}}
    resources: {limits: {memory: 2Gi}}
    volumeMounts: [{name: context, mountPath: /workspace}, {name: out, mountPath: /out}]
  containers:
  - name: push
    image: registry.local:5000/kaniko/executor:stand-in
    args: [push, /out/image, "--insecure-registry=registry.local:5000", --destination=registry.local:5000/team/$name:1]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
    volumeMounts: [{name: out, mountPath: /out}]
  volumes: [{name: context, configMap: {name: $name}}, {name: out, emptyDir: {}}]
K
  k "$state" wait --for=jsonpath='{.status.phase}'=Succeeded "pod/build-$name" --timeout=180s > /dev/null 2>&1 &
  local succeeded=$!
  k "$state" wait --for=jsonpath='{.status.phase}'=Failed "pod/build-$name" --timeout=180s > /dev/null 2>&1 &
  wait -n $succeeded $! || true
}

# ended STATE NAME FIELD: of the build container's end: exitCode, reason or message.
ended() { k "$1" get pod "build-$2" -o "jsonpath={.status.initContainerStatuses[0].state.terminated.$3}"; }

# fails STATE NAME EXIT_CODE LAST_LINE DOCKERFILE ARGUMENTS...: a build that must end so.
fails() {
  local state=$1 name=$2 code=$3 line=$4
  shift 4
  build "$state" "$name" "$@"
  check "kaniko $name: exit code $code" test "$(ended "$state" "$name" exitCode)" = "$code"
  check "kaniko $name: its last line" grep -E -- "$line" <(ended "$state" "$name" message | tail -n 1)
}

test_kaniko() {
  local state=$1 base=registry.local:5000/rayproject/ray:2.60.0 digest layers
  build "$state" good "FROM $base
USER root
RUN rm /usr/bin/wget && touch /etc/added
USER ray
ENV GREETING=\"hello world\"
COPY --chown=ray script.sh /opt/script.sh
RUN bash -eo pipefail /opt/script.sh
RUN pip install --no-cache-dir emoji==2.14.0
WORKDIR /home/ray/work" --no-push --cache=false --snapshot-mode=redo --compressed-caching=false
  check "kaniko: builds" test "$(ended "$state" good exitCode)" = 0
  digest=$(ended "$state" good message)
  check "kaniko: the termination message is the digest" grep -xE 'sha256:[0-9a-f]{64}' <(echo "$digest")
  check "kaniko: says what it is" grep -q "stand-in for kaniko's executor" <(k "$state" logs build-good -c build)
  check "kaniko: pushed under that digest" curl -sf -o "$work/manifest" -H 'Accept: application/vnd.oci.image.manifest.v1+json' "http://$(setting "$state" REGISTRY_ADDRESS)/v2/team/good/manifests/$digest"
  layers=$(curl -s -H 'Accept: application/vnd.oci.image.manifest.v1+json' "http://$(setting "$state" REGISTRY_ADDRESS)/v2/rayproject/ray/manifests/2.60.0" | jq -r '.layers[].digest')
  check "kaniko: the base's layers are in it as they were" test "$(jq -r '.layers[].digest' "$work/manifest" | head -n "$(wc -l <<< "$layers")")" = "$layers"
  k "$state" apply -f - > /dev/null <<K
apiVersion: v1
kind: Pod
metadata: {name: built}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: registry.local:5000/team/good@$digest
    command: [bash, -lc, "python -c 'import emoji, ray; print(emoji.__version__, ray.__version__)'; echo \$GREETING; cat ~/script-ran; pwd; id -un; test -e /etc/added && ! test -e /usr/bin/wget && stat -c %U /opt/script.sh"]
K
  k "$state" wait --for=jsonpath='{.status.phase}'=Succeeded pod/built --timeout=60s > /dev/null || true
  check "kaniko: the image runs and has what was added" diff <(printf '%s\n' "2.14.0 2.60.0" "hello world" from-a-script /home/ray/work ray ray) <(k "$state" logs built)

  fails "$state" pip-no-such-version 1 '^error building image: error building stage: failed to execute command: waiting for process to exit: exit status 1$' \
    "FROM $base
RUN pip install --no-cache-dir emoji==999.0" --no-push
  check "kaniko pip-no-such-version: pip's own line is there" grep -q 'ERROR: No matching distribution found for emoji==999.0' <(ended "$state" pip-no-such-version message)
  fails "$state" apt-no-such-package 100 'waiting for process to exit: exit status 100$' "FROM $base
USER root
RUN apt-get update && apt-get install -y --no-install-recommends no-such-package-zz" --no-push
  fails "$state" conda-missing 127 'waiting for process to exit: exit status 127$' "FROM $base
RUN conda install -y numpy" --no-push
  fails "$state" base-image-not-found 1 '^error building image: unable to complete operation after 0 attempts, last error: GET http://registry.local:5000/v2/rayproject/ray/manifests/0.0.1: MANIFEST_UNKNOWN: manifest unknown; map\[Tag:0.0.1\]$' \
    "FROM registry.local:5000/rayproject/ray:0.0.1" --no-push
  fails "$state" base-registry-unreachable 1 'last error: Get "https?://registry.local:5999/v2/": dial tcp .*: connect: connection refused' "FROM registry.local:5999/ray:1" --no-push
  fails "$state" dockerfile-syntax 1 '^error building image: parsing dockerfile: dockerfile parse error on line 2: unknown instruction: RUNN \(did you mean RUN\?\)$' "FROM $base
RUNN true" --no-push
  fails "$state" tls-mismatch 1 '^error checking push permissions: checking push permission for "'"$(setting "$state" NODE_ADDRESS)"':5000/team/x:1": creating push check transport for .* failed: Get "https://.*/v2/": http: server gave HTTP response to HTTPS client$' \
    "FROM $base" "--destination=$(setting "$state" NODE_ADDRESS):5000/team/x:1"
  fails "$state" oom 137 'waiting for process to exit: exit status 137|signal: killed' "FROM $base
RUN python3 -c \"x=b'a'*(3<<30)\"" --no-push
}
