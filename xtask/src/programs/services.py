"""Cases of programs that load a service: of the web, a database, or a disk."""

import json
import re
import shlex
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from stage import ENDED, FOLDER, HERE, PORT, THERE, Output, Serving, agree, call, case, of_percent, refused, search


@contextmanager
def web_server():
    """nginx: `/` answers, `/no` does not know."""
    folder = FOLDER / "nginx"
    folder.mkdir(exist_ok=True)
    (folder / "conf").write_text(
        f"daemon off; pid {folder}/pid; error_log /dev/null; events {{}} http {{ access_log off; server {{ "
        f"listen {THERE}:80; location / {{ return 200 'hello'; }} location /no {{ return 404; }} }} }}"
    )
    with Serving(f"nginx -p {folder} -c {folder}/conf", 80) as server:
        yield server


def mute_server():
    """Closes each connection without an answer."""
    program = "import socket; s = socket.create_server(('', 80))\nwhile True: s.accept()[0].close()"
    return Serving(shlex.join([sys.executable, "-c", program]), 80)


WRK = {"us": 1e3, "ms": 1e6, "s": 1e9}


def of_wrk(pattern, text):
    number, unit = re.search(pattern, text, re.MULTILINE).groups()
    return float(number) * WRK[unit]


@case("wrk", "nginx")
def wrk():
    with web_server():
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
    refused(Output(f"wrk -t1 -c2 -d1 --latency http://{THERE}/").read_by_latput(), "unable to connect", *ENDED)


@case("wrk")
def wrk_of_server_that_answers_nothing():
    with mute_server():
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
    refused(Output(f"redis-benchmark -h {THERE} -t get -n 500 --csv").read_by_latput(), "not there", *ENDED)


def of_hey(text):
    [seconds] = search(r"Total:\s+([\d.]+) secs", text)
    answers = re.findall(r"^\s+\[(\d+)\]\s+(\d+) responses", text, re.MULTILINE)
    answers = {int(code): int(count) for code, count in answers}
    errors = text.partition("Error distribution:")[2]
    broken = sum(int(count) for count in re.findall(r"^\s+\[(\d+)\]\s", errors, re.MULTILINE))
    bad = sum(count for code, count in answers.items() if code >= 400)
    expected = {"program_errors": bad + broken, "transactions_per_s": sum(answers.values()) / seconds}
    expected["latency_ns_mean"] = search(r"Average:\s+([\d.]+) secs", text)[0] * 1e9
    expected["latency_ns_max"] = search(r"Slowest:\s+([\d.]+) secs", text)[0] * 1e9
    for percent in [50, 90, 99]:
        expected[f"latency_ns_p{percent}"] = search(rf"^\s+{percent}%+ in ([\d.]+) secs", text)[0] * 1e9
    return expected


@case("hey", "nginx")
def hey():
    with web_server() as server:
        # Without errors its own rate is the same; it prints four digits of a time.
        for words in ["-z 1s", "-n 4000", "-z 20s"]:
            stop = 1 if words == "-z 20s" else None
            output = Output(f"hey {words} -c 2 http://{THERE}/", interrupted_after=stop)
            agree(output.read_by_latput(), of_hey(output.text))
        missing = Output(f"hey -n 4000 -c 2 http://{THERE}/no")
        server.die_after(0.5)
        dying = Output(f"hey -z 1s -c 2 http://{THERE}/")
    agree(missing.read_by_latput(), of_hey(missing.text))
    expected = of_hey(dying.text)
    assert expected["program_errors"] > 0, dying.text
    agree(dying.read_by_latput(), expected)


@case("hey")
def hey_without_answer():
    refused(Output(f"hey -n 20 -c 2 http://{THERE}/").read_by_latput(), "no request was answered")
    with mute_server():
        output = Output(f"hey -n 20 -c 2 http://{THERE}/")
    refused(output.read_by_latput(), "no request was answered")


FIO = f"--name=a --ioengine=net --port={PORT} --bs=16k --size=1g --time_based"
FIO_SERVER = f"fio {FIO} --thread --protocol=tcp --listen --rw=read --runtime=60"
FIO_CLIENT = f"fio {FIO} --hostname={THERE} --rw=write --output-format=json"


def of_fio(document):
    """Figures of the only direction of the only job."""
    [job] = document["jobs"]
    [part] = [job[name] for name in ["read", "write", "trim"] if job[name]["total_ios"]]
    latency = part["clat_ns"]
    expected = {"throughput_bps": part["bw_bytes"] * 8, "transactions_per_s": part["iops"]}
    expected |= {"latency_ns_mean": latency["mean"], "latency_ns_max": latency["max"]}
    for name, percent in [("p50", "50"), ("p90", "90"), ("p99", "99"), ("p999", "99.9")]:
        expected[f"latency_ns_{name}"] = latency["percentile"][f"{float(percent):.6f}"]
    return expected


@case("fio")
def fio_net():
    with Serving(FIO_SERVER):
        output = Output(f"{FIO_CLIENT} --protocol=tcp --runtime=1")
    agree(output.read_by_latput(), of_fio(json.loads(output.stdout)))
    # The document of a run that was interrupted is whole, and of the time until then.
    with Serving(FIO_SERVER):
        cut = Output(f"{FIO_CLIENT} --protocol=tcp --runtime=20", interrupted_after=1.5)
    refused(cut.read_by_latput(), *ENDED)
    agree(cut.read_by_latput(code=0), of_fio(json.loads(cut.stdout[cut.stdout.index(b"{") :])))


