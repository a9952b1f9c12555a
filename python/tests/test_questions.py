"""Explanations, twins and searches against the command line: the same words, files and lines. `LATPUT` names the binary."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import latput
from test_package import BINARY, command_line

ROWS = """
schema = 1
name = "rows"
[factors]
rx-usecs = [10, 200]
[[workload]]
kind = "tcp_rr"
[[workload]]
kind = "udp_stream"
rate = "20Mbps"
datagram_bytes = 64
[method]
repetitions = { min = 2, max = 2 }
warmup = "1ms"
duration = "50ms"
seed = 7
"""

#: Varies what tells bytes, packets and interrupts apart.
COSTS = ROWS.replace("rx-usecs = [10, 200]", "rx-usecs = [10, 50, 200]\nmtu = [1500, 9000]").replace(
    "[method]", """
[[workload]]
kind = "udp_stream"
rate = "300Mbps"
datagram_bytes = 500
[[workload]]
kind = "udp_stream"
rate = "500Mbps"
datagram_bytes = 1400
[method]"""
)

SEARCHED = """
schema = 1
name = "searched"
goal = "minimize latency_ns_p99 where throughput_bps >= 0.9 best"
[factors]
rx-usecs = [0, 20, 50, 100]
mtu = [1500, 9000]
[[workload]]
kind = "tcp_rr"
[[workload]]
kind = "udp_stream"
rate = "20Mbps"
[method]
warmup = "1ms"
duration = "50ms"
seed = 7
"""

BLOCKS = [
    [{"rx-usecs": delay, "mtu": mtu} for delay in range(4) for mtu in range(2)],
    [{"rx-usecs": 0, "mtu": 0}, {"rx-usecs": 0, "mtu": 1}],
]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("costs") / "costs.db"
    latput.simulate(COSTS, output=path)
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As few as a twin takes."""
    path = tmp_path_factory.mktemp("rows") / "rows.db"
    latput.simulate(ROWS, output=path)
    return path


def figures(run: latput.Run) -> pd.DataFrame:
    return run.trials().drop(columns="started_unix_ms")


