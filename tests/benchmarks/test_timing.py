"""Variants that take turns: relative speeds become rows, which are judged and repeated as speeds."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch

import zoo
from zoo.base.errors import ConfigError
from zoo.comparison.benchmarks import Benchmark, bench, find_benchmark, judge, read_rows, timing, verify

DEFINITION = """
version: 1
summary: Speeds of two variants.
minutes: 1
score: relative_speed
seeds: 3
margin: 2
variants: ["pre-norm:position=learned", "pre-norm:position=sinusoidal"]
timed: {"": training}
compare:
  task: "copy:decoder_only=true,length=3,train_examples=200,heldout_examples=20"
  budget: seconds=1e-9
  settings: {hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, max_position_embeddings: 32}
"""
SLOW, FAST = "pre-norm:position=learned", "pre-norm:position=sinusoidal"


@pytest.fixture
def benchmark_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """A benchmark on a machine that is twice as fast in every further round."""
    machine = {"turns": 0}

    def speed(model, batch, seconds):
        machine["turns"] += 1
        return 2 ** ((machine["turns"] - 1) // 2) * (1.5 if model.config.position == "sinusoidal" else 1)

    monkeypatch.setitem(timing.SPEEDS, "training", speed)
    monkeypatch.setattr(timing, "fresh", lambda module, file: import_module(module).main([str(file)]))
    file = tmp_path / "mine.yaml"
    file.write_text(DEFINITION)
    return find_benchmark(str(file))


@pytest.mark.slow
def test_speeds_are_those_of_a_round_in_percent(benchmark_: Benchmark, tmp_path: Path) -> None:
    rows = bench(benchmark_, record=True, output_dir=tmp_path / "out", progress=False)
    assert read_rows(benchmark_.results) == sorted(rows, key=lambda row: row.key)
    standing = judge(benchmark_, rows).of(FAST)
    assert standing is not None and standing.difference is not None
    assert [row.seed for row in standing.rows] == [0, 1, 2] and standing.rows[0].values["parameters"] > 0
    assert all(row.values["relative_speed"] == 100 for row in rows if row.variant == SLOW)
    assert [row.values["relative_speed"] for row in standing.rows] == [150, 150, 150]
    (here,) = verify(benchmark_, [row for row in rows if row.variant == SLOW][:1])
    assert here.value == 100 and here.holds and here.exact is None
    (elsewhere,) = verify(benchmark_, [replace(standing.rows[0], machine="another")])
    assert elsewhere.holds is None


@pytest.mark.slow
def test_a_process_times_what_ships(tmp_path: Path) -> None:
    """Speeds that are measured: no number is expected of them."""
    rows = bench("speed", quick=True, output_dir=tmp_path / "out", progress=False)
    assert [row.variant for row in rows] == ["gpt2-style", "gpt2-style:norm=rmsnorm"]
    assert rows[0].values["relative_speed"] == 100 and rows[1].values["relative_speed"] > 0
    assert all(row.values["tokens_per_second"] > 0 and not row.error for row in rows)


def test_turns_are_taken_on_this_machine(benchmark_: Benchmark, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="times variants in turns"):
        bench(benchmark_, jobs=2, output_dir=tmp_path / "out")


@pytest.mark.slow
def test_a_process_without_a_result_is_an_error(benchmark_: Benchmark, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(timing, "fresh", lambda module, file: 1)
    with pytest.raises(ConfigError, match="could not be timed: exit code 1"):
        bench(benchmark_, output_dir=tmp_path / "out", progress=False)


def test_an_encoder_has_no_speed_of_decoding() -> None:
    model = zoo.build("bert-style", hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    with pytest.raises(ConfigError, match="writes no tokens"):
        timing.decoding_speed(model, {"input_ids": torch.ones(1, 4, dtype=torch.long)}, 0.0)
