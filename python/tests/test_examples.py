"""The examples of other optimisers find something better than today's setting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import latput

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"


def test_smac_searches_and_its_winner_is_confirmed(tmp_path: Path) -> None:
    pytest.importorskip("smac")
    words = [sys.executable, EXAMPLES / "smac_search.py", "16", EXAMPLES / "plan.toml", "server-10g", "found.db"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = latput.open(tmp_path / "found.db").run()
    assert run.headline is not None and run.headline.sentence in done.stdout
    assert run.recommendation is not None and run.recommendation.proven
