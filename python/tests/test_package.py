"""The package against the command line: the same figures, verdicts and refusals. `LATPUT` names the binary."""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

import latput
from latput.results import Table

BINARY = os.environ.get("LATPUT", "latput")
README = Path(__file__).parents[1] / "README.md"
PLAN = re.search(r'PLAN = """\n(.*?)"""', README.read_text(), re.S).group(1)  # type: ignore[union-attr]


def command_line(*words: object, cwd: Path | None = None) -> str:
    done = subprocess.run([BINARY, *map(str, words)], cwd=cwd, capture_output=True, check=True)
    return done.stdout.decode()


@pytest.fixture(scope="module")
def run() -> latput.Run:
    return latput.simulate(PLAN, seed=1)


@pytest.fixture(scope="module")
def kept(run: latput.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "kept.db"
    run.save(path)
    return path


def test_a_kept_run_is_reported_by_the_command_line_with_the_same_figures(run: latput.Run, kept: Path) -> None:
    assert command_line("report", kept, "--format", "csv") == run._native.csv()
    theirs = json.loads(command_line("report", kept, "--format", "json"))
    assert theirs == latput.open(kept).run().document
    # Only a run of a file has commands that name it.
    assert theirs["recommendation"].pop("next")
    ours = copy.deepcopy(run.document)
    ours["recommendation"].pop("next", None)
    assert theirs == ours


def test_a_run_of_the_command_line_is_the_same_run(tmp_path: Path) -> None:
    plan = PLAN.replace("[method]", "[method]\nseed = 7")
    (tmp_path / "plan.toml").write_text(plan)
    command_line("run", "plan.toml", "--on", "sim:server-10g", "-o", "cli.db", cwd=tmp_path)
    theirs = latput.open(tmp_path / "cli.db").run().trials().drop(columns="started_unix_ms")
    ours = latput.simulate(plan).trials().drop(columns="started_unix_ms")
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    again = latput.simulate(PLAN, seed=7).trials().drop(columns="started_unix_ms")
    pd.testing.assert_frame_equal(again, ours, check_exact=True)
    other = latput.simulate(PLAN, seed=8).trials().drop(columns="started_unix_ms")
    assert not other.equals(ours)


def test_frames_have_every_trial_cell_and_setting(run: latput.Run) -> None:
    assert len(run.trials()) == 15
    settings = run.settings()
    assert list(settings["setting"]) == [setting["label"] for setting in run.document["settings"]]
    assert list(settings["sut.gro-flush-timeout"]) == ["0us", "20us", "50us"]
    cells = run.cells("latency_ns_p99")
    assert len(cells) == 3 and list(cells["runs"]) == [5, 5, 5]
    assert pd.isna(cells["ratio"].iloc[0])
    later = cells.iloc[1:]
    assert ((later["ratio_low"] <= later["ratio"]) & (later["ratio"] <= later["ratio_high"])).all()
    with pytest.raises(latput.LatputError, match="latency_ns_p99"):
        run.cells("p99")


def test_a_histogram_has_the_trials_transactions(run: latput.Run) -> None:
    histogram = run.histogram(0)
    assert histogram is not None
    row = run.trials().iloc[0]
    transactions = row["transactions_per_s"] * 0.1
    assert histogram["count"].sum() == pytest.approx(transactions, rel=0.01)
    reached = histogram["upper_ns"][histogram["count"].cumsum() >= 0.99 * histogram["count"].sum()].iloc[0]
    assert reached == row["latency_ns_p99"]
    assert run.histogram(0, probe=True) is None
    with pytest.raises(IndexError, match="15"):
        run.histogram(15)


def test_the_recommendation_is_the_command_lines(run: latput.Run, kept: Path) -> None:
    goal = "minimize latency_ns_p99"
    theirs = json.loads(command_line("report", kept, "--goal", goal, "--format", "json"))
    ours = run.recommend(goal)
    assert (ours.setting, ours.proven) == (theirs["recommendation"]["setting"], theirs["recommendation"]["proven"])
    assert list(ours.reason) == theirs["recommendation"]["reason"]
    assert run.headline is not None and run.headline.sentence == run.document["headline"]["sentence"]


def test_what_is_wrong_is_refused_in_the_words_of_the_command_line(run: latput.Run, tmp_path: Path) -> None:
    with pytest.raises(latput.PlanError, match="tcp_rrr"):
        latput.Plan(PLAN.replace("tcp_rr", "tcp_rrr"))
    with pytest.raises(latput.LatputError, match="minimize"):
        run.recommend("least latency")
    with pytest.raises(latput.LatputError, match="tcp_stream"):
        run.recommend("minimize latency_ns_p99 of tcp_stream")
    with pytest.raises(latput.LatputError, match="no-such-system"):
        latput.simulate(PLAN, "no-such-system")
    with pytest.raises(latput.LatputError, match="missing.db"):
        latput.open(tmp_path / "missing.db")
    (tmp_path / "text.db").write_text("no database")
    with pytest.raises(latput.LatputError, match="text.db"):
        latput.open(tmp_path / "text.db")
    with pytest.raises(latput.LatputError):
        latput.Run._from_bytes(b"{}")


def test_a_run_can_be_sent_to_another_process(run: latput.Run) -> None:
    again = pickle.loads(pickle.dumps(run))
    assert again.document == run.document


def test_a_notebook_shows_the_answer_with_names_escaped() -> None:
    run = latput.simulate(PLAN.replace('name = "delay"', 'name = "<script>x</script>"'), seed=1)
    page = run._repr_html_()
    assert "<script>" not in page and "latency_ns_p99" in page
    assert run.headline is not None and run.headline.sentence[:20] in page
    assert run.recommendation is not None and f"<th>{run.recommendation.label}</th>" in page
    picture = base64.b64decode(re.search('base64,([^"]*)"', page).group(1))  # type: ignore[union-attr]
    # An image is XML: a reader of HTML would forgive more.
    image = ElementTree.fromstring(picture)
    assert image.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(image.iter("{http://www.w3.org/2000/svg}circle"))) >= 3


