"""Cases of programs that measure the network itself."""

import gzip
import json
import re
import shutil
import statistics

from stage import (
    ENDED,
    FOLDER,
    NOBODY,
    PORT,
    THERE,
    Output,
    Serving,
    agree,
    case,
    dropped,
    imported,
    of_percent,
    refused,
    search,
)


@case("iperf3")
def iperf3_tcp():
    with Serving(f"iperf3 -s -p {PORT}"):
        output = Output(f"iperf3 -c {THERE} -p {PORT} -t 1 -J")
    end = json.loads(output.stdout)["end"]
    got, sent = end["sum_received"], end["sum_sent"]
    retransmits = sent["retransmits"] / sent["seconds"]
    expected = {"throughput_bps": got["bytes"] * 8 / got["seconds"], "retransmits_per_s": retransmits}
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


@case("iperf3", option="--gsro")
def iperf3_udp_segments():
    with Serving(f"iperf3 -s -p {PORT}"):
        plain, merged = (Output(f"iperf3 -c {THERE} -p {PORT} -u -b 20M -t 1 -J {it}") for it in ["", "--gsro"])
    end = json.loads(merged.stdout)["end"]
    got = end["sum_received"]
    expected = {"loss_ratio": got["lost_packets"] / got["packets"], "jitter_ns": got["jitter_ms"] * 1e6}
    agree(merged.imported("iperf3"), {**expected, "throughput_bps": got["bytes"] * 8 / got["seconds"]})
    merged.stdout += plain.stdout
    found = merged.imported("iperf3")
    assert "differ in `--gsro`" in found["said"], found


def iperf3_received(options):
    """The receiver's rate, however the document is written."""
    with Serving(f"iperf3 -s -p {PORT}"):
        output = Output(f"iperf3 -c {THERE} -p {PORT} -t 1 {options}")
    got = json.loads(re.search(r'"sum_received":\s*({[^}]*})', output.text)[1])
    expected = {"throughput_bps": got["bytes"] * 8 / got["seconds"]}
    agree(output.imported("iperf3"), expected, also=["retransmits_per_s"])


@case("iperf3", option="--mptcp")
def iperf3_mptcp():
    iperf3_received("--mptcp --json")


@case("iperf3", option="--json-stream")
def iperf3_streamed():
    iperf3_received("--json-stream")


@case("iperf3", option="--json-stream-full-output")
def iperf3_streamed_in_full():
    iperf3_received("--json-stream --json-stream-full-output")


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
    with Serving(f"iperf3 -s -p {PORT}"), dropped("tcp sport 42002 ip length > 200"):
        output = Output(f"iperf3 -c {THERE} -p {PORT} -P 8 --cport 42000 -t 1 -J")
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
    refused(Output(f"ping -c 2 -W 1 -i 0.2 {NOBODY}").read_by_latput(), "no echo was answered", *ENDED)


@case("fping")
def fping():
    output = Output(f"fping -c 100 -p 10 {THERE}")
    summary = r"xmt/rcv/%loss = (\d+)/(\d+)/\d+%, min/avg/max = [\d.]+/([\d.]+)/([\d.]+)"
    sent, received, mean, most = search(summary, output.text)
    times = [float(ms) for ms in re.findall(r"bytes, ([\d.]+) ms", output.text)]
    expected = {"latency_ns_mean": mean * 1e6, "latency_ns_max": most * 1e6, "loss_ratio": 1 - received / sent}
    for name, percent in [("p50", 50), ("p90", 90), ("p99", 99)]:
        expected[f"latency_ns_{name}"] = of_percent(times, percent) * 1e6
    found = output.read_by_latput()
    agree(found, expected, also=OF_ECHOES)


@case("fping")
def fping_of_nobody():
    refused(Output(f"fping -c 2 -t 200 -p 200 {NOBODY}").read_by_latput(), "no echo was answered", *ENDED)


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
    refused(Output(f"qperf -t 1 -to 1 {THERE} tcp_lat").read_by_latput(), "not there", *ENDED)


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
    refused(Output(f"sockperf ping-pong -i {THERE} -p 11111 --tcp -t 1").read_by_latput(), "not there", *ENDED)


