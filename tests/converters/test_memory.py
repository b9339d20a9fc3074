"""Conversion holds no weight twice: its peak memory is the model and little more than one shard."""

import json
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench" / "conversion_memory.py"


@pytest.mark.slow
def test_the_peak_is_the_model_and_one_shard(monkeypatch, capfd):
    """Transposed weights, which cannot stay what they were read as, in a half-precision checkpoint of several files."""
    options = ("--gigabytes", "0.2", "--shard-gigabytes", "0.07", "--family", "gpt2", "--dtype", "float16", "--json")
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options])
    status, printed = runpy.run_path(str(SCRIPT))["main"](), capfd.readouterr()
    assert status == 0, printed.out + printed.err
    report = json.loads(printed.out.splitlines()[-1])
    assert report["model"] > 2 * report["largest_shard"]
    assert report["model"] < report["peak"] <= report["allowed"]
