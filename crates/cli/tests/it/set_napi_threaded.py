"""Sets `threaded` of one NAPI instance of an interface by the netdev family of generic netlink (Linux 6.17).

Usage: python3 set_napi_threaded.py IFACE 0|1|get
"""

import errno
import socket
import struct
import sys

NETLINK_GENERIC = 16
CTRL = 0x10
CTRL_CMD_GETFAMILY = 3
CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 1, 2
NAPI_GET, NAPI_SET = 11, 14
NAPI_IFINDEX, NAPI_ID, NAPI_THREADED = 1, 2, 8
REQUEST, ACK, DUMP = 1, 4, 0x300
ERROR, DONE = 2, 3


def attribute(kind, data):
    padding = b"\0" * (-len(data) % 4)
    return struct.pack("HH", 4 + len(data), kind) + data + padding


def attributes(data):
    while len(data) >= 4:
        length, kind = struct.unpack_from("HH", data)
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3 :]


def ask(link, family, command, flags, payload):
    """The payloads of the answers, without the generic header; ends at an error of the kernel."""
    body = struct.pack("BBH", command, 1, 0) + payload
    link.send(struct.pack("IHHII", 16 + len(body), family, REQUEST | flags, 1, 0) + body)
    answers = []
    while True:
        data = link.recv(1 << 16)
        while data:
            length, kind = struct.unpack_from("IH", data)
            if kind == ERROR:
                (code,) = struct.unpack_from("i", data, 16)
                if code:
                    sys.exit(f"{errno.errorcode[-code]}")
                return answers
            if kind == DONE:
                return answers
            answers.append(data[20:length])
            data = data[(length + 3) & ~3 :]


def main():
    interface, wanted = sys.argv[1:]
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
    name = attribute(CTRL_ATTR_FAMILY_NAME, b"netdev\0")
    found = dict(attributes(ask(link, CTRL, CTRL_CMD_GETFAMILY, ACK, name)[0]))
    (family,) = struct.unpack("H", found[CTRL_ATTR_FAMILY_ID])
    index = attribute(NAPI_IFINDEX, struct.pack("I", socket.if_nametoindex(interface)))
    napis = [dict(attributes(napi)) for napi in ask(link, family, NAPI_GET, DUMP, index)]
    napi = min(napis, key=lambda napi: napi[NAPI_ID])
    if wanted == "get":
        print(struct.unpack("I", napi[NAPI_THREADED])[0])
        return
    change = attribute(NAPI_ID, napi[NAPI_ID])
    change += attribute(NAPI_THREADED, struct.pack("I", int(wanted)))
    ask(link, family, NAPI_SET, ACK, change)


main()
