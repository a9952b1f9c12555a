"""Requests whose round trips are measured: `stages.py serve SIZE BUSY_S` and `stages.py ask HOST KIND COUNT SIZE PAUSE_S FOR_S`.

`ask` prints the mean round trip in nanoseconds."""

import socket
import sys
import threading
import time

TCP, UDP = 8010, 8011
QUESTION = 64


def answer(connection, size, busy_s):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while connection.recv(QUESTION):
        end = time.perf_counter() + busy_s
        while time.perf_counter() < end:
            pass
        connection.sendall(b"y" * size)


def answer_datagrams(size):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("0.0.0.0", UDP))
    while True:
        _, address = server.recvfrom(QUESTION)
        server.sendto(b"y" * size, address)


def serve(size, busy_s):
    threading.Thread(target=answer_datagrams, args=(size,), daemon=True).start()
    listener = socket.create_server(("0.0.0.0", TCP))
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection, size, busy_s), daemon=True).start()


def ask(host, kind, size, pause_s, end, totals):
    if kind == "udp":
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.connect((host, UDP))
        client.settimeout(1)
    else:
        client = socket.create_connection((host, TCP))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while time.monotonic() < end:
        begun = time.perf_counter_ns()
        client.send(b"x" * QUESTION)
        left = size
        while left > 0:
            left -= len(client.recv(65536))
        totals.append(time.perf_counter_ns() - begun)
        if pause_s:
            time.sleep(pause_s)


def main(mode, *words):
    if mode == "serve":
        serve(int(words[0]), float(words[1]))
    host, kind, count, size, pause_s, for_s = words
    totals, end = [], time.monotonic() + float(for_s)
    work = (host, kind, int(size), float(pause_s), end, totals)
    threads = [threading.Thread(target=ask, args=work) for _ in range(int(count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(totals) / len(totals))


main(*sys.argv[1:])
