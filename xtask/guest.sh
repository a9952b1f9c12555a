#!/usr/bin/env bash
# As cargo's runner: runs a test program in a guest with the kernel of `cargo xtask vm`, which has kinds of interfaces
# that this machine's kernel may lack. The guest sees this machine's files by 9p, read-only, and so runs the `ip`, `tc`
# and `ethtool` that are installed here. It has a vmxnet3, an igb, a virtio-net with RSS, and the modules whose files
# LATPUT_GUEST_MODULES names: netdevsim, say, which Debian's kernels lack.
#
# With LATPUT_GUEST_PAIR it has two cards of that kind instead, connected with each other, and six CPUs.
set -euo pipefail

repository=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$repository/target}
kernel=$target/vm/kernel
releases=("$kernel"/lib/modules/*)
release=${releases[0]##*/}
depmod -b "$kernel" "$release"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tree=$folder/tree
mkdir -p "$tree"/{again,bin,dev,host,modules,proc}
cp "$(command -v busybox)" "$tree/bin/"

mkdir "$tree/own"
for module in ${LATPUT_GUEST_MODULES-}; do cp "$module" "$tree/own/"; done

# What mounts this machine's files, in the order that it is loaded in.
count=100
modprobe -d "$kernel" -S "$release" -a --show-depends virtio_pci 9pnet_virtio 9p |
  while read -r _ module _; do
    count=$((count + 1))
    cp "$module" "$tree/modules/$count-${module##*/}"
  done

cat >"$tree/init" <<END
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
for module in /modules/*; do insmod "\$module"; done
mount -t proc proc /proc
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=524288 root /host
mount --bind /host /again
# Where tests write. What they read may be below such a folder, and is seen there again.
for path in tmp run var/lib; do mount -t tmpfs tmpfs "/host/\$path"; done
for path in "$repository" "$target"; do
  mkdir -p "/host\$path"
  mount --bind "/again\$path" "/host\$path"
done
cp -r /own /host/run/modules
cp /tests /modprobe /host/run/
echo /run/modprobe >/proc/sys/kernel/modprobe
umount /proc
exec switch_root /host /bin/bash /run/tests
END

cat >"$tree/modprobe" <<END
#!/bin/sh
exec $(command -v modprobe) -d "$kernel" "\$@"
END

{
  for name in ${!LATPUT_@} ${!CARGO_@} PATH RUST_BACKTRACE; do
    [ -z "${!name+set}" ] || printf 'export %s=%q\n' "$name" "${!name}"
  done
  cat <<END
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
ip link set lo up
/run/modprobe -a igb psample vmxnet3 virtio_net e1000 e1000e
for module in /run/modules/*.ko; do [ ! -e "\$module" ] || insmod "\$module"; done
cd $(printf %q "$PWD")
$(printf '%q ' "$@")
echo "guest: ended with \$?"
exec busybox reboot -f
END
} >"$tree/tests"
chmod +x "$tree"/{init,modprobe}

(cd "$tree" && find . | busybox cpio -o -H newc >"$folder/initramfs") 2>"$folder/cpio"
add_virtio() { # NAME MORE: with queues, which need a tap
  cards+=(-netdev "tap,id=$1,ifname=$1,queues=4,script=no,downscript=no"
    -device "virtio-net-pci,netdev=$1,mq=on,vectors=10,rss=on,hash=on$2")
}
taps='ip tuntap add lat0 mode tap multi_queue'
machine=(-smp 2)
cards=()
pair=${LATPUT_GUEST_PAIR-}
if [ -z "$pair" ]; then
  cards=(-device vmxnet3)
  # QEMU has it from 8.0 on.
  if qemu-system-x86_64 -device help 2>/dev/null | grep '"igb"' >/dev/null; then cards+=(-device igb); fi
  add_virtio lat0 ''
else
  # One thread: crates/vm/src/qemu.rs says why.
  machine=(-smp 6 -accel tcg,thread=single)
  if [ "$pair" = virtio-net-pci ]; then
    taps="$taps && ip tuntap add lat1 mode tap multi_queue && ip link add lat type bridge &&
      for tap in lat0 lat1; do ip link set \$tap master lat && ip link set \$tap up; done && ip link set lat up"
  fi
  for number in 0 1; do
    mac=mac=52:54:00:00:00:0$((number + 1)),romfile=
    if [ "$pair" = virtio-net-pci ]; then
      add_virtio "lat$number" ",$mac"
    else
      cards+=(-netdev "hubport,id=lat$number,hubid=0" -device "$pair,netdev=lat$number,$mac")
    fi
  done
fi

# Taps are in a network namespace of QEMU's own. Without `remap`, files of two file systems may have one inode number.
unshare --net bash -c "$taps && exec \"\$@\"" qemu \
  qemu-system-x86_64 -nodefaults -no-user-config -nographic -no-reboot -serial stdio -m 3072 "${machine[@]}" -cpu max \
  -kernel "$kernel/boot/vmlinuz-$release" -initrd "$folder/initramfs" \
  -append "console=ttyS0 quiet panic=-1 rdinit=/init" \
  -virtfs local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap \
  "${cards[@]}" \
  </dev/null 2>&1 | sed -u 's/\r$//' | tee "$folder/said"
status=$(sed -n 's/^guest: ended with //p' "$folder/said")
exit "${status:-1}"
