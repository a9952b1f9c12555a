#!/bin/sh
# Installs $2... in the root $1; no package may start a daemon there.
set -e
root=$1
shift
cp /etc/resolv.conf "$root/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
mount -t proc none "$root/proc"
mount --rbind /dev "$root/dev"
DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -q -y --no-install-recommends "$@"
