"""A search of a plan's settings by another optimiser, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import Any

from latput import latput_native as native
from latput.explained import Twin
from latput.results import Run, simulator_of

__all__ = ["Observation", "Search"]


@dataclass(frozen=True)
class Observation:
    """What a block of runs said of one setting, or why it was not run."""

    #: The level of each factor, by its index; `None` for today's setting where the plan does not list it.
    setting: Mapping[str, int] | None
    #: The reason why it was not run.
    problem: str | None = None
    block: int | None = None
    label: str = ""
    #: The cost to minimise; `None` where a run has no such figure.
    cost: float | None = None
    #: For each limit of the goal, the ratio by which it is broken: kept at 1 and below.
    limits_ratio: tuple[float, ...] = ()
    #: By the workload's name, every metric of its run.
    metrics: Mapping[str, Mapping[str, float]] | None = None


class Search:
    """A search of which the caller chooses the settings. latput runs, checks and keeps them, and confirms the winner.

    >>> with latput.Search(PLAN, "server-10g", seed=1) as search:
    ...     seen = search.suggest([{"rx-usecs": 0, "mtu": 1}, {"rx-usecs": 2, "mtu": 1}])
    ...     run = search.done()

    The arguments are those of `simulate`. With `output` the runs go to a results file, and the same search on it goes on where it ended.
    """

    def __init__(
        self,
        plan: native.Plan | str,
        system: str | Twin = "server-10g",
        *,
        seed: int | None = None,
        output: str | PathLike[str] | None = None,
    ) -> None:
        plan = plan if isinstance(plan, native.Plan) else native.Plan(plan)
        self._native = native.NativeSearch(plan, *simulator_of(system, seed, output))
        #: Today's setting alone, and all that a search on the same `output` had seen before.
        self.observed: list[Observation] = []
        #: Whether no more settings can be suggested: `done` was called, or the plan's budget is used up.
        self.ended = False
        space = self._read()
        assert space is not None
        #: The factors of the plan with their levels.
        self.factors: dict[str, list[str]] = {factor["name"]: factor["levels"] for factor in space["factors"]}
        #: The goal by which the settings are judged.
        self.goal: str | None = space["goal"]
        self._until_asked([])

    def suggest(self, settings: Iterable[Mapping[str, int]]) -> list[Observation]:
        """Runs settings beside each other in one block; gives what was seen of each, in their order.

        A setting has one level of each factor, by its index. To repeat one, suggest it in another block.
        """
        if self.ended:
            raise native.LatputError("the search has ended")
        wanted = [dict(setting) for setting in settings]
        for setting in wanted:
            if set(setting) != set(self.factors):
                raise native.LatputError(f"{setting} has not one level of each factor: {', '.join(self.factors)}")
        found: list[Observation | None] = [None] * len(wanted)
        if wanted:
            self._answer({"kind": "suggest", "settings": wanted})
            self._until_asked(wanted, found)
        return [one for one in found if one is not None]

    def done(self) -> Run:
        """Runs the winner and today's setting afresh; gives the whole run, whose recommendation rests on these runs."""
        if not self.ended:
            self._answer({"kind": "done"})
            self._until_asked([])
        return Run(self._native.run())

    def close(self) -> None:
        """Stops the search. What was run is kept in `output`."""
        self.ended = True
        self._native.close()

    def __enter__(self) -> Search:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, answer: dict[str, Any]) -> None:
        self._native.answer(json.dumps(answer).encode())

    def _read(self) -> dict[str, Any] | None:
        line = self._native.read()
        said: dict[str, Any] | None = None if line is None else json.loads(line)
        return said

    def _until_asked(self, wanted: list[dict[str, int]], found: list[Observation | None] | None = None) -> None:
        """Hears what is said until the next question or the end."""
        found = found if found is not None else []
        while (said := self._read()) is not None:
            if said["kind"] == "ask":
                return
            if said["kind"] == "ended":
                continue
            one = _observation(said)
            waiting = [at for at, setting in enumerate(wanted) if found[at] is None and setting == one.setting]
            if said["kind"] == "observe":
                self.observed.append(one)
            if waiting:
                # Of a setting that was suggested twice the second is refused.
                found[waiting[-1] if one.problem else waiting[0]] = one
        self.ended = True


def _observation(said: dict[str, Any]) -> Observation:
    if said["kind"] == "refused":
        return Observation(said["setting"], problem=said["problem"])
    return Observation(
        said["setting"],
        block=said["block"],
        label=said["label"],
        cost=said["cost"],
        limits_ratio=tuple(said["limits_ratio"]),
        metrics=said["metrics"],
    )