def test_an_explanation_is_that_of_the_command_line(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    run = latput.open(kept).run()
    ours = run.explain()
    assert str(ours) == command_line("explain", kept)
    assert ours.document == json.loads(command_line("explain", kept, "--json"))
    assert set(ours.costs()["term"]) >= {"packet_received", "interrupt"}
    assert len(ours.cells()) == 24
    parts = ours.time().groupby(["setting", "workload"])["time_ns"].sum()
    whole = ours.cells().set_index(["setting", "workload"])["whole_ns"].dropna()
    assert not whole.empty and (ours.time()["time_ns"] >= 0).all()
    for key in whole.index:
        assert parts[key] == pytest.approx(whole[key], rel=1e-6)
    some = run.explain("tcp_rr", setting="50us")
    assert str(some) == command_line("explain", kept, "--workload", "tcp_rr", "--setting", "50us")
    with pytest.raises(latput.LatputError, match="workload nothing.*the workloads are tcp_rr"):
        run.explain("nothing")
    with pytest.raises(latput.LatputError, match="setting nothing"):
        run.explain(setting="nothing")


def test_a_twin_is_the_file_of_the_command_line_and_is_simulated(rows: Path, tmp_path: Path) -> None:
    twin = latput.open(rows).run().twin("mine")
    command_line("model", "twin", rows, "--name", "mine", "-o", tmp_path / "theirs.toml")
    assert twin.profile == (tmp_path / "theirs.toml").read_text()
    costs = twin.costs()
    assert not costs.empty and (costs["low"] <= costs["value"]).all() and (costs["value"] <= costs["high"]).all()
    assert twin.median_error_ratio is not None
    twin.save(tmp_path / "ours.toml")
    direct = latput.simulate(ROWS, twin)
    pd.testing.assert_frame_equal(figures(direct), figures(latput.simulate(ROWS, str(tmp_path / "ours.toml"))))
    assert direct.testbed == "sim:mine"
    for name in ["", "x" * 41, "a\nb"]:
        with pytest.raises(latput.LatputError, match="name of a profile"):
            latput.open(rows).run().twin(name)


def driven(folder: Path) -> list[dict[str, Any]]:
    """What the command line says to an optimiser that suggests `BLOCKS`."""
    (folder / "plan.toml").write_text(SEARCHED)
    words = [BINARY, "search", "plan.toml", "--on", "sim:server-10g", "--ask-tell", "-o", "theirs.db"]
    answers = [{"kind": "suggest", "settings": block} for block in BLOCKS] + [{"kind": "done"}]
    lines = "".join(json.dumps(answer) + "\n" for answer in answers)
    done = subprocess.run(words, cwd=folder, input=lines, text=True, capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_search_sees_and_finds_what_the_command_line_says(tmp_path: Path) -> None:
    said = [line for line in driven(tmp_path) if line["kind"] == "observe"]
    with latput.Search(SEARCHED, output=tmp_path / "ours.db") as search:
        assert search.factors["rx-usecs"][2] == "rx-usecs=50us" and not search.ended
        seen = [search.suggest(block) for block in BLOCKS]
        run = search.done()
        assert search.ended
    for block, suggested in zip(seen, BLOCKS):
        assert [one.setting for one in block] == suggested
    ours = [{"kind": "observe", **vars(one), "limits_ratio": list(one.limits_ratio)} for one in search.observed]
    for one in ours:
        assert one.pop("problem") is None
    assert ours == said and len(said) >= 1 + 8 + 2
    theirs = latput.open(tmp_path / "theirs.db").run()
    pd.testing.assert_frame_equal(figures(run), figures(theirs), check_exact=True)
    assert run.headline == theirs.headline and run.headline is not None
    # A search in memory, of the same seed, is the same.
    with latput.Search(SEARCHED) as again:
        for block in BLOCKS:
            again.suggest(block)
        pd.testing.assert_frame_equal(figures(again.done()), figures(run), check_exact=True)


def test_a_search_that_was_closed_goes_on_and_what_is_wrong_is_refused(tmp_path: Path) -> None:
    with latput.Search(SEARCHED, output=tmp_path / "cut.db") as search:
        first = search.suggest(BLOCKS[0])
    with pytest.raises(latput.LatputError, match="has ended"):
        search.suggest(BLOCKS[1])
    with latput.Search(SEARCHED, output=tmp_path / "cut.db") as search:
        assert [one for one in search.observed if one.block == 1] == sorted(
            first, key=lambda one: [seen.setting for seen in search.observed[1:]].index(one.setting)
        )
        good = {"rx-usecs": 1, "mtu": 1}
        twice = search.suggest([good, good, {"rx-usecs": 9, "mtu": 0}])
        assert twice[0].cost is not None and "in this block already" in str(twice[1].problem)
        assert "no level 9" in str(twice[2].problem)
        with pytest.raises(latput.LatputError, match="one level of each factor"):
            search.suggest([{"rx-usecs": 1}])
        assert search.suggest([]) == []
    with pytest.raises(latput.LatputError, match="no-such-system"):
        latput.Search(SEARCHED, "no-such-system")
    with pytest.raises(latput.LatputError, match="goal"):
        latput.Search(COSTS)


def test_a_search_ends_with_its_budget() -> None:
    # A run takes 102 ms. Of 19 runs 12 confirm and one is today's: 6 of the 8 are run.
    with latput.Search(SEARCHED + 'budget = "2s"\n') as search:
        seen = search.suggest(BLOCKS[0])
        refused = [one for one in seen if one.problem]
        assert refused and all(one.problem == "the budget is used up" for one in refused)
        assert search.ended and search.done().headline is not None


def test_a_search_that_nobody_reads_is_closed_at_once() -> None:
    search = latput.Search(SEARCHED.replace("50ms", "5s"))
    search._answer({"kind": "suggest", "settings": BLOCKS[0]})
    before = time.monotonic()
    search.close()
    # A simulation that runs is not waited for longer than it takes to notice; with all of the block it would be a minute.
    assert time.monotonic() - before < 30
