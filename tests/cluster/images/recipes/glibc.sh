#!/bin/bash
# What our servers link to, from Debian's packages, and this machine's trusted authorities; no shell. usage: glibc.sh ROOT TAG
set -euo pipefail
root=$1
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
(cd "$packages" && apt-get download libc6 libgcc-s1 >&2)
for package in "$packages"/*.deb; do dpkg-deb -x "$package" "$root"; done
# Character sets, translations and documents, 15 MB of them, are of no use without a shell.
rm -rf "${root:?}"/usr/share "${root:?}"/usr/lib/*/gconv "${root:?}"/usr/lib/*/audit
mkdir -p "$root/etc/ssl/certs" "$root/usr/local/bin"
install -d -m 1777 "$root/tmp"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
echo 'root:x:0:0:root:/root:/sbin/nologin
nonroot:x:65532:65532:nonroot:/:/sbin/nologin' > "$root/etc/passwd"
echo 'root:x:0:
nonroot:x:65532:' > "$root/etc/group"
printf -- '--user=%s\n' 65532:65532
printf -- '--env=%s\n' PATH=/usr/local/bin:/usr/bin:/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
