"""Passes frames between two interfaces, each after a delay of its own, and one in ten twice."""

import heapq
import random
import select
import socket
import sys
import time

EVERY_PROTOCOL = 3  # ETH_P_ALL
OWN = 4  # PACKET_OUTGOING
LONGEST_DELAY_S = 0.02
FRAMES_MOST = 10_000

ends = []
for name in sys.argv[1:3]:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_PROTOCOL))
    end.bind((name, 0))
    ends.append(end)
print("ready", flush=True)
draw = random.Random(1)
held: list[tuple[float, int, int, bytes]] = []
number = 0
while True:
    wait_s = max(0.0, held[0][0] - time.monotonic()) if held else 1.0
    ready, _, _ = select.select(ends, [], [], wait_s)
    for idx, end in enumerate(ends):
        if end not in ready:
            continue
        frame, address = end.recvfrom(65536)
        if address[2] == OWN or len(held) >= FRAMES_MOST:
            continue
        for _ in range(2 if draw.random() < 0.1 else 1):
            number += 1
            due = time.monotonic() + draw.uniform(0, LONGEST_DELAY_S)
            heapq.heappush(held, (due, number, 1 - idx, frame))
    while held and held[0][0] <= time.monotonic():
        _, _, to, frame = heapq.heappop(held)
        try:
            ends[to].send(frame)
        except OSError as error:  # A link that is down loses it.
            print(error, file=sys.stderr)
