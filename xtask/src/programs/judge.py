"""Runs programs of others between two namespaces, good and broken, and compares what latput reads of their outputs with
what this file reads of them. Arguments: the binary of latput, an empty folder, and the reader of nmstate's YAML. The last
line counts the cases."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from shutil import which

LATPUT, FOLDER, NMSTATE = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
CLIENT, SERVER = (f"latput-judge-{os.getpid()}-{end}" for end in "ab")
HERE, THERE, NOBODY = "192.0.2.1", "192.0.2.2", "192.0.2.3"
PORT = 5201


def call(*words, check=True, **options):
    return subprocess.run(words, check=check, capture_output=True, text=True, timeout=60, **options)


def make():
    call("ip", "netns", "add", CLIENT)
    call("ip", "netns", "add", SERVER)
    call("ip", "-n", CLIENT, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", SERVER)
    for name, address in [(CLIENT, HERE), (SERVER, THERE)]:
        call("ip", "-n", name, "address", "add", f"{address}/24", "dev", "veth0")
        for device in ["lo", "veth0"]:
            call("ip", "-n", name, "link", "set", device, "up")


def remove():
    for name in [CLIENT, SERVER]:
        call("ip", "netns", "delete", name, check=False)


class Serving:
    """A server in its namespace, while a block runs."""

    def __init__(self, command, port=PORT):
        self.command, self.port = command, port

    def __enter__(self):
        words = ["ip", "netns", "exec", SERVER, *shlex.split(self.command)]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(500):
            listening = call("ip", "netns", "exec", SERVER, "ss", "-lntuH").stdout
            if f":{self.port} " in listening:
                return self
            time.sleep(0.02)
        self.__exit__()
        raise RuntimeError(f"`{self.command}` does not listen")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Output:
    """What a program printed, and its exit code."""

    def __init__(self, command, interrupted_after=None):
        self.command = command
        self.program = shlex.split(command)[0]
        words = ["ip", "netns", "exec", CLIENT, *shlex.split(command)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        timer = None
        if interrupted_after:
            # `ip netns exec` becomes the program.
            timer = threading.Timer(interrupted_after, process.send_signal, [signal.SIGINT])
            timer.start()
        try:
            self.stdout, self.stderr = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            self.stdout, self.stderr = process.communicate()
        if timer:
            timer.cancel()
        self.code = process.returncode
        self.text = (self.stdout + b"\n" + self.stderr).decode(errors="replace")

    def read_by_latput(self):
        """The figures that latput reads when it runs a program that prints the same; or the reason why there are none."""
        folder = FOLDER / "again"
        folder.mkdir(exist_ok=True)
        (folder / "stdout").write_bytes(self.stdout)
        (folder / "stderr").write_bytes(self.stderr)
        program = folder / self.program
        code = self.code if self.code >= 0 else 128 - self.code
        program.write_text(f"#!/bin/sh\ncat {folder}/stdout\ncat {folder}/stderr >&2\nexit {code}\n")
        program.chmod(0o755)
        words = [str(program), *shlex.split(self.command)[1:]]
        return figures("measure", "loopback", "--command", shlex.join(words), "--repetitions", "1..1", "--warmup", "0")

    def imported(self, program):
        path = FOLDER / "file"
        path.write_bytes(self.stdout)
        results = FOLDER / "results.db"
        results.unlink(missing_ok=True)
        return figures("import", program, str(path), "-o", str(results))


def figures(*words):
    done = call(LATPUT, *words, "--json", check=False)
    for line in done.stdout.splitlines():
        document = json.loads(line)
        if document.get("cells"):
            cell = document["cells"][0]["metrics"]
            values = {name: of["value"] for name, of in cell.items() if not name.startswith(("sut_", "generator_"))}
            said = [*document["notes"], *map(json.dumps, document["failed_checks"])]
            return {**values, "said": " ".join(said), "workload": document["workloads"][0]["name"]}
    return done.stdout + done.stderr


CASES = []
SKIPPED = []


def case(*programs):
    def add(run):
        missing = [program for program in programs if not which(program)]
        SKIPPED.extend(missing)
        if not missing:
            CASES.append(run)
        return run

    return add


def agree(found, expected, share=0.002, also=()):
    """Every expected figure is there, and no other of the program's."""
    assert isinstance(found, dict), found
    for name, value in expected.items():
        assert name in found, f"{name} is absent in {found}"
        assert abs(found[name] - value) <= abs(value) * share + 1e-9, f"{name} is {found[name]}, not {value}"
    more = set(found) - set(expected) - {"said", "workload", "program_errors", *also}
    assert not more, f"also {more}"


