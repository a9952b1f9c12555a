"""The settings of every NAPI of one interface, by raw netlink: what ethtool, ip, tc and sysfs do not show. And the CPUs and
the policy of the thread that polls for it. With `bind`, each thread gets CPU 1 and a real-time priority.

Numbers: include/uapi/linux/{netlink,genetlink,netdev}.h. Ids and interrupts change when a NAPI is made anew, and are left out.
"""

import os
import socket
import struct
import sys

CTRL, GETFAMILY, FAMILY_ID, FAMILY_NAME = 16, 3, 1, 2
NETLINK_GENERIC = 16
NAPI_GET, NAPI_IFINDEX, NAPI_PID, LEFT_OUT = 11, 1, 4, {1, 2, 3, 4}


def attributes(payload):
    while len(payload) >= 4:
        length, kind = struct.unpack_from("HH", payload)
        if length < 4:
            return
        yield kind & 0x3FFF, payload[4:length]
        payload = payload[(length + 3) & ~3 :]


def ask(sock, family, command, body, flags):
    message = struct.pack("BBxx", command, 1) + body
    sock.send(struct.pack("IHHII", 16 + len(message), family, 1 | flags, 1, 0) + message)
    while True:
        data = sock.recv(1 << 16)
        while data:
            length, kind = struct.unpack_from("IH", data)
            if kind == 3:
                return
            if kind == 2:
                code = struct.unpack_from("i", data, 16)[0]
                if code:
                    sys.exit(f"netlink: error {-code}")
                return
            yield data[20:length]
            data = data[(length + 3) & ~3 :]
        if not flags:
            return


def attribute(kind, payload):
    padding = b"\0" * (-len(payload) % 4)
    return struct.pack("HH", 4 + len(payload), kind) + payload + padding


sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
answer = b"".join(ask(sock, CTRL, GETFAMILY, attribute(FAMILY_NAME, b"netdev\0"), 0))
family = struct.unpack("H", dict(attributes(answer))[FAMILY_ID][:2])[0]
index = struct.pack("I", socket.if_nametoindex(sys.argv[1]))
napis = [dict(attributes(one)) for one in ask(sock, family, NAPI_GET, attribute(NAPI_IFINDEX, index), 0x300)]
for napi in sorted(napis, key=lambda one: one.get(2, b"")):
    print({kind: value.hex() for kind, value in sorted(napi.items()) if kind not in LEFT_OUT})
    pid = struct.unpack("I", napi.get(NAPI_PID, bytes(4)))[0]
    if pid and sys.argv[2:] == ["bind"]:
        os.sched_setaffinity(pid, {1})
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(5))
    if pid:
        print(os.sched_getaffinity(pid), os.sched_getscheduler(pid), os.sched_getparam(pid).sched_priority)
