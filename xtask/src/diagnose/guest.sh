# Runs in a guest of `xtask/guest.sh` with two cards of one kind: hosts `a` and `b`, and what lines of cases call.
exec 2>/run/said

# The interrupts of the host's card to a CPU. Those of a virtio card belong to the device above it.
place() {
  for vector in /sys/class/net/lat0/device/{.,..}/msi_irqs/*; do
    { echo "$1" >"/proc/irq/${vector##*/}/smp_affinity_list"; } 2>/dev/null
  done
  line=$(cat /sys/class/net/lat0/device/irq 2>/dev/null)
  { echo "$1" >"/proc/irq/$line/smp_affinity_list"; } 2>/dev/null
  true
}
export -f place

skip() {
  echo "latput: skipped: $1: $(tail -n 1 /run/said)"
  exit 0
}

prepare() { ip netns exec "$1" bash -c "$2" >/dev/null || skip "$2"; }

# Programs start slowly in a guest; servers come before clients.
run() {
  ip netns exec "$1" bash -c "$2" >/dev/null 2>&1 &
  sleep 3
}

# Waits until the host's card has traffic: Python may take half a minute to start.
settle() {
  count() { ip netns exec "$1" cat /sys/class/net/lat0/statistics/rx_packets; }
  before=$(count "$1")
  for _ in $(seq 60); do
    sleep 1
    now=$(count "$1")
    if ((now - before > 50)); then break; fi
    before=$now
  done
  sleep 5
}

bring() { # HOST MAC ADDRESS
  card=$(grep -lx "$2" /sys/class/net/*/address) || skip "no card $2"
  card=$(basename "$(dirname "$card")")
  ip netns add "$1" && ip link set "$card" netns "$1" || skip "host $1"
  prepare "$1" "ip link set lo up && ip link set $card name lat0 && ip addr add $3/24 dev lat0 && ip link set lat0 up"
  prepare "$1" 'for _ in $(seq 100); do grep -q 1 /sys/class/net/lat0/carrier && exit; sleep 0.2; done; exit 1'
}
bring a 52:54:00:00:00:01 "$A"
bring b 52:54:00:00:00:02 "$B"
