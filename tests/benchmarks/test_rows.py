"""Rows of benchmarks: read back as they were, never half a row, and those of relative speeds."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zoo
from zoo.base.errors import CheckpointError, ConfigError
from zoo.comparison.benchmarks import (
    Benchmark,
    Row,
    bench,
    benchmarks,
    find_benchmark,
    judge,
    read_rows,
    record,
    timing,
    verify,
)
from zoo.comparison.benchmarks.rows import write_rows

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\0"), max_size=20)
ROWS = st.lists(
    st.builds(
        Row,
        version=st.integers(1, 3),
        condition=TEXT,
        variant=TEXT,
        seed=st.integers(0, 5),
        settings=st.dictionaries(TEXT, st.integers() | TEXT | st.floats(allow_nan=False), max_size=2),
        values=st.dictionaries(
            st.sampled_from(["bleu", "heldout_loss", "a@2x"]), st.floats(allow_nan=False), max_size=3
        ),
        error=TEXT,
        load=st.floats(0, 100),
        threads=st.integers(0, 64),
    ),
    unique_by=lambda row: row.key,
    max_size=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_rows_come_back(tmp_path: Path, rows: list[Row]) -> None:
    write_rows(tmp_path / "rows.csv", rows)
    assert sorted(read_rows(tmp_path / "rows.csv"), key=lambda row: row.key) == sorted(rows, key=lambda row: row.key)


def test_recording_replaces_and_keeps(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    record(file, [Row(1, "", "a", 0, values={"bleu": 1.0}), Row(1, "", "a", 1, values={"bleu": 2.0})])
    before = file.read_text()
    record(file, [Row(1, "", "a", 1, values={"bleu": 3.0})])
    assert [row.values["bleu"] for row in read_rows(file)] == [1.0, 3.0]
    record(file, [Row(1, "", "a", 1, values={"bleu": 2.0})])
    assert file.read_text() == before


def test_those_who_record_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    made = [Row(1, "", variant, seed) for variant in "abc" for seed in range(10)]
    with ThreadPoolExecutor(3) as writers:
        list(writers.map(lambda row: record(file, [row]), made))
    assert sorted(read_rows(file), key=lambda row: row.key) == made


def test_an_order_of_writing_does_not_show(tmp_path: Path) -> None:
    rows = [Row(1, c, v, s) for c in "xy" for v in "ab" for s in (0, 1)]
    write_rows(tmp_path / "one.csv", rows)
    write_rows(tmp_path / "other.csv", rows[::-1])
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "other.csv").read_bytes()


@pytest.mark.parametrize("name", sorted(name for name, one in benchmarks().items() if one.results.is_file()))
def test_files_of_rows_are_as_they_would_be_written_again(name: str, tmp_path: Path) -> None:
    file = benchmarks()[name].results
    write_rows(tmp_path / file.name, read_rows(file))
    assert (tmp_path / file.name).read_text() == file.read_text()


def test_an_interrupted_recording_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.csv"
    record(file, [Row(1, "", "a", 0)])
    before = file.read_bytes()
    monkeypatch.setattr("os.replace", lambda *names: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        record(file, [Row(1, "", "b", 0)])
    assert file.read_bytes() == before and {one.name for one in tmp_path.iterdir()} == {".lock", "rows.csv"}


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "version,condition\n1\n"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(CheckpointError, match="no results of a benchmark"):
        read_rows(tmp_path / "rows.csv")


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
