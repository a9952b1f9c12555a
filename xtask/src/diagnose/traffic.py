"""Traffic of planted faults: `traffic.py serve 0 | sink | slow-read | no-accept | client HOST ... | bulk HOST ... | ...`."""

import socket
import sys
import threading
import time

REQUESTS, BULK, DATAGRAMS = 8000, 8001, 8002
SIZE = 200


def listen(port, backlog, handle):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", port))
    listener.listen(backlog)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=handle, args=(connection,), daemon=True).start()


def answer(think_s):
    def handle(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting = 0
        while received := connection.recv(4096):
            waiting += len(received)
            while waiting >= SIZE:
                waiting -= SIZE
                time.sleep(think_s)
                connection.sendall(b"y" * SIZE)

    return handle


def read_all(connection):
    while connection.recv(1 << 20):
        pass


def read_slowly(connection):
    while connection.recv(65536):
        time.sleep(0.01)


def ask(host, pieces, pause_s):
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
        time.sleep(pause_s)


def send_bulk(host, send_buffer):
    connection = socket.socket()
    if send_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    connection.connect((host, BULK))
    while True:
        connection.sendall(b"z" * 65536)


def send_datagrams(host, size, per_s, blocking):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setblocking(blocking)
    batch = max(1, per_s // 100)
    while True:
        for _ in range(batch):
            try:
                sender.sendto(b"d" * size, (host, DATAGRAMS))
            except OSError:
                pass
        time.sleep(0.01)


def receive_datagrams(pause_s, buffer):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if buffer:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    receiver.bind(("0.0.0.0", DATAGRAMS))
    while True:
        receiver.recv(65536)
        time.sleep(pause_s)


def connect_again(host):
    while True:
        try:
            socket.create_connection((host, REQUESTS), timeout=2).close()
        except OSError:
            pass


def run_threads(count, work, *arguments):
    for _ in range(count):
        threading.Thread(target=work, args=arguments, daemon=True).start()
    time.sleep(60)  # whoever started this ends it earlier


def main(mode, *words):
    if mode == "serve":
        listen(REQUESTS, 128, answer(float(words[0])))
    elif mode == "sink":
        listen(BULK, 128, read_all)
    elif mode == "slow-read":
        listen(BULK, 128, read_slowly)
    elif mode == "no-accept":
        listener = socket.socket()
        listener.bind(("0.0.0.0", REQUESTS))
        listener.listen(3)
        while True:
            time.sleep(0.3)
            listener.accept()[0].close()
    elif mode == "client":
        run_threads(int(words[1]), ask, words[0], int(words[2]), float(words[3]))
    elif mode == "bulk":
        run_threads(int(words[1]), send_bulk, words[0], int(words[2]))
    elif mode == "datagrams":
        run_threads(1, send_datagrams, words[0], int(words[1]), int(words[2]), words[3] == "wait")
    elif mode == "receive":
        receive_datagrams(float(words[0]), int(words[1]))
    elif mode == "connects":
        run_threads(20, connect_again, words[0])
    else:
        sys.exit(f"no such traffic: {mode}")


main(*sys.argv[1:])
