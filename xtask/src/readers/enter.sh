#!/bin/sh
# Runs $3... in the root $1, which has the workspace $2 at the same place.
set -e
root=$1 workspace=$2
shift 2
folder=$PWD
mount --bind "$root" "$root"
mkdir -p "$root/old" "$root$workspace"
mount --rbind "$workspace" "$root$workspace"
for name in dev proc sys; do mount --rbind "/$name" "$root/$name"; done
mount -t tmpfs none "$root/tmp"
cd "$root"
pivot_root . old
umount -l /old
cd "$folder"
exec "$@"
