"""Results and simulations of latput, as frames.

>>> import latput
>>> run = latput.simulate(latput.Plan(PLAN), "server-10g", seed=1)
>>> run.cells("latency_ns_p99")

Everything is computed by the code of the command line: a figure, an interval or a verdict is the same here and there.
"""

from __future__ import annotations

from latput.latput_native import LatputError, Plan, PlanError, __version__
from latput.explained import Explanation, Twin
from latput.results import Estimate, Headline, Recommendation, Results, Run, open, simulate
from latput.search import Observation, Search

__all__ = [
    "Estimate",
    "Explanation",
    "Headline",
    "LatputError",
    "Observation",
    "Plan",
    "PlanError",
    "Recommendation",
    "Results",
    "Run",
    "Search",
    "Twin",
    "__version__",
    "open",
    "simulate",
]
