#!/bin/sh
# Tries the package in a clean root, under its systemd, in a network of its own. Each line that matters says so.
list() { find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /try -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /var/lib/systemd \) -prune -o -print | LC_ALL=C sort; }
for folder in class devices; do mount -o remount,rw /sys/$folder; done # as on a host
ip link add ext0 type veth peer name far0; ip link set far0 up; ip link set ext0 up
list > /try/before
dpkg --install /try/latput.deb && echo "installed"
latput --version
latput show ext0 > /try/shown && echo "shown $(grep -c . /try/shown)"
latput man | grep -c '^\.SH'
ls /usr/share/man/man1/latput-tune.1.gz /usr/share/zsh/vendor-completions/_latput
bash -n /usr/share/bash-completion/completions/latput && echo "completes"
cd /tmp && latput tune /try/plan.toml --on sim:server-10g > /try/tuned && echo "tuned"; grep -h Recommended /try/tuned
cd /
latput set ext0 gro=on && echo "set" # the daemon needs it on a veth
unit=latput-moderate@ext0
systemctl is-enabled $unit
systemctl enable --now $unit && echo "started $(systemctl is-active $unit)"
latput moderate ext0 --status
dpkg --install /try/latput.deb && echo "again $(systemctl is-active $unit)"
dpkg --purge latput && echo "purged $(systemctl is-active $unit)"
test -e /run/latput || echo "no state"
ip -d link show ext0 | grep -o 'mtu 1500'
list > /try/after
systemctl poweroff
