"""Where time and CPU go in a run, and a profile of its hosts for the simulator."""

from __future__ import annotations

import json
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from latput import latput_native as native

__all__ = ["Explanation", "Twin"]


class Explanation:
    """The parts of round trips and of CPU time, with what is not known and why."""

    def __init__(self, document: str, words: str) -> None:
        self._document = document
        self._words = words

    @cached_property
    def document(self) -> dict[str, Any]:
        """The document of `latput explain --json` (`docs/json.md`)."""
        document: dict[str, Any] = json.loads(self._document)
        return document

    def _parts(self, kind: str) -> pd.DataFrame:
        rows = [
            {"setting": cell["setting"], "workload": cell["workload"], **part}
            for cell in self.document["cells"]
            for part in cell[kind]
        ]
        names = ["part", "amount_ns", "amount_ns_low", "amount_ns_high", "confidence", "why"]
        return pd.DataFrame(rows, columns=["setting", "workload", *names])

    def time(self) -> pd.DataFrame:
        """A row for each part of the mean round trip of each setting and workload; `why` where it is not known."""
        return self._parts("time")

    def cpu(self) -> pd.DataFrame:
        """A row for each part of the CPU time of the system under test, in nanoseconds per second."""
        return self._parts("cpu")

    def cells(self) -> pd.DataFrame:
        """A row for each setting and workload: its round trip, CPU time, busiest CPU, and the part that no cost explains."""
        names = ["setting", "workload", "round_trip_ns", "busy_ns_per_s", "busiest_cpu_ratio", "unexplained_ratio"]
        return pd.DataFrame(self.document["cells"], columns=names)

    def costs(self) -> pd.DataFrame:
        """A row for each kind of workload and term: the CPU time of one byte, packet, interrupt or poll."""
        rows = [{"kind": of["kind"], **term} for of in self.document["models"] for term in of["model"]["terms"]]
        names = ["term", "unit", "cost_ns", "cost_ns_low", "cost_ns_high", "share_ratio", "refused", "moves_with", "vary"]
        return pd.DataFrame(rows, columns=["kind", *names])

    def __str__(self) -> str:
        """What `latput explain` prints."""
        return self._words

    def __repr__(self) -> str:
        return f"<latput.Explanation of {len(self.document['cells'])} cells>"


class Twin:
    """A profile for the simulator, calibrated on the rows of a run. `simulate` takes it as a system."""

    def __init__(self, twin: native.NativeTwin, name: str) -> None:
        self._native = twin
        self.name = name

    @property
    def profile(self) -> str:
        """The profile's file, as `latput model twin` writes it."""
        return self._native.profile

    def costs(self) -> pd.DataFrame:
        """A row for each fitted cost, with its 90% interval."""
        return pd.DataFrame(self._native.costs, columns=["cost", "unit", "value", "low", "high"])

    @property
    def median_error_ratio(self) -> float | None:
        """The median error of the rates of the rows themselves. Above 0.15 the twin does not describe them."""
        return self._native.errors[1] if self._native.errors else None

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the profile to a file, for `--on sim:FILE`."""
        Path(path).write_text(self.profile)

    def __repr__(self) -> str:
        return f"<latput.Twin {self.name!r}: {len(self._native.costs)} fitted costs>"
