"""Benchmarks run where they cannot be measured, and compare what computes the same."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from preloaded import run_fork

BENCH = Path(__file__).parents[1] / "scripts/bench"
SPEED = BENCH / "speed"


def rows_of(folder: Path, *arguments: str) -> list[dict[str, object]]:
    words = [str(SPEED / "run.py"), "--dry-run", "-o", str(folder / "found.json"), *arguments]
    done = run_fork(words, env=os.environ)
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "found.json").read_text())["rows"]
    assert done.stdout.count("| ratio |") == len(found)
    return [row for rows in found.values() for row in rows]


@pytest.mark.slow
def test_a_recording_goes_on_and_is_of_one_machine(tmp_path):
    file = tmp_path / "found.json"
    words = [str(SPEED / "run.py"), "--dry-run", "-o", str(file), "--only", "causal LM training step"]
    first = run_fork(words, env=os.environ)
    assert "**causal LM training step**" in first.stdout
    kept = file.read_bytes()
    again = run_fork(words, env=os.environ)
    assert (again.returncode, again.stdout, file.read_bytes()) == (0, "", kept)
    file.write_text(file.read_text().replace('"torch": "', '"torch": "0'))
    other = run_fork(words, env=os.environ)
    assert other.returncode == 1 and f"{file} is of another torch; choose another --output" in other.stderr


@pytest.mark.parametrize("script", ["tables", "variants"])
def test_the_tables_of_speed_are_what_was_recorded(monkeypatch, script):
    monkeypatch.syspath_prepend(SPEED)
    table = importlib.import_module(script).recorded()
    assert table in (BENCH.parents[1] / "docs/performance.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_is_for_a_gpu_runs_without_one(tmp_path):
    rows = rows_of(tmp_path, "--preset", "cuda", "--only", "*static cache*batch 1")
    assert len(rows) == 4 and all(row["megabytes"] > 0 for row in rows)


@pytest.mark.slow
def test_a_variant_and_its_class_take_the_same_step(tmp_path):
    names = ("albert-style", "hyper-connections", "kimi-linear-style", "t5gemma-style")
    words = [str(SPEED / "variants.py"), "--quick", "-o", str(tmp_path / "found.json"), "--only", *names]
    first = run_fork(words, env=os.environ)
    assert first.returncode == 0, first.stderr
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert {name: theirs["peer"] for name, (theirs, _) in rows.items()} == {
        "albert-style": "AlbertForMaskedLM",
        "kimi-linear-style": "KimiLinearForCausalLM",
        "t5gemma-style": "T5GemmaForConditionalGeneration",
    }
    assert first.stdout.count("| ±") == 3 and max(ours["deviation"] for _, ours in rows.values()) < 1e-4


@pytest.mark.slow
def test_the_documents_and_their_variants_compute_the_same(tmp_path):
    workloads = ("*step", "*sizes", "vanilla*dropout*", "vanilla, generation*8")
    rows = rows_of(tmp_path, "--preset", "originals", "--only", *workloads)
    assert {row["peer"] for row in rows} == {"the document's", "the document's, with fused Adam", "zoo"}
    compared = [row for row in rows if "dropout" not in row["workload"]]
    assert (len(compared), len(rows) - len(compared)) == (6 * 3 + 3 * 2, 3)
    assert max(row["deviation"] for row in compared) < 1e-5


@pytest.mark.slow
@pytest.mark.nightly
def test_all_of_a_gpu_is_measured_in_pieces_that_go_on(tmp_path):
    words = [str(BENCH / "gpu/gpu.py"), "--dry-run", "-o", str(tmp_path / "found"), "--only", "suite*", "fidelity"]
    words += ["causal LM training step", "generation, static*batch 1", "back ends, alibi*"]

    def run(*more: str) -> int:
        return subprocess.run([sys.executable, *words, *more], capture_output=True, check=False).returncode

    assert run("--minutes", "0") == 75 and run() == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert [piece["kind"] for piece in found["pieces"].values()] == ["suite", "fidelity", *["speed"] * 3]
    assert found["pieces"]["suite, pre-norm"]["rows"][0]["failed"] == {}
    assert all(row["deviation"] < 0.05 for row in found["pieces"]["fidelity"]["rows"])
    text = (tmp_path / "found.md").read_text()
    assert "at least 3 times the growing one" in text and "| sdpa |" in text
