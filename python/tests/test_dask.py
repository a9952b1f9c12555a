"""A sweep over real Dask workers, one of which is killed: the same figures as in one process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import latput
from test_package import PLAN

distributed = pytest.importorskip("distributed")

from distributed.comm import CommClosedError  # noqa: E402

from latput.dask import Point, sweep  # noqa: E402


@pytest.fixture(scope="module")
def client() -> Iterator["distributed.Client"]:
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def figures(run: latput.Run) -> pd.DataFrame:
    return run.trials().drop(columns="started_unix_ms")


def test_a_sweep_with_a_lost_worker_is_that_of_one_process_and_resumes(
    client: "distributed.Client", tmp_path: Path
) -> None:
    workers = client.run(os.getpid)
    found: dict[Point, latput.Run] = {}
    for point, run in sweep(PLAN, client, seeds=range(12), folder=tmp_path):
        if not found:
            os.kill(next(iter(workers.values())), signal.SIGKILL)
        found[point] = run
    assert sorted(point.seed for point in found) == list(range(12))
    for point, run in found.items():
        alone = latput.simulate(PLAN, point.system, seed=point.seed)
        pd.testing.assert_frame_equal(figures(run), figures(alone), check_exact=True)
    # What is kept is not simulated again, and is the same.
    (tmp_path / Point("server-10g", 3).file).unlink()
    dates = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = dict(sweep(PLAN, client, seeds=range(12), folder=tmp_path))
    assert len(again) == 12
    for path in tmp_path.iterdir():
        assert dates.get(path.name, path.stat().st_mtime_ns) == path.stat().st_mtime_ns
    for point, run in again.items():
        pd.testing.assert_frame_equal(figures(run), figures(found[point]), check_exact=True)


def test_a_wrong_plan_is_refused_before_a_task_is_made(client: "distributed.Client") -> None:
    with pytest.raises(latput.PlanError):
        next(sweep(PLAN.replace("tcp_rr", "tcp_rrr"), client))


@contextlib.contextmanager
def own_cluster(folder: Path) -> Iterator[tuple["distributed.Client", "subprocess.Popen[bytes]"]]:
    """A client, and its scheduler in a process of its own beside one worker."""
    address = folder / "scheduler.json"
    base = [sys.executable, "-m"]
    scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    worker = ["distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "60"]
    folder.mkdir()
    processes = [
        subprocess.Popen([*base, *words, "--scheduler-file", str(address)], cwd=folder, stderr=subprocess.DEVNULL)
        for words in (scheduler, worker)
    ]
    try:
        with distributed.Client(scheduler_file=str(address), timeout=60) as client:
            client.wait_for_workers(1, timeout=60)
            yield client, processes[0]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_when_the_scheduler_is_killed_a_new_one_goes_on(tmp_path: Path) -> None:
    found: dict[Point, latput.Run] = {}
    kept = tmp_path / "kept"
    with own_cluster(tmp_path / "first") as (client, scheduler):
        with pytest.raises(latput.LatputError, match=f"a new client and call again; what is in {kept}"):
            for point, run in sweep(PLAN, client, seeds=range(100), folder=kept):
                found[point] = run
                if len(found) == 2:
                    scheduler.kill()
    there = {path.name: path.stat().st_mtime_ns for path in kept.glob("*.db")}
    assert 2 <= len(there) < 100
    with own_cluster(tmp_path / "second") as (client, _):
        again = dict(sweep(PLAN, client, seeds=range(len(there) + 2), folder=kept))
    assert len(again) == len(there) + 2
    for point, run in found.items():
        assert (kept / point.file).stat().st_mtime_ns == there[point.file]
        pd.testing.assert_frame_equal(figures(again[point]), figures(run), check_exact=True)


class LostCluster:
    """A client and its futures, of which one call fails as it does without a scheduler."""

    def __init__(self, call: str, error: BaseException) -> None:
        self.call, self.error = call, error
        self.key, self.status = "task", "finished"

    def answer(self, call: str, value: object) -> object:
        if call == self.call:
            raise self.error
        return value

    def nthreads(self) -> object:
        return self.answer("nthreads", {"worker": 1})

    def submit(self, *_: object, **__: object) -> object:
        return self.answer("submit", self)

    def add(self, _: object) -> object:
        return self.answer("add", None)

    def __next__(self) -> object:
        return self.answer("next", self)

    def result(self) -> object:
        return self.answer("result", b"")

    def release(self) -> object:
        return self.answer("release", None)


@pytest.mark.parametrize("call", ["nthreads", "submit", "add", "next", "result", "release"])
@pytest.mark.parametrize(
    "error",
    [
        CommClosedError("in <TCP (closed)>"),
        concurrent.futures.CancelledError("task"),
        asyncio.CancelledError("task"),
        TimeoutError("timed out"),
        OSError("Timed out trying to connect"),
        RuntimeError("IOLoop is closed"),
        Exception("Tried sending message after closing.  Status: closed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_loss_of_a_cluster_is_a_latput_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str, error: BaseException
) -> None:
    cluster = LostCluster(call, error)
    monkeypatch.setattr(distributed, "as_completed", lambda: cluster)
    with pytest.raises(latput.LatputError, match=f"a new client and call again; what is in {tmp_path}") as raised:
        list(sweep(PLAN, cluster, folder=tmp_path))  # type: ignore[arg-type]
    assert raised.value.__cause__ is error


def test_a_search_is_a_task_like_any_other(client: "distributed.Client") -> None:
    plan = PLAN.replace("[method]", '[method]\ndesign = "search"').replace("\nrepetitions = { min = 5, max = 5 }", "")
    for point, run in sweep(plan, client, seeds=range(2)):
        alone = latput.simulate(plan, point.system, seed=point.seed)
        pd.testing.assert_frame_equal(figures(run), figures(alone), check_exact=True)
        assert run.headline == alone.headline and run.headline is not None
