"""Sweeps over a Dask cluster: the same figures as in one process, whatever the workers.

Any `distributed.Client` serves: a `LocalCluster`, or a cluster of dask-jobqueue for Slurm, PBS, LSF and HTCondor.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latput import latput_native as native
from latput.results import Run, open, simulate

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Point", "sweep"]

#: Tasks that are under way for each thread of the cluster, so that the driver holds few results.
_TASKS_PER_THREAD = 4


@dataclass(frozen=True)
class Point:
    """One simulation of a sweep."""

    system: str
    seed: int

    @property
    def file(self) -> str:
        """The name of its results file."""
        name = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in self.system)
        return f"{name}-{self.seed}.db"


def _simulate(text: str, system: str, seed: int) -> bytes:
    return simulate(text, system, seed=seed)._native.to_bytes()


@contextlib.contextmanager
def _asking(kept: Path | None) -> Iterator[None]:
    """Calls of the cluster. Dask has many errors for a lost scheduler, and some of no type of their own: each is a `LatputError` here."""
    try:
        yield
    except (Exception, CancelledError, asyncio.CancelledError) as error:
        kept_there = f"; what is in {kept} is kept" if kept is not None else ", and with a `folder` it is resumed"
        problem = f"the cluster of Dask was lost or restarted: make a new client and call again{kept_there}"
        raise native.LatputError(problem) from error


def _failure(future: Any) -> BaseException | None:
    """The error of a task that has failed by itself; `None` where its result is there, or the cluster was lost."""
    from distributed import KilledWorker

    error = future.exception() if future.status == "error" else None
    return None if isinstance(error, KilledWorker) else error


def sweep(
    plan: native.Plan | str,
    client: Client,
    *,
    systems: Iterable[str] = ("server-10g",),
    seeds: Iterable[int] = range(1),
    folder: Path | str | None = None,
    retries: int = 3,
) -> Iterator[tuple[Point, Run]]:
    """Simulates `plan` for each system and seed on the cluster; gives each run when it is ready.

    With `folder` each run is also kept there as a results file, and one that is there is not simulated again: the same call resumes a
    sweep that was cut short. A task of a lost worker is tried `retries` times. When the scheduler is lost or restarted, `LatputError` is
    raised, as when every worker of a task is: the same call with a new client resumes. A plan that is wrong is refused here, before a task is made.
    """
    from distributed import as_completed

    plan = plan if isinstance(plan, native.Plan) else native.Plan(plan)
    points = iter([Point(system, seed) for system in systems for seed in seeds])
    kept = Path(folder) if folder is not None else None
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    waiting: dict[object, Point] = {}
    with _asking(kept):
        done: Any = as_completed()  # type: ignore[no-untyped-call]
        threads: dict[str, int] = client.nthreads()  # type: ignore[no-untyped-call]
    most = _TASKS_PER_THREAD * max(1, sum(threads.values()))

    def fill() -> Iterator[tuple[Point, Run]]:
        """Keeps the cluster busy. Gives the runs that are kept already."""
        while len(waiting) < most and (point := next(points, None)) is not None:
            if kept is not None and (kept / point.file).exists():
                yield point, open(kept / point.file).run()
                continue
            with _asking(kept):
                future = client.submit(_simulate, plan.text, point.system, point.seed, pure=False, retries=retries)
                waiting[future.key] = point
                done.add(future)

    yield from fill()
    while waiting:
        with _asking(kept):
            future = next(done)
            point = waiting.pop(future.key)
            failure = _failure(future)
            simulated = future.result() if failure is None else b""
            future.release()
        if failure is not None:
            raise failure
        run = Run._from_bytes(simulated)
        if kept is not None:
            part = kept / f".{point.file}.part"
            part.unlink(missing_ok=True)
            run.save(part)
            part.rename(kept / point.file)
        yield point, run
        yield from fill()