def refused(found, *parts):
    assert isinstance(found, str), found
    assert any(part in found for part in parts), f"{parts} in {found}"


def search(pattern, text):
    found = re.search(pattern, text, re.MULTILINE)
    assert found, f"`{pattern}` in {text}"
    return [float(number) for number in found.groups()]


def of_percent(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, max(0, -(-len(values) * percent // 100) - 1))]


@case("iperf3")
def iperf3_tcp():
    with Serving(f"iperf3 -s -p {PORT}"):
        output = Output(f"iperf3 -c {THERE} -p {PORT} -t 1 -J")
    end = json.loads(output.stdout)["end"]
    got, sent = end["sum_received"], end["sum_sent"]
    expected = {"throughput_bps": got["bytes"] * 8 / got["seconds"], "retransmits_per_s": sent["retransmits"] / sent["seconds"]}
    agree(output.read_by_latput(), expected)
    agree(output.imported("iperf3"), expected)
    output.stdout *= 2  # 3.16 and 3.17 print it twice
    agree(output.imported("iperf3"), expected)
    assert "counts once" in output.imported("iperf3")["said"]


@case("iperf3")
def iperf3_udp():
    with Serving(f"iperf3 -s -p {PORT}"):
        output = Output(f"iperf3 -c {THERE} -p {PORT} -u -b 20M -t 1 -J")
    end = json.loads(output.stdout)["end"]
    got = end.get("sum_received", end["sum"])
    expected = {"loss_ratio": got["lost_percent"] / 100, "jitter_ns": got["jitter_ms"] * 1e6}
    if "sum_received" in end:
        expected["throughput_bps"] = got["bytes"] * 8 / got["seconds"]
    agree(output.imported("iperf3"), expected)


@case("iperf3")
def iperf3_without_server():
    output = Output(f"iperf3 -c {THERE} -p {PORT} -t 1 -J")
    refused(output.imported("iperf3"), "unable to connect", "Connection refused")
    refused(output.read_by_latput(), "unable to connect", "Connection refused")


@case("iperf3")
def iperf3_interrupted():
    with Serving(f"iperf3 -s -p {PORT}"):
        output = Output(f"iperf3 -c {THERE} -p {PORT} -t 20 -J", interrupted_after=1)
    refused(output.imported("iperf3"), "interrupt", "no figures of its end", "not know", "empty")


@case("iperf3", "nft")
def iperf3_one_flow_of_eight_dead():
    # Data of the third connection: the handshake and the cookie pass.
    rules = "table ip judge { chain out { type filter hook output priority 0; tcp sport 42002 ip length > 200 drop; }; }\n"
    call("ip", "netns", "exec", CLIENT, "nft", "-f", "-", input=rules)
    try:
        with Serving(f"iperf3 -s -p {PORT}"):
            output = Output(f"iperf3 -c {THERE} -p {PORT} -P 8 --cport 42000 -t 1 -J")
    finally:
        call("ip", "netns", "exec", CLIENT, "nft", "delete", "table", "ip", "judge")
    document = json.loads(output.stdout)
    assert "error" not in document, document["error"]
    dead = [idx for idx, it in enumerate(document["end"]["streams"], 1) if it["receiver"]["bytes"] == 0]
    assert dead, "no connection is dead"
    found = output.imported("iperf3")
    assert f"of 8 connections these moved no data: {', '.join(map(str, dead))}" in found["said"], found
    assert "connections=8" in found["workload"], found


# The thousandth, of too few replies, and the rate by latput's clock.
OF_ECHOES = ["latency_ns_p999", "transactions_per_s"]


def of_ping(text):
    least, mean, most = search(r"min/avg/max\S* = ([\d.]+)/([\d.]+)/([\d.]+)", text)
    times = [float(ms) for ms in re.findall(r"time=([\d.]+) ms", text)]
    sent, received = search(r"(\d+) packets transmitted, (\d+) (?:packets )?received", text)
    expected = {"latency_ns_mean": mean * 1e6, "latency_ns_max": most * 1e6, "loss_ratio": 1 - received / sent}
    return expected, times


@case("ping")
def ping():
    output = Output(f"ping -c 200 -i 0.005 {THERE}")
    expected, times = of_ping(output.text)
    for name, percent in [("p50", 50), ("p90", 90), ("p99", 99)]:
        expected[f"latency_ns_{name}"] = of_percent(times, percent) * 1e6
    found = output.read_by_latput()
    assert "latency_ns_p999" in found["said"], found
    agree(found, expected, also=OF_ECHOES)


@case("ping")
def ping_interrupted():
    output = Output(f"ping -q -i 0.01 {THERE}", interrupted_after=1)
    agree(output.read_by_latput(), of_ping(output.text)[0], also=OF_ECHOES)


@case("ping")
def ping_of_nobody():
    refused(Output(f"ping -c 2 -W 1 -i 0.2 {NOBODY}").read_by_latput(), "no echo was answered", "exit code", "ended with")


@case("fping")
def fping():
    output = Output(f"fping -c 100 -p 10 {THERE}")
    sent, received, mean, most = search(r"xmt/rcv/%loss = (\d+)/(\d+)/\d+%, min/avg/max = [\d.]+/([\d.]+)/([\d.]+)", output.text)
    times = [float(ms) for ms in re.findall(r"bytes, ([\d.]+) ms", output.text)]
    expected = {"latency_ns_mean": mean * 1e6, "latency_ns_max": most * 1e6, "loss_ratio": 1 - received / sent}
    for name, percent in [("p50", 50), ("p90", 90), ("p99", 99)]:
        expected[f"latency_ns_{name}"] = of_percent(times, percent) * 1e6
    found = output.read_by_latput()
    agree(found, expected, also=OF_ECHOES)


@case("fping")
def fping_of_nobody():
    refused(Output(f"fping -c 2 -t 200 -p 200 {NOBODY}").read_by_latput(), "no echo was answered", "exit code", "ended with")


QPERF = {"us": 1e3, "ms": 1e6, "KB/sec": 8e3, "MB/sec": 8e6, "GB/sec": 8e9}


def of_qperf(name, text):
    number, unit = re.search(rf"^\s+{name}\s+=\s+([\d.,]+) (\S+)", text, re.MULTILINE).groups()
    return float(number.replace(",", "")) * QPERF[unit]


@case("qperf")
def qperf():
    with Serving("qperf", 19765):
        latency = Output(f"qperf -t 1 {THERE} tcp_lat")
        bandwidth = Output(f"qperf -t 1 {THERE} udp_bw")
        both = Output(f"qperf -t 1 {THERE} tcp_lat tcp_bw")
    agree(latency.read_by_latput(), {"latency_ns_mean": 2 * of_qperf("latency", latency.text)})
    sent, received = (of_qperf(f"{end}_bw", bandwidth.text) for end in ["send", "recv"])
    agree(bandwidth.read_by_latput(), {"throughput_bps": received, "sent_bps": sent})
    refused(both.read_by_latput(), "2 tests, where one is needed")


@case("qperf")
def qperf_without_server():
    refused(Output(f"qperf -t 1 -to 1 {THERE} tcp_lat").read_by_latput(), "not there", "exit code", "ended with")


@case("sockperf")
def sockperf():
    with Serving(f"sockperf server -i {THERE} -p 11111 --tcp", 11111):
        output = Output(f"sockperf ping-pong -i {THERE} -p 11111 --tcp -t 1")
        cut = Output(f"sockperf ping-pong -i {THERE} -p 11111 --tcp -t 20", interrupted_after=1)
    [half] = search(r"Summary: Latency is ([\d.]+) usec", output.text)
    seconds, received = search(r"Valid Duration\] RunTime=([\d.]+) sec;.* ReceivedMessages=(\d+)", output.text)
    expected = {"latency_ns_mean": half * 2e3, "transactions_per_s": received / seconds}
    for name, percent in [("p50", "50.000"), ("p90", "90.000"), ("p99", "99.000"), ("p999", "99.900")]:
        [us] = search(rf"percentile {percent} =\s+([\d.]+)", output.text)
        expected[f"latency_ns_{name}"] = us * 2e3
    expected["latency_ns_max"] = search(r"<MAX> observation =\s+([\d.]+)", output.text)[0] * 2e3
    agree(output.read_by_latput(), expected)
    found = cut.read_by_latput()  # it prints what it has, or nothing
    assert isinstance(found, str) or found["transactions_per_s"] > 0, found


@case("sockperf")
def sockperf_without_server():
    refused(Output(f"sockperf ping-pong -i {THERE} -p 11111 --tcp -t 1").read_by_latput(), "not there", "exit code", "ended with")


WRK = {"us": 1e3, "ms": 1e6, "s": 1e9}


def of_wrk(pattern, text):
    number, unit = re.search(pattern, text, re.MULTILINE).groups()
    return float(number) * WRK[unit]


@case("wrk", "nginx")
def wrk():
    folder = FOLDER / "nginx"
    folder.mkdir()
    (folder / "conf").write_text(
        f"daemon off; pid {folder}/pid; error_log /dev/null; events {{}} http {{ access_log off; server {{ "
        f"listen {THERE}:80; location / {{ return 200 'hello'; }} location /no {{ return 404; }} }} }}"
    )
    with Serving(f"nginx -p {folder} -c {folder}/conf", 80):
        output = Output(f"wrk -t1 -c2 -d1 --latency http://{THERE}/")
        missing = Output(f"wrk -t1 -c2 -d1 http://{THERE}/no")
    expected = {"transactions_per_s": search(r"Requests/sec:\s+([\d.]+)", output.text)[0]}
    expected["latency_ns_mean"] = of_wrk(r"^\s+Latency\s+([\d.]+)([mu]?s)", output.text)
    expected["latency_ns_max"] = of_wrk(r"^\s+Latency\s+\S+\s+\S+\s+([\d.]+)([mu]?s)", output.text)
    for name in ["50", "90", "99"]:
        expected[f"latency_ns_p{name}"] = of_wrk(rf"^\s+{name}%\s+([\d.]+)([mu]?s)", output.text)
    agree(output.read_by_latput(), expected)
    failed = search(r"Non-2xx or 3xx responses: (\d+)", missing.text)[0]
    assert missing.read_by_latput()["program_errors"] == failed


@case("wrk")
def wrk_without_server():
    refused(Output(f"wrk -t1 -c2 -d1 --latency http://{THERE}/").read_by_latput(), "unable to connect", "exit code", "ended with")


@case("wrk")
def wrk_of_server_that_answers_nothing():
    program = "import socket; s = socket.create_server(('', 80))\nwhile True: s.accept()[0].close()"
    with Serving(shlex.join([sys.executable, "-c", program]), 80):
        output = Output(f"wrk -t1 -c2 -d1 --latency http://{THERE}/")
    refused(output.read_by_latput(), "no request was answered")


@case("redis-benchmark", "redis-server")
def redis():
    with Serving(f"redis-server --bind {THERE} --protected-mode no --save ''", 6379):
        output = Output(f"redis-benchmark -h {THERE} -t get -n 5000 -c 4 --csv")
    [line] = [line for line in output.text.splitlines() if line.startswith('"GET"')]
    rps, mean, _, p50, _, p99, most = (float(field.strip('"')) for field in line.split(",")[1:8])
    agree(
        output.read_by_latput(),
        {
            "transactions_per_s": rps,
            "latency_ns_mean": mean * 1e6,
            "latency_ns_p50": p50 * 1e6,
            "latency_ns_p99": p99 * 1e6,
            "latency_ns_max": most * 1e6,
        },
    )


@case("redis-benchmark")
def redis_without_server():
    refused(Output(f"redis-benchmark -h {THERE} -t get -n 500 --csv").read_by_latput(), "not there", "exit code", "ended with")


# Values that nmstate may have a word for, with the property of the profile that it makes of them.
NMSTATE_KNOBS = {
    "mtu=9000": "mtu=9000",
    "rx-ring=512": "ring-rx=512",
    "tx-ring=64": "ring-tx=64",
    "rx-mini-ring=8": "ring-rx-mini=8",
    "rx-jumbo-ring=16": "ring-rx-jumbo=16",
    "pause-autoneg=on": "pause-autoneg=true",
    "pause-rx=on": "pause-rx=true",
    "pause-tx=off": "pause-tx=false",
    "adaptive-rx=off": "coalesce-adaptive-rx=0",
    "adaptive-tx=on": "coalesce-adaptive-tx=1",
    "rx-checksum=off": "feature-rx=false",
    "sg=on": "feature-sg=true",
    "gro=off": "feature-gro=false",
    "gso=on": "feature-gso=true",
    "tso=off": "feature-tso=false",
    "lro=off": "feature-lro=false",
    "rx-gro-hw=on": "feature-rx-gro-hw=true",
    "rx-gro-list=on": "feature-rx-gro-list=true",
    "rx-udp-gro-forwarding=on": "feature-rx-udp-gro-forwarding=true",
    "tx-udp-segmentation=off": "feature-tx-udp-segmentation=false",
    "rx-hashing=on": "feature-rxhash=true",
    "rx-ntuple=on": "feature-ntuple=true",
    "rx-vlan=off": "feature-rxvlan=false",
    "tx-vlan=off": "feature-txvlan=false",
    "tx-nocache-copy=on": "feature-tx-nocache-copy=true",
    "stats-block-usecs=1000us": "coalesce-stats-block-usecs=1000",
    "sample-interval=2s": "coalesce-sample-interval=2",
    "pkt-rate-low=100": "coalesce-pkt-rate-low=100",
    "pkt-rate-high=900": "coalesce-pkt-rate-high=900",
}
for side in ["rx", "tx"]:
    for end in ["", "-irq", "-low", "-high"]:
        NMSTATE_KNOBS[f"{side}-usecs{end}=50us"] = f"coalesce-{side}-usecs{end}=50"
        NMSTATE_KNOBS[f"{side}-frames{end}=5"] = f"coalesce-{side}-frames{end}=5"


def nmstate_of(kind, *knobs):
    """What nmstate makes of an export, and what latput says is not in it."""
    words = ["export-settings", "nic7", *knobs, "--kind", kind, "--format", "nmstate"]
    done = call(LATPUT, *words)
    return call(NMSTATE, input=done.stdout, check=False), done.stderr


@case()
def nmstate_reads_each_knob():
    # The direction of pause frames counts beside their negotiation only.
    beside = {"pause-rx=on": ["pause-autoneg=off"], "pause-tx=off": ["pause-autoneg=off"]}
    written = 0
    for knob, wanted in NMSTATE_KNOBS.items():
        read, said = nmstate_of("ethernet", knob, *beside.get(knob, []))
        assert read.returncode == 0 and "nic7: ethernet" in read.stdout or "not in it" in said, (knob, read)
        is_written = f"not in it: {knob.split('=')[0]}=" not in said
        assert (wanted in read.stdout.splitlines()) == is_written, f"{knob}: {read.stdout}"
        written += is_written
    assert written >= 35, written
    everything, _ = nmstate_of("ethernet", *NMSTATE_KNOBS)
    assert everything.returncode == 0, everything


@case()
def nmstate_reads_each_type():
    types = {"bond": "bond", "bridge": "linux-bridge", "vlan": "vlan", "vrf": "vrf", "vxlan": "vxlan", "veth": "veth"}
    types |= {"macvlan": "mac-vlan", "macvtap": "mac-vtap", "dummy": "dummy", "loopback": "loopback"}
    for kind, name in types.items():
        read, _ = nmstate_of(kind, "mtu=1400", "gro=off")
        assert f"nic7: {name}" in read.stdout.splitlines(), read
        # It does not make what is not there: those need a mode or a table.
        assert read.returncode == 0 or "mandatory for new" in read.stderr or "new VRF" in read.stderr, read


def main():
    failed = 0
    try:
        make()
        for run in CASES:
            try:
                run()
                print(f"ok: {run.__name__}", flush=True)
            except Exception as problem:
                failed += 1
                print(f"FAILED: {run.__name__}: {type(problem).__name__}: {problem}", flush=True)
    finally:
        remove()
    for program in sorted(set(SKIPPED)):
        print(f"skipped: {program} is not there")
    print(f"{len(CASES)} cases, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
