"""Charts of Altair (`pip install latput[charts]`), of the frames of a run: every figure and interval is that of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from latput.latput_native import LatputError
from latput.results import Run

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

__all__ = ["trade_off", "trials"]


def _figures(run: Run, metric: str, axis: str) -> pd.DataFrame:
    """The cells of a metric, or of `METRIC of WORKLOAD`."""
    name, _, workload = metric.partition(" of ")
    cells = run.cells(name)
    if workload:
        cells = cells[cells["workload"] == workload]
    if cells["workload"].nunique() != 1:
        there = ", ".join(run.cells(name)["workload"].unique())
        raise LatputError(f"`{metric}` must be of one workload: write `{name} of WORKLOAD`; there are {there}")
    renamed = {"value": axis, "low": f"{axis}_low", "high": f"{axis}_high"}
    return cells.rename(columns=renamed)[["setting", *renamed.values()]]


def trade_off(run: Run, x: str, y: str) -> alt.LayerChart:
    """One metric against another: a point for each setting with both intervals; the recommended one is large.

    A metric of several workloads needs the name of one: `latency_ns_p99 of tcp_rr`.
    """
    import altair as alt

    both = _figures(run, x, "x").merge(_figures(run, y, "y"), on="setting")
    best = run.recommendation.label if run.recommendation else None
    both["recommended"] = both["setting"] == best
    base = alt.Chart(both, title=f"{run.name} on {run.testbed}").encode(color=alt.Color("setting:N", sort=None))
    scale = alt.Scale(zero=False)
    x_axis: Any = alt.X("x:Q", title=x, scale=scale)
    y_axis: Any = alt.Y("y:Q", title=y, scale=scale)
    points = base.mark_point(filled=True).encode(
        x_axis, y_axis, size=alt.condition("datum.recommended", alt.value(200), alt.value(60)), tooltip=list(both.columns)
    )
    across = base.mark_rule().encode(alt.X("x_low:Q", title=x, scale=scale), y_axis, x2="x_high:Q")
    along = base.mark_rule().encode(x_axis, alt.Y("y_low:Q", title=y, scale=scale), y2="y_high:Q")
    chart: alt.LayerChart = across + along + points
    return chart


def trials(run: Run, metric: str) -> alt.Chart:
    """Every trial in the order in which it ran: what drifts and what lies apart is seen here."""
    import altair as alt

    frame = run.trials()
    if metric not in frame.columns:
        raise LatputError(f"no trial has `{metric}`; there are {', '.join(frame.columns)}")
    frame = frame[["setting", "workload", metric]].reset_index(names="trial")
    chart: alt.Chart = alt.Chart(frame, title=f"{run.name} on {run.testbed}").mark_point()
    encoded: alt.Chart = chart.encode(
        alt.X("trial:Q"),
        alt.Y(f"{metric}:Q", scale=alt.Scale(zero=False)),
        color=alt.Color("setting:N", sort=None),
        shape="workload:N",
        tooltip=["trial", "setting", "workload", metric],
    )
    return encoded
