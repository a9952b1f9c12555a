"""Sweeps of small simulations over Dask, beside the same simulations in one process. Prints figures and goals.

Usage: bench.py RUNS. Each worker is bound to one CPU: what it does alone is what one CPU can do.
"""

import os
import subprocess
import sys
import time

import latput
from distributed import Client, LocalCluster
from latput.dask import _simulate, sweep

PLAN = """
schema = 1
name = "small"
[factors]
rx-usecs = [0, 20, 50, 100]
[[workload]]
kind = "ping"
rate_hz = 10
[method]
repetitions = { min = 50, max = 50 }
warmup = "1ms"
duration = "50ms"
"""
RUNS_OF_A_TASK = 200
CPUS = sorted(os.sched_getaffinity(0))


def bind(cpu):
    """Every thread of this process, and those that they start."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {cpu})


def memory_mb():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1e3


def alone(seeds):
    """Seconds of the same tasks, one after the other."""
    before = time.monotonic()
    for seed in seeds:
        _simulate(PLAN, "server-10g", seed)
    return time.monotonic() - before


class Workers:
    """Workers of one thread, each bound to a CPU."""

    def __init__(self, count):
        self.cluster = LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None)
        self.client = Client(self.cluster)
        self.names = list(self.client.nthreads())
        for name, cpu in zip(self.names, CPUS):
            self.client.run(bind, cpu, workers=[name])

    def alone(self, tasks):
        """Seconds of this many tasks for each worker, with nothing between them."""
        parts = [range(at * tasks, (at + 1) * tasks) for at in range(len(self.names))]
        futures = [self.client.submit(alone, part, workers=[name], pure=False) for part, name in zip(parts, self.names)]
        return max(self.client.gather(futures))

    def sweep(self, tasks):
        """Seconds of a sweep, and the driver's memory after a tenth of it and at its end."""
        before = time.monotonic()
        early = None
        for count, _ in enumerate(sweep(PLAN, self.client, seeds=range(tasks)), 1):
            if count == max(1, tasks // 10):
                early = memory_mb()
        return time.monotonic() - before, early, memory_mb()

    def close(self):
        memory = max(self.client.run(memory_mb).values())
        self.client.close()
        self.cluster.close()
        return memory


def main(runs):
    tasks = runs // RUNS_OF_A_TASK
    some = min(tasks, 400) // 2
    start = [sys.executable, "-c", "import time; t = time.monotonic(); import latput; print(time.monotonic() - t)"]
    imported = min(float(subprocess.run(start, check=True, capture_output=True).stdout) for _ in range(3))
    print(f"import latput: {imported:.2f} s")
    one = Workers(1)
    one.sweep(10)
    # By turns: what the machine does besides meets both.
    ratios, swept, rested = [], 0.0, 0.0
    for _ in range(4):
        rest = one.alone(some // 4)
        took, _, _ = one.sweep(some // 4)
        ratios.append(took / rest)
        swept, rested = swept + took, rested + rest
    one.close()
    done = some // 4 * 4
    print(f"a task: {RUNS_OF_A_TASK} simulated runs, {1e3 * rested / done:.0f} ms")
    first = done * RUNS_OF_A_TASK / swept
    print(f"1 worker: {first:.0f} runs/s")
    every = Workers(len(CPUS))
    every.sweep(10)
    rest = every.alone(some // 2) / (some // 2)
    took, early, late = every.sweep(tasks)
    worker_mb = every.close()
    rate = tasks * RUNS_OF_A_TASK / took
    print(f"{len(CPUS)} workers: {rate:.0f} runs/s, {rate / len(CPUS):.0f} for each; {tasks * RUNS_OF_A_TASK} runs in {took:.0f} s")
    print(f"{len(CPUS)} workers without a scheduler: {len(CPUS) * RUNS_OF_A_TASK / rest:.0f} runs/s")
    print(f"memory: driver and scheduler {early:.0f} MB after a tenth, {late:.0f} MB at the end; a worker {worker_mb:.0f} MB")
    overhead = sorted(ratios)[len(ratios) // 2] - 1
    goals = [
        (f"overhead of the scheduler {overhead:.1%}", "below 5%", overhead < 0.05),
        (f"growth from 1 to {len(CPUS)} workers {rate / first:.2f}", f"at least {0.85 * len(CPUS):.2f}", rate / first >= 0.85 * len(CPUS)),
        (f"the driver grows by {late - early:.0f} MB", "at most 50 MB", late - early <= 50),
    ]
    for seen, wanted, holds in goals:
        print(f"{'holds ' if holds else 'MISSED'}  {seen} (wanted: {wanted})")
    return 0 if all(holds for _, _, holds in goals) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
