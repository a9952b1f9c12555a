"""Requests and responses that latput knows nothing of: an open loop whose rate drifts by a factor of two.

    traffic.py server ADDRESS PORT
    traffic.py client ADDRESS PORT CONNECTIONS REQUESTS_PER_S PERIOD_S
"""

import math
import random
import selectors
import socket
import sys
import time

BYTES = 200


def server(address, port):
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


def client(address, port, connections, rate, period):
    streams = [socket.create_connection((address, port)) for _ in range(connections)]
    chosen = selectors.DefaultSelector()
    for stream in streams:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        chosen.register(stream, selectors.EVENT_READ)
    begun = due = time.monotonic()
    sent = 0
    while True:
        now = time.monotonic()
        while due <= now:
            streams[sent % connections].send(b"x" * BYTES)
            sent += 1
            load = 1 + math.sin(2 * math.pi * (now - begun) / period) / 3
            due += random.expovariate(rate * load)
        for key, _ in chosen.select(max(0, due - time.monotonic())):
            key.fileobj.recv(65536)


role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if role == "server":
    server(address, port)
else:
    client(address, port, int(sys.argv[4]), float(sys.argv[5]), float(sys.argv[6]))
