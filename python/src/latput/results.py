"""Results files and runs as frames of pandas."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from latput import latput_native as native
from latput.explained import Explanation, Twin

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

__all__ = ["Estimate", "Headline", "Recommendation", "Results", "Run", "open", "simulate"]

#: The tables of a run.
Table = Literal["trials", "cells", "settings", "histograms"]


@dataclass(frozen=True)
class Estimate:
    """A figure over runs with its interval."""

    value: float
    low: float | None
    high: float | None
    confidence: float | None
    method: str
    runs: int

    @classmethod
    def _of(cls, document: dict[str, Any]) -> Estimate:
        ends = (document.get("low"), document.get("high"), document.get("confidence"))
        return cls(document["value"], *ends, document["method"], document["runs_count"])


@dataclass(frozen=True)
class Headline:
    """The answer of a run: `kind` is `set`, `stay` or `no_answer`."""

    kind: str
    sentence: str


@dataclass(frozen=True)
class Recommendation:
    """The recommended setting and why."""

    goal: str
    setting: int
    label: str
    proven: bool
    proven_by: str | None
    #: The objective as a ratio to today's setting.
    against_first: Estimate | None
    reason: tuple[str, ...]
    #: Command lines that apply, undo and keep it, by name.
    next: dict[str, str]


class Run:
    """One run: a plan on a testbed, with every trial. It can be pickled."""

    def __init__(self, run: native.NativeRun) -> None:
        self._native = run

    def __reduce__(self) -> tuple[Callable[[bytes], Run], tuple[bytes]]:
        return Run._from_bytes, (self._native.to_bytes(),)

    @staticmethod
    def _from_bytes(data: bytes) -> Run:
        return Run(native.NativeRun.from_bytes(data))

    @cached_property
    def document(self) -> dict[str, Any]:
        """The document of `latput report --format json` (`docs/json.md`)."""
        document: dict[str, Any] = json.loads(self._native.json())
        return document

    @property
    def name(self) -> str:
        """The plan's name."""
        return str(self.document["name"])

    @property
    def testbed(self) -> str:
        """Where it ran."""
        return str(self.document["testbed"])

    @property
    def goal(self) -> str | None:
        """The goal that it is judged by."""
        goal: str | None = self.document["goal"]
        return goal

    @property
    def warnings(self) -> list[str]:
        """What a reader of the figures should know."""
        return list(self.document["warnings"])

    @property
    def headline(self) -> Headline | None:
        """The answer in one sentence; `None` without a goal."""
        found = self.document.get("headline")
        return Headline(found["kind"], found["sentence"]) if found else None

    @property
    def recommendation(self) -> Recommendation | None:
        """The recommended setting; `None` without a goal."""
        found = self.document.get("recommendation")
        if not found:
            return None
        against = found.get("against_first_ratio")
        return Recommendation(
            goal=found["goal"],
            setting=found["setting"],
            label=self.document["settings"][found["setting"]]["label"],
            proven=found["proven"],
            proven_by=found.get("proven_by"),
            against_first=Estimate._of(against) if against else None,
            reason=tuple(found["reason"]),
            next={step["name"]: step["line"] for step in found.get("next", [])},
        )

    def recommend(self, goal: str) -> Recommendation:
        """The recommendation by another goal, such as `minimize latency_ns_p99 where sut_cpu_busy_ratio <= 1.1 today`.

        Raises `LatputError` for a goal that is wrong or names no workload of this run.
        """
        found = self.judged_by(goal).recommendation
        if found is None:
            raise native.LatputError(f"no setting of this run can be judged by `{goal}`")
        return found

    def judged_by(self, goal: str) -> Run:
        """The same trials, judged by another goal."""
        return Run(self._native.with_goal(goal))

    def explain(self, *workloads: str, setting: str | None = None) -> Explanation:
        """Where time and CPU go, as `latput explain` has it: of workloads with one of these in their name, and of settings with this in
        their label."""
        return Explanation(*self._native.explain(list(workloads), setting))

    def twin(self, name: str = "twin") -> Twin:
        """A profile of these hosts for the simulator, as `latput model twin` makes it. It takes some hundred simulations, on every core."""
        return Twin(self._native.twin(name), name)

    def settings(self) -> pd.DataFrame:
        """A row for each setting: its label, whether it is today's, and each knob as `role.knob`."""

        def row(setting: dict[str, Any]) -> dict[str, Any]:
            roles: dict[str, dict[str, str]] = setting["by_role"]
            knobs = {f"{role}.{knob}": value for role, of in roles.items() for knob, value in of.items()}
            return {"setting": setting["label"], "today": setting["today"], **knobs}

        return pd.DataFrame([row(setting) for setting in self.document["settings"]])

    def trials(self) -> pd.DataFrame:
        """A row for each trial, with the columns of `latput report --format csv`."""
        return pd.read_csv(io.StringIO(self._native.csv()))

    def cells(self, metric: str | None = None) -> pd.DataFrame:
        """A row for each setting, workload and metric: value, interval, confidence, method, runs.

        `ratio`, `ratio_low` and `ratio_high` compare with the first setting, pair by pair; they are missing for it.
        """
        settings = [setting["label"] for setting in self.document["settings"]]
        workloads = [workload["name"] for workload in self.document["workloads"]]
        rows = []
        for cell in self.document["cells"]:
            for name, estimate in cell["metrics"].items():
                if metric not in (None, name):
                    continue
                against = cell["against_first_ratio"].get(name, {})
                rows.append(
                    {
                        "setting": settings[cell["setting"]],
                        "workload": workloads[cell["workload"]],
                        "metric": name,
                        **{part: estimate.get(part) for part in ("value", "low", "high", "confidence", "method")},
                        "runs": estimate["runs_count"],
                        "ratio": against.get("value"),
                        "ratio_low": against.get("low"),
                        "ratio_high": against.get("high"),
                    }
                )
        if metric is not None and not rows:
            names = sorted({name for cell in self.document["cells"] for name in cell["metrics"]})
            raise native.LatputError(f"no cell has `{metric}`; there are {', '.join(names)}")
        return pd.DataFrame(rows)

    def histogram(self, trial: int, *, probe: bool = False) -> pd.DataFrame | None:
        """Round-trip times of a trial (a row of `trials`): `upper_ns` is the largest of a bucket, at most 1.6% wide."""
        found = self._native.histogram(trial, probe)
        return None if found is None else pd.DataFrame({"upper_ns": found[0], "count": found[1]})

    def histograms(self) -> pd.DataFrame:
        """A row for each bucket of round-trip times of each trial that has them: `trial`, `upper_ns`, `count`."""
        found = {trial: self.histogram(trial) for trial in range(len(self.document["runs"]))}
        parts = [frame.assign(trial=trial) for trial, frame in found.items() if frame is not None]
        names = ["trial", "upper_ns", "count"]
        return pd.concat(parts, ignore_index=True)[names] if parts else pd.DataFrame(columns=names)

    def frame(self, table: Table) -> pd.DataFrame:
        """The table of this name."""
        tables = {"trials": self.trials, "cells": self.cells, "settings": self.settings, "histograms": self.histograms}
        if table not in tables:
            raise native.LatputError(f"no table is called `{table}`; there are {', '.join(tables)}")
        return tables[table]()

    def to_arrow(self, table: Table = "trials") -> pa.Table:
        """A table of the run for Arrow."""
        import pyarrow as pa

        return pa.Table.from_pandas(self.frame(table), preserve_index=False)

    def to_polars(self, table: Table = "trials") -> pl.DataFrame:
        """A table of the run for polars."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow(table))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_parquet(self, path: str | PathLike[str], table: Table = "trials") -> None:
        """Writes a table of the run as Parquet."""
        import pyarrow.parquet as pq

        pq.write_table(self.to_arrow(table), path)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a results file, which every command of latput reads."""
        self._native.save(path)

    def report(self) -> str:
        """The page of `latput report -o report.html`."""
        return self._native.html()

    def __str__(self) -> str:
        return self._native.text()

    def __repr__(self) -> str:
        trials = _count(len(self.document["runs"]), "trial")
        return f"<latput.Run {self.name!r} on {self.testbed}: {trials}>"

    def _repr_html_(self) -> str:
        from latput.show import shown

        return shown(self)

    def _repr_markdown_(self) -> str:
        return self._native.markdown()


