"""Stage of the judge: two namespaces, servers and programs in them, and what latput reads of what a program printed."""

import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from shutil import which

LATPUT, FOLDER, NMSTATE = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
# Programs of other versions of Debian: a folder each, unpacked by `.ci/run`.
UNPACKED = sorted(Path(sys.argv[4]).glob("*/bin"))
CLIENT, SERVER = (f"latput-judge-{os.getpid()}-{end}" for end in "ab")
HERE, THERE, NOBODY = "192.0.2.1", "192.0.2.2", "192.0.2.3"
PORT = 5201
# What latput says of a program that failed.
ENDED = ["exit code", "ended with"]
OWN_PATH = os.environ["PATH"]


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
        self.command, self.port, self.timer = command, port, None

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

    def die_after(self, seconds):
        """Kills it with its children while a program runs."""

        def kill():
            for process in call("ip", "netns", "pids", SERVER).stdout.split():
                os.kill(int(process), signal.SIGKILL)

        self.timer = threading.Timer(seconds, kill)
        self.timer.start()

    def __exit__(self, *_):
        if self.timer:
            self.timer.cancel()
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def dropped(rule):
    """Packets that reach the server's namespace and then get lost, while a block runs."""
    chain = f"chain in {{ type filter hook input priority 0; {rule} drop; }}"
    inside = ["ip", "netns", "exec", SERVER, "nft"]
    call(*inside, "-f", "-", input=f"table ip judge {{ {chain}; }}\n")
    try:
        yield
    finally:
        call(*inside, "delete", "table", "ip", "judge")


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

    def read_by_latput(self, code=None):
        """The figures that latput reads when it runs a program that prints the same; or the reason why there are none.

        A script around a program may end with another exit code than the program: then the output alone has to tell.
        """
        folder = FOLDER / "again"
        folder.mkdir(exist_ok=True)
        (folder / "stdout").write_bytes(self.stdout)
        (folder / "stderr").write_bytes(self.stderr)
        program = folder / self.program
        if code is None:
            code = self.code if self.code >= 0 else 128 - self.code
        program.write_text(f"#!/bin/sh\ncat {folder}/stdout\ncat {folder}/stderr >&2\nexit {code}\n")
        program.chmod(0o755)
        words = [str(program), *shlex.split(self.command)[1:]]
        return figures("measure", "loopback", "--command", shlex.join(words), "--repetitions", "1..1", "--warmup", "0")

    def imported(self, program):
        path = FOLDER / "file"
        path.write_bytes(self.stdout)
        return imported(program, path)


def imported(program, path):
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


def case(*programs, option=None):
    """A case with the programs that it needs. It runs once for each version of the first that has the option."""

    def add(run):
        CASES.append((run, programs, option))
        return run

    return add


def runs():
    """The cases with their names. The path leads to the versions of the programs."""
    known = set()
    for newer in [None, *UNPACKED]:
        path = [OWN_PATH, *UNPACKED] if newer is None else [newer, OWN_PATH, *UNPACKED]
        os.environ["PATH"] = ":".join(map(str, path))
        for run, programs, option in CASES:
            places = [which(program) for program in programs]
            version = (run, *places[:1])
            if None not in places and version not in known and has_option(places, option):
                known.add(version)
                yield run, run.__name__ if newer is None else f"{run.__name__} ({newer.parent.name})"


def has_option(places, option):
    return option is None or option in call(places[0], "--help", check=False).stdout


def absent():
    return sorted({program for _, programs, _ in CASES for program in programs if not which(program)})


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
    return values[min(len(values) - 1, max(0, math.ceil(len(values) * percent / 100) - 1))]