NETSERVER = "netserver -D -4"
NETPERF = f"netperf -H {THERE} -l 1 -t"
SELECTED = "THROUGHPUT,THROUGHPUT_UNITS,PROTOCOL,DIRECTION,REQUEST_SIZE,RESPONSE_SIZE,ELAPSED_TIME,MIN_LATENCY"
SELECTED += ",MEAN_LATENCY,P50_LATENCY,P90_LATENCY,P99_LATENCY,MAX_LATENCY,REMOTE_RECV_THROUGHPUT"


def of_table(text):
    """The lines of numbers."""
    lines = [line for line in text.splitlines() if re.fullmatch(r"\s*[\d.]+(\s+[\d.]+)*\s*", line)]
    return [[float(word) for word in line.split()] for line in lines]


def netperf_pairs(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


@case("netperf", "netserver")
def netperf_classic():
    with Serving(NETSERVER, 12865):
        for test, name, unit in [
            ("TCP_RR", "transactions_per_s", 1),
            ("UDP_RR", "transactions_per_s", 1),
            ("TCP_CRR", "transactions_per_s", 1),
            ("TCP_STREAM", "throughput_bps", 1e6),
            ("TCP_MAERTS", "throughput_bps", 1e6),
        ]:
            output = Output(f"{NETPERF} {test}")
            expected = {name: of_table(output.text)[0][-1] * unit}
            agree(output.read_by_latput(), expected)
            agree(output.imported("netperf"), expected)
        output = Output(f"{NETPERF} UDP_STREAM -- -m 1000")
        cut = Output(f"netperf -H {THERE} -l 20 -t TCP_RR", interrupted_after=1)
    [sent, received, *_] = of_table(output.text)
    expected = {"throughput_bps": received[-1] * 1e6}
    agree(output.read_by_latput(), expected)
    agree(output.imported("netperf"), {**expected, "loss_ratio": 1 - received[-2] / sent[3]}, share=0.02)
    # It ends in an orderly way, with the rate until then.
    agree(cut.read_by_latput(), {"transactions_per_s": of_table(cut.text)[0][-1]})


@case("netperf", "netserver")
def netperf_selected():
    with Serving(NETSERVER, 12865):
        pairs = Output(f"{NETPERF} TCP_RR -j -- -k {SELECTED}")
        table = Output(f"{NETPERF} TCP_RR -P 0 -j -- -o {SELECTED}")
        stream = Output(f"{NETPERF} TCP_STREAM -f g -- -k {SELECTED},LOCAL_TRANSPORT_RETRANS")
        datagrams = Output(f"{NETPERF} UDP_STREAM -f M -- -m 1000 -k {SELECTED}")
    names = {"mean": "MEAN", "p50": "P50", "p90": "P90", "p99": "P99", "max": "MAX"}
    of = netperf_pairs(pairs.text)
    expected = {f"latency_ns_{name}": float(of[f"{key}_LATENCY"]) * 1e3 for name, key in names.items()}
    expected["transactions_per_s"] = float(of["THROUGHPUT"])
    agree(pairs.read_by_latput(), expected)
    agree(pairs.imported("netperf"), expected)
    # Without its title `-P 0` prints no names either.
    refused(table.read_by_latput(), "no test", "have no title", "no figures")
    of = netperf_pairs(stream.text)
    retransmits = float(of["LOCAL_TRANSPORT_RETRANS"]) / float(of["ELAPSED_TIME"])
    rate = {"throughput_bps": float(of["THROUGHPUT"]) * 1e9}
    agree(stream.read_by_latput(), rate)
    agree(stream.imported("netperf"), {**rate, "retransmits_per_s": retransmits})
    received = {"throughput_bps": float(netperf_pairs(datagrams.text)["REMOTE_RECV_THROUGHPUT"]) * 2**20 * 8}
    agree(datagrams.read_by_latput(), received)
    agree(datagrams.imported("netperf"), received)


@case("netperf", "netserver", "nft")
def netperf_of_lost_data():
    # The handshake passes, and nothing that has data.
    data = "meta l4proto { tcp, udp } th dport 42001 ip length > 52"
    tests = ["TCP_RR", "TCP_STREAM", "UDP_RR -- -r 100", "UDP_STREAM -- -m 1000"]
    with Serving(NETSERVER, 12865), dropped(data):
        outputs = [Output(f"{NETPERF} {test} {'' if '--' in test else '--'} -P 42000,42001") for test in tests]
    for output in outputs:
        for found in [output.read_by_latput(code=0), output.imported("netperf")]:
            refused(found, "nothing", "no request was answered", "was cut short", "arrived", "no data")


@case("netperf", "netserver")
def netperf_without_server():
    output = Output(f"{NETPERF} TCP_RR")
    refused(output.read_by_latput(), *ENDED)
    refused(output.read_by_latput(code=0), "no test")
    with Serving(NETSERVER, 12865) as server:
        server.die_after(1)
        output = Output(f"netperf -H {THERE} -l 3 -t TCP_RR")
    refused(output.read_by_latput(), *ENDED)
    refused(output.read_by_latput(code=0), "was cut short")
    refused(output.imported("netperf"), "was cut short")


def flent_file(words):
    """The data file of a run, if it wrote one."""
    folder = FOLDER / "flent"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    Output(f"flent {words} -H {THERE} -D {folder}")
    [path] = folder.glob("*.flent.gz")
    with gzip.open(path) as file:
        return path, json.load(file)


def flow_bps(document, prefix):
    """The sum of the flows, each a mean over the lengths of its intervals."""
    of_flows = [points for name, points in document["raw_values"].items() if name.startswith(prefix) and points]
    rates = [sum(it["val"] * it["dur"] for it in points) / sum(it["dur"] for it in points) for points in of_flows]
    return sum(rates) * 1e6


def pings_ns(document):
    return [it["val"] * 1e6 for it in document["raw_values"]["Ping (ms) ICMP"]]


def of_probe(document):
    times = pings_ns(document)
    expected = {"probe_ns_min": min(times), "probe_ns_mean": statistics.mean(times), "probe_ns_max": max(times)}
    expected |= {"probe_ns_p50": of_percent(times, 50), "probe_ns_p99": of_percent(times, 99)}
    return {**expected, "probe_ns_mdev": statistics.pstdev(times), "probe_loss_ratio": 0}


@case("flent", "netperf", "fping")
def flent():
    with Serving(NETSERVER, 12865):
        path, document = flent_file("tcp_download -l 2")
        expected = {"throughput_bps": flow_bps(document, "TCP download"), **of_probe(document)}
        agree(imported("flent", path), expected, share=0.01)
        path, document = flent_file("rrul -l 2")
    up, down = flow_bps(document, "TCP upload"), flow_bps(document, "TCP download")
    expected = {"throughput_to_sut_bps": up, "throughput_from_sut_bps": down, "throughput_bps": up + down}
    agree(imported("flent", path), {**expected, **of_probe(document)}, share=0.01)


@case("flent", "netperf", "fping")
def flent_ping():
    with Serving(NETSERVER, 12865):
        path, document = flent_file("ping -l 2")
    times = pings_ns(document)
    expected = {"latency_ns_mean": statistics.mean(times), "latency_ns_max": max(times)}
    for name, percent in [("p50", 50), ("p90", 90), ("p99", 99), ("p999", 99.9)]:
        expected[f"latency_ns_{name}"] = of_percent(times, percent)
    found = imported("flent", path)
    agree(found, expected, also=["transactions_per_s"])
    points = document["raw_values"]["Ping (ms) ICMP"]
    rate = (len(points) - 1) / (points[-1]["t"] - points[0]["t"])
    assert abs(found["transactions_per_s"] - rate) < 0.01 * rate, found


@case("flent", "netperf", "fping")
def flent_without_server():
    path, document = flent_file("tcp_download -l 1")
    assert document["metadata"]["FAILED_RUNNERS"] == 1, document["metadata"]
    refused(imported("flent", path), "no data arrived")


@case("flent", "netperf", "fping")
def flent_of_dying_server():
    with Serving(NETSERVER, 12865) as server:
        server.die_after(6.5)
        path, document = flent_file("tcp_download -l 4")
    # The points of time that netperf printed are there, and nothing of its end.
    assert "ELAPSED_TIME" not in document["metadata"]["SERIES_META"]["TCP download"], document["metadata"]
    seconds = sum(it["dur"] for it in document["raw_values"]["TCP download"])
    assert 0 < seconds < 3, seconds
    found = imported("flent", path)
    assert isinstance(found, str) or "TCP download" in found["said"], found
