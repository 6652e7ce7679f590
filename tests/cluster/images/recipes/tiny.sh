#!/bin/bash
# The smallest base that an image can be built on, for tests whose subject is not what is in it: busybox, bash, user ray
# (1000:100) at /home/ray, a `conda` that notes its arguments, and a `python3` that answers the verification of a build as an
# image with Ray would. usage: tiny.sh ROOT TAG
set -euo pipefail
root=$1
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
(cd "$packages" && apt-get download busybox-static bash-static >&2)
for package in "$packages"/*.deb; do dpkg-deb -x "$package" "$packages/root"; done
mkdir -p "$root"/{bin,etc,usr/bin,usr/local/bin,home/ray}
cp "$packages/root/bin/busybox" "$root/bin/busybox"
cp "$packages/root/bin/bash-static" "$root/bin/bash"
chroot "$root" /bin/busybox --install -s /bin
install -d -m 1777 "$root/tmp"
chown 1000:100 "$root/home/ray"
echo 'root:x:0:0:root:/root:/bin/sh
ray:x:1000:100:ray:/home/ray:/bin/bash' > "$root/etc/passwd"
echo 'root:x:0:
users:x:100:' > "$root/etc/group"
cat > "$root/usr/local/bin/conda" <<'S'
#!/bin/sh
printf '%s\n' "$@" > /home/ray/conda-arguments
S
cat > "$root/usr/local/bin/python3" <<'S'
#!/bin/sh
echo '{"ray": "2.60.0", "python": "3.11.2", "user": "ray", "has_ray_user": true}' > /dev/termination-log
S
chmod 755 "$root"/usr/local/bin/*
printf -- '--user=%s\n' ray
printf -- '--working-dir=%s\n' /home/ray
printf -- '--env=%s\n' PATH=/usr/local/bin:/usr/bin:/bin HOME=/home/ray
printf -- '--command=%s\n' /bin/bash
