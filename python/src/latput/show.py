"""What a notebook shows of a run: the answer, the trade-off of the report, and a table with intervals."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latput.results import Run

#: The metrics of the table, where the workloads have them.
_SHOWN = [
    "transactions_per_s",
    "throughput_bps",
    "latency_ns_p50",
    "latency_ns_p99",
    "sut_cpu_busy_ratio",
    "sut_service_demand_us",
]


def shown(run: Run) -> str:
    """The page of one run. Names are escaped, and the picture is an image, in which nothing runs."""
    parts = [f"<h4>{html.escape(run.name)} on {html.escape(run.testbed)}</h4>"]
    if run.headline:
        parts.append(f"<p><b>{html.escape(run.headline.sentence)}</b></p>")
    if (picture := run._native.picture()) is not None:
        data = base64.b64encode(picture.encode()).decode()
        parts.append(f'<img alt="trade-off" width="620" src="data:image/svg+xml;base64,{data}">')
    parts.append(_table(run))
    if run.recommendation:
        reasons = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in run.recommendation.reason)
        parts.append(f"<ul>{reasons}</ul>")
    return "\n".join(parts)


def _table(run: Run) -> str:
    """A row for each workload and setting. The recommended setting is bold."""
    cells = run.cells()
    names = [name for name in _SHOWN if name in set(cells["metric"])]
    best = run.recommendation.label if run.recommendation else None
    rows = ["<tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in ["workload", "setting", *names]) + "</tr>"]
    for (workload, setting), group in cells.groupby(["workload", "setting"], sort=False):
        figures = {row.metric: row for row in group.itertuples()}
        words = [html.escape(str(workload)), html.escape(str(setting))]
        words += [_figure(figures[name]) if name in figures else "-" for name in names]
        tag = "th" if setting == best else "td"
        rows.append("<tr>" + "".join(f"<{tag}>{word}</{tag}>" for word in words) + "</tr>")
    return f"<table>{''.join(rows)}</table>"


def _figure(row: object) -> str:
    value, low, high = (getattr(row, part) for part in ("value", "low", "high"))
    interval = f" <small>({_number(low)} to {_number(high)})</small>" if low == low and high == high else ""
    return _number(value) + interval


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
