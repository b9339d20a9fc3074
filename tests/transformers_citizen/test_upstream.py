"""Some of transformers' own tests, where there is a checkout of them; and what is written down of all of them."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "upstream"
CHECKOUT = os.environ.get("TRANSFORMERS_CHECKOUT")
VARIANTS = [
    "llama-style/decoder",
    "gemma3-style/decoder",
    "qwen3-next-style/decoder",
    "kimi-linear-style/decoder",
    "lfm2-style/decoder",
    "pre-norm/encoder",
    "marian-style/encoder-decoder",
]


LEFT_OUT = {"kimi-linear-style/decoder": "rope"}
"""Tests of a part that a variant lacks and its reference has; assisted decoding is left out for the others."""


@pytest.mark.slow
@pytest.mark.skipif(CHECKOUT is None, reason="TRANSFORMERS_CHECKOUT names no checkout of transformers")
@pytest.mark.parametrize("variant", VARIANTS)
def test_its_suites_pass_as_for_its_own_models(variant: str, tmp_path: Path) -> None:
    chosen = "generate or left_padding or save_load or resize or hidden_states or attention_outputs or rope_scaling"
    only = f"({chosen}) and not {LEFT_OUT.get(variant, 'assisted')}"
    command = [sys.executable, str(SCRIPT / "run.py"), str(CHECKOUT), variant, "-k", only, "--logs", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    rows = [line for line in done.stdout.splitlines() if line.startswith(variant.partition("/")[0])]
    assert rows, done.stdout
    for line in rows:
        passed, *_, of_reference, worse = (int(word) for word in line.split() if word.isdigit())
        assert (worse, of_reference > 10, passed > 10) == (0, True, True), done.stdout


@pytest.mark.parametrize("counts", sorted(SCRIPT.glob("*.txt")), ids=lambda path: path.stem)
def test_the_counts_that_are_shown_are_those_that_were_printed(counts: Path) -> None:
    page = (ROOT / "docs" / "transformers.md").read_text(encoding="utf-8")
    assert counts.read_text(encoding="utf-8").strip() in page


def test_a_recorded_table_replaces_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT))
    script = importlib.import_module("run")
    page, counts = tmp_path / "page.md", tmp_path / "counts.txt"
    monkeypatch.setattr(script, "PAGE", page)
    counts.write_text("   passed\nold 1\n")
    page.write_text("Before\n```text\npassed\nold 1\n```\nAfter\n")
    script.record(counts, "   passed\nnew 2\n")
    assert page.read_text() == "Before\n```text\npassed\nnew 2\n```\nAfter\n"
    assert counts.read_text() == "   passed\nnew 2\n"
