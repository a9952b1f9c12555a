"""A sweep over real Dask workers, one of which is killed: the same figures as in one process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import latput
from test_package import PLAN

distributed = pytest.importorskip("distributed")

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
