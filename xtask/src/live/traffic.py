"""Requests and responses that latput knows nothing of: an open loop whose rate drifts by a factor of two.

    traffic.py server ADDRESS PORT
    traffic.py client ADDRESS PORT CONNECTIONS REQUESTS_PER_S PERIOD_S METRICS_ADDRESS METRICS_PORT
    traffic.py read METRICS_ADDRESS METRICS_PORT SECONDS

The client keeps a histogram of its requests' times, and a process of its own serves it in the text format of Prometheus.
`read` prints the 99th percentile in nanoseconds, and the number, of the requests of the next seconds.
"""

import bisect
import collections
import gc
import http.client
import http.server
import math
import mmap
import os
import random
import select
import selectors
import socket
import struct
import sys
import time

BYTES = 200
# Upper bounds of the histogram, in seconds: 10 us to 1 s, each a fiftieth above the one before.
BOUNDS = [1e-5 * 1.02**step for step in range(582)]
NAME = "request_seconds"


def go_before_others():
    """Lets no other program of this machine take the CPU meanwhile: their work is not what is measured."""
    gc.disable()
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def server(address, port):
    go_before_others()
    chosen = selectors.DefaultSelector()
    listener = socket.create_server((address, port))
    chosen.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in chosen.select():
            if key.fileobj is listener:
                stream, _ = listener.accept()
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                chosen.register(stream, selectors.EVENT_READ)
            elif data := key.fileobj.recv(65536):
                key.fileobj.sendall(data)
            else:
                chosen.unregister(key.fileobj)
                key.fileobj.close()


def client(address, port, connections, rate, period, metrics):
    counts = mmap.mmap(-1, 8 * (len(BOUNDS) + 1))
    if os.fork() == 0:
        tell(counts, metrics)
    go_before_others()
    counts = memoryview(counts).cast("Q")
    streams = [socket.create_connection((address, port)) for _ in range(connections)]
    by_number = {}
    for stream in streams:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        by_number[stream.fileno()] = (stream, collections.deque())
    numbers = list(by_number)
    # When each request was due, until its answer is whole; and the bytes of an answer that is not.
    halves = dict.fromkeys(numbers, 0)
    begun = due = time.monotonic()
    sent = 0
    while True:
        now = time.monotonic()
        while due <= now:
            stream, waiting = by_number[numbers[sent % connections]]
            stream.send(b"x" * BYTES)
            waiting.append(due)
            sent += 1
            load = 1 + math.sin(2 * math.pi * (now - begun) / period) / 3
            due += random.expovariate(rate * load)
        # select, and not epoll: its time is finer than a millisecond.
        ready, _, _ = select.select(numbers, (), (), max(0, due - time.monotonic()))
        for number in ready:
            stream, waiting = by_number[number]
            got = halves[number] + len(stream.recv(65536))
            now = time.monotonic()
            while got >= BYTES:
                got -= BYTES
                counts[bisect.bisect_left(BOUNDS, now - waiting.popleft())] += 1
            halves[number] = got


def tell(counts, metrics):
    """Serves the histogram until the parent is gone."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            lines = [f"# TYPE {NAME} histogram"]
            total = 0
            for idx, count in enumerate(struct.unpack(f"{len(BOUNDS) + 1}Q", counts[:])):
                total += count
                bound = f"{BOUNDS[idx]:.9f}" if idx < len(BOUNDS) else "+Inf"
                lines.append(f'{NAME}_bucket{{le="{bound}"}} {total}')
            body = "\n".join([*lines, f"{NAME}_count {total}", ""]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    parent = os.getppid()
    serving = http.server.HTTPServer(metrics, Handler)
    serving.timeout = 1
    os.nice(10)
    while os.getppid() == parent:
        serving.handle_request()
    os._exit(0)


def read(metrics, seconds):
    def buckets():
        connection = http.client.HTTPConnection(*metrics, timeout=5)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        lines = [line for line in text.splitlines() if line.startswith(f"{NAME}_bucket")]
        return [int(line.rsplit(" ", 1)[1]) for line in lines]

    first = buckets()
    time.sleep(seconds)
    grown = [after - before for before, after in zip(first, buckets())]
    rank = 0.99 * grown[-1]
    at = min(bisect.bisect_left(grown, rank), len(BOUNDS) - 1)
    below, low = (grown[at - 1], BOUNDS[at - 1]) if at else (0, 0.0)
    part = (rank - below) / max(1, grown[at] - below)
    print(round(1e9 * (low + (BOUNDS[at] - low) * part)), grown[-1])


role, words = sys.argv[1], sys.argv[2:]
if role == "server":
    server(words[0], int(words[1]))
elif role == "client":
    client(words[0], int(words[1]), int(words[2]), float(words[3]), float(words[4]), (words[5], int(words[6])))
else:
    read((words[0], int(words[1])), float(words[2]))