def test_every_table_goes_to_arrow_polars_and_parquet(run: latput.Run, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    tables: list[Table] = ["trials", "cells", "settings", "histograms"]
    for table in tables:
        run.to_parquet(tmp_path / table, table)
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / table), run.frame(table))
        assert run.to_polars(table).equals(polars.read_parquet(tmp_path / table))
    transactions = run.histograms().groupby("trial")["count"].sum()
    assert list(transactions.index) == list(range(15)) and (transactions > 0).all()
    with pytest.raises(latput.LatputError, match="no table is called `rows`; there are trials"):
        run.to_arrow("rows")  # type: ignore[arg-type]


def test_charts_have_the_figures_of_the_cells(run: latput.Run) -> None:
    pytest.importorskip("altair")
    from latput import charts

    chart = charts.trade_off(run, "sut_service_demand_us", "latency_ns_p99").to_dict()
    [rows] = chart["datasets"].values()
    cells = run.cells("latency_ns_p99")
    assert [(row["setting"], row["y"], row["y_low"]) for row in rows] == list(
        zip(cells["setting"], cells["value"], cells["low"])
    )
    assert run.recommendation is not None
    assert [row["setting"] for row in rows if row["recommended"]] == [run.recommendation.label]
    [rows] = charts.trials(run, "latency_ns_p99").to_dict()["datasets"].values()
    assert [row["latency_ns_p99"] for row in rows] == list(run.trials()["latency_ns_p99"])
    with pytest.raises(latput.LatputError, match="no trial has `nothing`"):
        charts.trials(run, "nothing")
    with pytest.raises(latput.LatputError, match="of one workload.*there are tcp_rr"):
        charts.trade_off(run, "latency_ns_p99 of other", "latency_ns_p50")


def test_other_threads_run_while_a_plan_is_simulated() -> None:
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    before = time.monotonic()
    latput.simulate(PLAN.replace('"100ms"', '"1s"'), seed=1)
    elapsed = time.monotonic() - before
    stop.set()
    thread.join()
    # It may tick a thousand times a second; with the lock held it would hardly at all.
    assert ticks > 20 * elapsed


def test_ctrl_c_ends_a_simulation_and_what_ended_is_kept(tmp_path: Path) -> None:
    long = PLAN.replace("min = 5, max = 5", "min = 5000, max = 5000")
    # A shell ignores SIGINT for what it starts in the background, and so would everything below it.
    head = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    script = f"{head}import latput\nlatput.simulate({long!r}, seed=1, output='cut.db')"
    child = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    kept = tmp_path / "cut.db"

    def trials() -> int:
        try:
            return int(latput.open(kept).runs["trials"].iloc[0])
        except (latput.LatputError, IndexError):
            return 0

    deadline = time.monotonic() + 60
    while trials() < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors and child.returncode != 0
    assert trials() >= 3


def test_the_readmes_examples_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert "LocalCluster" in blocks[-1]  # test_dask.py has that one
    script = "\n".join(blocks[:-1])
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "latency_ns_p99" in done.stdout and "The cost model of" in done.stdout


def test_the_guides_search_runs(tmp_path: Path) -> None:
    root = README.parents[1]
    [block] = re.findall(r"```python\n(.*?)```", (root / "docs" / "optimisers.md").read_text(), re.S)
    (tmp_path / "plan.toml").write_text((root / "examples" / "search" / "plan.toml").read_text())
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("None") == 2, done.stdout