class Results:
    """A results file: the runs in it."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = path
        native.runs(path)  # a wrong file is told of here

    @property
    def runs(self) -> pd.DataFrame:
        """A row for each run: number, name, start, trials, whether it ended normally."""
        rows = native.runs(self.path)
        frame = pd.DataFrame(rows, columns=["run", "name", "started", "trials", "finished"])
        frame["started"] = pd.to_datetime(frame["started"], unit="ms", utc=True)
        return frame.set_index("run")

    def run(self, number: int | None = None) -> Run:
        """A run by its number; the newest without one."""
        return Run(native.load(self.path, number))

    def __repr__(self) -> str:
        runs = _count(len(native.runs(self.path)), "run")
        return f"<latput.Results {str(self.path)!r}: {runs}>"


def _count(number: int, noun: str) -> str:
    """A number with its noun: `1 trial`, `2 trials`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def open(path: str | PathLike[str]) -> Results:
    """Opens a results file that `latput run`, `tune` or `measure` wrote."""
    return Results(path)


def simulator_of(
    system: str | Twin, seed: int | None, output: str | PathLike[str] | None
) -> tuple[str, int | None, str | PathLike[str] | None, str | None]:
    """Arguments of the compiled part: a profile that is in no file goes as its text."""
    if isinstance(system, Twin):
        return system.name, seed, output, system.profile
    return system, seed, output, None


def simulate(
    plan: native.Plan | str,
    system: str | Twin = "server-10g",
    *,
    seed: int | None = None,
    output: str | PathLike[str] | None = None,
) -> Run:
    """Simulates a plan packet by packet, on every core, without the interpreter's lock.

    `plan` is a `Plan` or its TOML. `system` is the name or the file of a profile (`latput sim list`), or a twin. With `output` the trials
    go to a results file, and a run that was cut short resumes there. The same seed gives the same figures.
    """
    plan = plan if isinstance(plan, native.Plan) else native.Plan(plan)
    return Run(native.simulate(plan, *simulator_of(system, seed, output)))
