#!/bin/bash
# Ray from Debian's and PyPI's packages, with what users of Ray's own image rely on: user ray (1000:100) at /home/ray, who owns
# the Python environment that is first in PATH, bash, wget, and no privileges. usage: ray.sh ROOT VERSION
set -euo pipefail
root=$1 version=$2
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,wget,procps bookworm "$root" "$mirror" >&2

# As this machine reaches its indexes, so does the image: trusted authorities and pip's settings.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
if [ -f /etc/pip.conf ]; then cp /etc/pip.conf "$root/etc/"; fi
cp --dereference --remove-destination /etc/resolv.conf "$root/etc/resolv.conf"
echo "deb $mirror bookworm main" > "$root/etc/apt/sources.list"

chroot "$root" useradd --uid 1000 --gid 100 --create-home --shell /bin/bash ray >&2
# Login shells reset PATH, and Ray's start command runs in one.
echo 'PATH=/home/ray/venv/bin:$PATH' > "$root/etc/profile.d/ray.sh"
as_ray() { chroot --userspec=ray:users "$root" env -i HOME=/home/ray PATH=/home/ray/venv/bin:/usr/bin:/bin "$@" >&2; }
as_ray python3 -m venv /home/ray/venv
as_ray pip install --no-cache-dir --disable-pip-version-check "ray[default,serve]==$version"

# Half of the files serve only Java, C++ or the tests of libraries.
packages=$root/home/ray/venv/lib/python3.11/site-packages
rm -rf "$packages"/ray/jars "$packages"/ray/cpp "$packages"/ray/rllib "$packages"/ray/include
find "$packages" -depth -type d \( -name tests -o -name test \) -path "$packages/*/*" -not -path "*/ray/*" -exec rm -rf {} +
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/usr/share/{doc,man,locale,info}/* "$root"/etc/hostname
rm -f "$root/etc/resolv.conf"
as_ray ray --version
as_ray python -c 'import ray.serve, ray.dashboard.dashboard'
printf -- '--user=%s\n' ray
printf -- '--working-dir=%s\n' /home/ray
printf -- '--env=%s\n' PATH=/home/ray/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/home/ray LC_ALL=C.UTF-8
printf -- '--command=%s\n' /bin/bash
