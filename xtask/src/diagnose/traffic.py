"""Traffic of planted faults, by its first word: see `MODES`. Whoever started it ends it.

A PAUSE is seconds between two rounds, or a share such as `40%`: of a CPU's time, which the program then keeps to.
"""

import collections
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time

REQUESTS, BULK, DATAGRAMS = 8000, 8001, 8002
SIZE = 200
MOST_DATAGRAM = 65536
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_BUSY_POLL = 32, 33, 46
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3


def make_pause(word):
    """The function that waits between two rounds."""
    if not word.endswith("%"):
        seconds = float(word)
        return (lambda: time.sleep(seconds)) if seconds else (lambda: None)
    share, start = float(word[:-1]) / 100, time.monotonic()

    def keep_to_share():
        behind = time.process_time() / share - (time.monotonic() - start)
        if behind > 0.001:
            time.sleep(behind)

    return keep_to_share


def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def run_threads(count, target, *arguments):
    for _ in range(count):
        threading.Thread(target=target, args=arguments, daemon=True).start()
    while True:
        time.sleep(60)


def listen(port, backlog, handle):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", port))
    listener.listen(backlog)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=handle, args=(connection,), daemon=True).start()


def serve(think_s, how="sleep"):
    """Answers each request after a time, asleep or at work."""
    think = time.sleep if how == "sleep" else work

    def handle(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting = 0
        while received := connection.recv(4096):
            waiting += len(received)
            while waiting >= SIZE:
                waiting -= SIZE
                think(float(think_s))
                connection.sendall(b"y" * SIZE)

    listen(REQUESTS, 128, handle)


def sink(buffer="0"):
    """Reads all, with a receive buffer of so many bytes."""
    def read_all(connection):
        while connection.recv(1 << 20):
            pass

    listener = socket.socket()
    if int(buffer):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(buffer))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", BULK))
    listener.listen(128)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=read_all, args=(connection,), daemon=True).start()


def read_slowly():
    def handle(connection):
        while connection.recv(65536):
            time.sleep(0.01)

    listen(BULK, 128, handle)


def accept_slowly():
    listener = socket.socket()
    listener.bind(("0.0.0.0", REQUESTS))
    listener.listen(3)
    while True:
        time.sleep(0.3)
        listener.accept()[0].close()


def ask(host, pieces, pause):
    """Sends requests one after the other; in two pieces without TCP_NODELAY, Nagle waits for a delayed ACK."""
    connection = socket.create_connection((host, REQUESTS))
    if pieces == 1:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        for _ in range(pieces):
            connection.send(b"x" * (SIZE // pieces))
        received = 0
        while received < SIZE:
            received += len(connection.recv(4096))
        pause()


def send_bulk(host, send_buffer, pause):
    connection = socket.socket()
    if send_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    connection.connect((host, BULK))
    while True:
        connection.sendall(b"z" * 65536)
        pause()


def send_datagrams(host, size, per_s, bursts_per_s="100", send_buffer="0", mtu=""):
    """Sends so many datagrams a second, in so many bursts. With a send buffer it does not wait for room there. `probe` sends
    whole what is larger than the path's MTU."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setblocking(send_buffer == "0")
    if send_buffer != "0":
        sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, int(send_buffer))
    if mtu == "probe":
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
    data, bursts, sent, start = b"d" * int(size), float(bursts_per_s), 0, time.monotonic()
    burst = max(1, round(float(per_s) / bursts))
    while True:
        for _ in range(burst):
            try:
                sender.sendto(data, (host, DATAGRAMS))
            except OSError:
                pass
        sent += 1
        time.sleep(max(0.0, start + sent / bursts - time.monotonic()))


def receive_datagrams(pause_s, buffer="0", busy_poll_us="0", work_s="0"):
    """Receives one after the other. A busy poll waits for each so long."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if int(buffer):
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, int(buffer))
    if int(busy_poll_us):
        receiver.setsockopt(socket.SOL_SOCKET, SO_BUSY_POLL, int(busy_poll_us))
    receiver.bind(("0.0.0.0", DATAGRAMS))
    pause = make_pause(pause_s)
    while True:
        receiver.recv(MOST_DATAGRAM)
        work(float(work_s))
        pause()


def connect_again(host, pause):
    while True:
        try:
            socket.create_connection((host, REQUESTS), timeout=2).close()
        except OSError:
            pass
        pause()


def read_path_options(words):
    names = ("late_every", "late_ms", "lost_every", "stall_ms")
    options = dict.fromkeys(names, 0.0)
    for word in words:
        name, value = word.split("=")
        if name not in options:
            sys.exit(f"no such option of a path: {name}")
        options[name] = float(value)
    return options


ADD_PATH = """
for name in all zzpath; do echo 0 > /proc/sys/net/ipv4/conf/$name/rp_filter; done
ip link set zzpath address $(cat /sys/class/net/lat0/address) txqueuelen 10000 up
tc qdisc add dev lat0 ingress
tc filter add dev lat0 ingress protocol ip u32 match u32 0 0 action mirred egress redirect dev zzpath
"""


def be_path(delay_ms, *words):
    """Holds what lat0 receives: each frame for a time, some longer, all while it stalls each 1.5 s; loses some."""
    options = read_path_options(words)
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", b"zzpath", 0x1002))  # TUNSETIFF: IFF_TAP, IFF_NO_PI
    subprocess.run(["sh", "-ec", ADD_PATH], check=True)
    lines = [collections.deque(), collections.deque()]  # of frames with one delay each, so that they stay in order
    delays = [float(delay_ms) / 1000, (float(delay_ms) + options["late_ms"]) / 1000]
    count, stalls_from, stall_s = 0, time.monotonic() + 0.5, options["stall_ms"] / 1000
    while True:
        now = time.monotonic()
        if now > stalls_from + stall_s:
            stalls_from += 1.5
        is_stalled = stall_s > 0 and now >= stalls_from
        for line in lines:
            while line and line[0][0] <= now and not is_stalled:
                os.write(tap, line.popleft()[1])
        dues = [line[0][0] for line in lines if line]
        wait_s = max(0.0, min(dues) - now) if dues else 0.1
        readable = select.select([tap], [], [], 0.001 if is_stalled else wait_s)[0]
        for _ in range(64 if readable else 0):
            try:
                frame = os.read(tap, 65536)
            except BlockingIOError:
                break
            count += 1
            if options["lost_every"] and count % options["lost_every"] == 0:
                continue
            is_late = options["late_every"] and count % options["late_every"] == 0
            lines[int(bool(is_late))].append((time.monotonic() + delays[int(bool(is_late))], frame))


MODES = {
    "serve": serve,
    "sink": sink,
    "slow-read": read_slowly,
    "no-accept": accept_slowly,
    "receive": receive_datagrams,
    "datagrams": send_datagrams,
    "path": be_path,
    "burn": lambda: work(3600),
    "client": lambda host, count, pieces, pause: run_threads(int(count), ask, host, int(pieces), make_pause(pause)),
    "bulk": lambda host, count, buffer, pause="0": run_threads(int(count), send_bulk, host, int(buffer), make_pause(pause)),
    "connects": lambda host, count="20", pause="0": run_threads(int(count), connect_again, host, make_pause(pause)),
}

mode, *words = sys.argv[1:]
if mode not in MODES:
    sys.exit(f"no such traffic: {mode}")
MODES[mode](*words)
