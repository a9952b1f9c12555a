"""Results and simulations of latput, as frames.

>>> import latput
>>> run = latput.simulate(latput.Plan(PLAN), "server-10g", seed=1)
>>> run.cells("latency_ns_p99")

Everything is computed by the code of the command line: a figure, an interval or a verdict is the same here and there.
"""

from __future__ import annotations

from latput.latput_native import LatputError, Plan, PlanError, __version__
from latput.results import Estimate, Headline, Recommendation, Results, Run, open, simulate

__all__ = [
    "Estimate",
    "Headline",
    "LatputError",
    "Plan",
    "PlanError",
    "Recommendation",
    "Results",
    "Run",
    "__version__",
    "open",
    "simulate",
]