@case("fio")
def fio_net_without_server():
    output = Output(f"{FIO_CLIENT} --protocol=tcp --runtime=1")
    refused(output.read_by_latput(), *ENDED)
    refused(output.read_by_latput(code=0), "error 111")
    with Serving(FIO_SERVER) as server:
        server.die_after(1)
        output = Output(f"{FIO_CLIENT} --protocol=tcp --runtime=3")
    refused(output.read_by_latput(), *ENDED)
    refused(output.read_by_latput(code=0), "no request was answered", "error")


@case("fio")
def fio_udp_without_receiver():
    output = Output(f"{FIO_CLIENT} --protocol=udp --runtime=1")
    found = output.read_by_latput()
    assert isinstance(found, str) or "throughput_bps" not in found, found


@case("fio")
def fio_file():
    file = f"fio --name=a --filename={FOLDER}/fio --size=4m --bs=4k --rw"
    output = Output(f"{file}=write --output-format=json")
    agree(output.read_by_latput(), of_fio(json.loads(output.stdout)))
    several = Output(f"{file}=randrw --numjobs=2 --output-format=json+")
    parts = [job[name] for job in json.loads(several.stdout)["jobs"] for name in ["read", "write"]]
    of_parts = [part["clat_ns"] for part in parts]
    samples = sum(of["N"] for of in of_parts)
    expected = {
        "throughput_bps": 8 * sum(part["bw_bytes"] for part in parts),
        "transactions_per_s": sum(part["iops"] for part in parts),
        "latency_ns_mean": sum(of["mean"] * of["N"] for of in of_parts) / samples,
        "latency_ns_max": max(of["max"] for of in of_parts),
    }
    times = [int(time) for of in of_parts for time, count in of["bins"].items() for _ in range(count)]
    for name, percent in [("p50", 50), ("p90", 90), ("p99", 99), ("p999", 99.9)]:
        expected[f"latency_ns_{name}"] = of_percent(times, percent)
    agree(several.read_by_latput(), expected, share=0.01)


@case("fio")
def fio_broken_file():
    output = Output("fio --name=a --filename=/proc/latput/none --size=4m --rw=read --output-format=json")
    refused(output.read_by_latput(), *ENDED)
    refused(output.read_by_latput(code=0), "no job completed an operation")
    refused(Output(f"fio --name=a --filename={FOLDER}/fio --size=4m --rw=read").read_by_latput(), "it needs")


@contextmanager
def database():
    folder = Path(tempfile.mkdtemp(prefix="latput-judge-"))
    shutil.chown(folder, "postgres")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    user = "setpriv --reuid postgres --regid postgres --clear-groups"
    initdb = f"{user} {programs}/initdb -D {folder}/data -U postgres -A trust --no-sync"
    call(*shlex.split(initdb), cwd="/")
    with open(folder / "data/pg_hba.conf", "a") as file:
        file.write(f"host all all {HERE}/32 trust\n")
    try:
        with Serving(f"{user} {programs}/postgres -D {folder}/data -h {THERE} -k '' -F", 5432) as server:
            yield server
    finally:
        shutil.rmtree(folder)


def pgbench_of(statement, options):
    file = FOLDER / "statement.sql"
    file.write_text(f"{statement};\n")
    return f"pgbench -h {THERE} -U postgres -n -c 2 -f {file} {options} postgres"


def of_pgbench(text):
    expected = {"transactions_per_s": search(r"^tps = ([\d.]+) \(without", text)[0], "program_errors": 0}
    expected["latency_ns_mean"] = search(r"^latency average = ([\d.]+) ms", text)[0] * 1e6
    if "latency stddev" in text:
        expected["latency_stddev_ns"] = search(r"^latency stddev = ([\d.]+) ms", text)[0] * 1e6
    return expected


@case("pgbench", "setpriv")
def pgbench():
    with database() as server:
        for options in ["-T 1", "-t 200 -P 1", "-T 1 -R 300 -L 50"]:
            output = Output(pgbench_of("select 1", options))
            agree(output.read_by_latput(), of_pgbench(output.text))
        cut = Output(pgbench_of("select 1", "-T 20"), interrupted_after=1)
        wrong = Output(pgbench_of("select 1/0", "-t 10"))
        server.die_after(1)
        dying = Output(pgbench_of("select 1", "-T 20"))
    # On a busy machine it may have cancelled its statements, and tell what was done before.
    if "tps =" not in cut.text:
        refused(cut.read_by_latput(code=0), "`tps =` without connection times is not there")
    refused(wrong.read_by_latput(), *ENDED)
    refused(wrong.read_by_latput(code=0), "no request was answered")
    refused(dying.read_by_latput(), *ENDED)


@case("pgbench")
def pgbench_without_server():
    output = Output(pgbench_of("select 1", "-T 1"))
    refused(output.read_by_latput(), "not there", *ENDED)
    refused(output.read_by_latput(code=0), "stdout is empty")
