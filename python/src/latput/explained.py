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
    """The parts of the time of a transaction or of 1024 bytes, and the costs behind them."""

    def __init__(self, document: str, words: str) -> None:
        self._document = document
        self._words = words

    @cached_property
    def document(self) -> dict[str, Any]:
        """The document of `latput explain --json` (`docs/json.md`)."""
        document: dict[str, Any] = json.loads(self._document)
        return document

    def time(self) -> pd.DataFrame:
        """A row for each part of the time of each setting and workload. The parts of a cell add up to its `whole_ns`."""
        rows = [
            {"setting": cell["setting"], "workload": cell["workload"], **part}
            for cell in self.document["cells"]
            for part in cell["parts"]
        ]
        names = ["stage", "time_ns", "time_ns_low", "time_ns_high", "confidence", "basis"]
        return pd.DataFrame(rows, columns=["setting", "workload", *names])

    def cells(self) -> pd.DataFrame:
        """A row for each setting and workload: its time, the CPU time of both ends and what of it runs beside, the busiest CPU."""
        names = ["unit", "whole_ns", "beside_ns", "sut_cpu_ns", "generator_cpu_ns", "busiest_cpu_ratio", "is_shared"]
        return pd.DataFrame(self.document["cells"], columns=["setting", "workload", *names])

    def costs(self) -> pd.DataFrame:
        """A row for each kernel and event: the CPU time of one interrupt, packet, segment, poll and so on."""
        rows = [
            {"hosts": ", ".join(host["host"] for host in model["hosts"]), **term}
            for model in self.document["models"]
            for term in model["terms"]
        ]
        names = ["term", "unit", "stage", "cost_ns", "cost_ns_low", "cost_ns_high", "plausible_ns_low", "plausible_ns_high"]
        names += ["share_ratio", "refused", "moves_with", "vary"]
        return pd.DataFrame(rows, columns=["hosts", *names])

    def effects(self) -> pd.DataFrame:
        """A row for each change of a knob whose effect on the CPU time is predicted; empty where no model predicts."""
        names = ["workload", "half_as_many", "change", "saved_ratio", "saved_ratio_low", "saved_ratio_high"]
        return pd.DataFrame(self.document["effects"], columns=names)

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
