"""A benchmark runs, is recorded, is not run twice, and its rows come out again."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import submitit
import torch
from benchmarks.made_rows import made_rows
from command_line import run as command
from comparison.in_process import launch, run_here

from zoo.analysis.environment import circumstances
from zoo.base.errors import ConfigError, FormatVersionError, UnknownNameError, UnsupportedTaskError, UnwritableError
from zoo.base.files import write_file
from zoo.cli.bench import show_rows
from zoo.comparison import Run
from zoo.comparison.benchmarks import Benchmark, Row, bench, find_benchmark, read_rows, verify, verifying
from zoo.comparison.benchmarks.judging import Verdicts, judge
from zoo.comparison.benchmarks.rows import name_of_data, write_rows
from zoo.comparison.benchmarks.running import BenchmarkRun, names_to_run
from zoo.comparison.benchmarks.verifying import judged
from zoo.comparison.run.launchers import LAUNCHERS

pytestmark = pytest.mark.xdist_group("benchmark")  # one benchmark is run for most tests

DEFINITION = """
version: 3
summary: A benchmark of seconds.
minutes: 1
score: symbol_accuracy
seeds: 1
variants: ["pre-norm:position=sinusoidal", "pre-norm:position=learned", "pre-norm:position=alibi,num_hidden_layers=2"]
conditions:
  short: {}
tests:
  2x: "{task}:decoder_only=true,min_length=6,length=6,train_examples=1,heldout_examples=20"
  8x: "{task}:decoder_only=true,min_length=40,length=40,train_examples=1,heldout_examples=20"
compare:
  task: "copy:decoder_only=true,length=3,train_examples=200,heldout_examples=20"
  budget: steps=6
  match: params
  match_by: intermediate
  settings: {hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, max_position_embeddings: 32}
"""


@pytest.fixture(scope="module")
def benchmark_(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benchmark]:
    file = tmp_path_factory.mktemp("bench") / "mine.yaml"
    file.write_text(DEFINITION)
    yield find_benchmark(str(file))


@pytest.fixture(scope="module")
def recorded(benchmark_: Benchmark) -> list[Row]:
    """Two commands of two folders: the baseline, and after it all that is missing."""
    folder = benchmark_.results.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LAUNCHERS, "local", launch)
        bench(benchmark_, "pre-norm:position=sinusoidal", record=True, output_dir=folder / "first", progress=False)
        bench(benchmark_, record=True, output_dir=folder / "second", progress=False)
    return read_rows(benchmark_.results)


def test_every_run_is_a_row_with_all_its_numbers(recorded: list[Row]) -> None:
    trained = [row for row in recorded if not row.error]
    assert {row.variant for row in trained} == {"pre-norm:position=sinusoidal", "pre-norm:position=learned"}
    for row in trained:
        assert row.version == 3 and row.condition == "short" and row.digest and row.machine and row.date and row.threads
        scores = {"symbol_accuracy", "heldout_loss", "symbol_accuracy@2x"}
        assert scores | {"parameters", "training_flops"} <= row.values.keys()
    by_name = {row.variant: row.values for row in trained}
    # Eight times as long is more than the table of learned positions holds.
    assert "symbol_accuracy@8x" not in by_name["pre-norm:position=learned"]


def test_a_refused_variant_has_its_reason_and_stops_no_other(recorded: list[Row]) -> None:
    (refused,) = (row for row in recorded if "alibi" in row.variant)
    assert "sets num_hidden_layers=2" in refused.error and not refused.values


def test_what_is_recorded_is_not_run_again(benchmark_: Benchmark, recorded: list[Row], tmp_path: Path) -> None:
    before = benchmark_.results.read_bytes()
    rows = bench(benchmark_, record=True, output_dir=tmp_path / "elsewhere", progress=False)
    assert sorted(rows, key=lambda row: row.key) == recorded and benchmark_.results.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()
    file, folder = str(benchmark_.results.with_suffix(".yaml")), str(tmp_path / "elsewhere")
    words = ["bench", "run", file, "pre-norm:position=learned", "--record", "--quiet", "-o", folder]
    shown = command(*words).output
    assert "position=learned" in shown and "ot recorded" not in shown  # the others were not asked for


def test_recorded_verdicts_are_those_of_all_recorded_rows(tmp_path: Path) -> None:
    file, own = tmp_path / "mine.yaml", "pre-norm:position=learned"
    file.write_text(DEFINITION.replace("seeds: 1", "seeds: 3"))
    mine = find_benchmark(str(file))
    accuracy = {mine.baseline("short"): [50.0, 51.0, 52.0], own: [60.1, 61.0, 61.8]}
    accuracy |= {f"pre-norm:initializer_range=0.{n}": [50.0, 51.5, 51.9] for n in range(1, 30)}
    rows = [
        Row(3, "short", name, seed, mine.data, values={"symbol_accuracy": score})
        for name, scores in accuracy.items()
        for seed, score in enumerate(scores)
    ]
    write_rows(mine.results, rows)
    words = ["bench", "run", str(file), own, "--record", "--quiet", "-o", str(tmp_path / "out")]
    shown, all_of_them = (command(*given).output for given in (words, ["bench", "show", str(file)]))
    line = next(line for line in shown.splitlines() if line.startswith(own))
    assert line.split() == next(line for line in all_of_them.splitlines() if line.startswith(own)).split()
    assert "initializer_range" not in shown and judge(mine, rows[:6], "short").of(own).difference.adjusted < 0.01


def test_a_seed_is_added_in_a_run_of_its_own(benchmark_: Benchmark, recorded, tmp_path: Path, monkeypatch) -> None:
    mine = replace(benchmark_, results=tmp_path / "mine.csv")
    mine.results.write_bytes(benchmark_.results.read_bytes())
    monkeypatch.setitem(LAUNCHERS, "local", launch)
    folder, name = tmp_path / "out", "pre-norm:position=learned"
    rows = bench(mine, name, seeds=2, record=True, output_dir=folder, progress=False)
    added = [row for row in read_rows(mine.results) if row.seed == 1]
    assert {row.variant for row in added} == {mine.baseline("short"), name} and all(row in rows for row in added)
    assert [row for row in read_rows(mine.results) if row.seed == 0] == recorded
    assert {file.parent.name[:6] for file in folder.rglob("model")} == {"seed-1"}


def test_a_variant_is_made_equal_to_a_baseline_that_is_recorded_and_not_run_again(benchmark_, recorded) -> None:
    (baseline,) = (row for row in recorded if "sinusoidal" in row.variant)
    (learned,) = (row for row in recorded if "learned" in row.variant)
    assert learned.values["parameters"] == pytest.approx(baseline.values["parameters"], rel=0.01)
    assert "intermediate_size" in learned.settings
    assert not list((benchmark_.results.parent / "second").rglob("*sinusoidal*"))


def test_a_gpu_trains_and_repeats_rows_in_float32(benchmark_, recorded, tmp_path: Path, monkeypatch) -> None:
    asked: list[dict] = []

    def refuse(names, task, **arguments) -> None:
        asked.append(arguments)
        raise ConfigError("asked")

    for module in ("running", "verifying"):
        monkeypatch.setattr(f"zoo.comparison.benchmarks.{module}.compare", refuse)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # as training then takes bfloat16 and TF32
    mine = replace(benchmark_, results=tmp_path / "mine.csv")
    for run in (lambda: bench(mine, progress=False, output_dir=tmp_path), lambda: verify(benchmark_, recorded)):
        with pytest.raises(ConfigError, match="asked"):
            run()
        assert (asked[-1]["bf16"], asked[-1]["tf32"]) == (False, False)


def test_a_folder_with_another_comparison_is_no_result_of_a_variant(benchmark_, recorded, tmp_path: Path) -> None:
    benchmark = replace(benchmark_, results=tmp_path / "mine.csv")
    write_rows(benchmark.results, [row for row in recorded if "learned" not in row.variant])
    before = benchmark.results.read_bytes()
    write_file(tmp_path / "out" / "short" / "comparison.json", '{"format": 0}')
    with pytest.raises(FormatVersionError, match="of format 0"):
        bench(benchmark, "pre-norm:position=learned", record=True, output_dir=tmp_path / "out", progress=False)
    assert benchmark.results.read_bytes() == before


def test_runs_go_where_the_launcher_puts_them_and_rows_record_it(
    benchmark_: Benchmark, recorded: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [name for name in benchmark_.variants if "learned" not in name]
    benchmark = replace(benchmark_, results=tmp_path / "mine.csv", variants=kept)
    threads = torch.get_num_threads() + 1
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))  # for the processes of runs, and not for this one
    places, submit = [], submitit.AutoExecutor.submit

    def noted(executor: submitit.AutoExecutor, *call: object) -> object:
        places.append(executor.folder)
        return submit(executor, *call)

    monkeypatch.setattr(submitit.AutoExecutor, "submit", noted)
    placing = {"launcher": "submitit", "launch_with": {"cluster": "debug"}, "jobs": 2}
    rows = bench(benchmark, record=True, output_dir=tmp_path / "out", progress=False, **placing)
    assert places == [tmp_path / "out" / "short" / "submitit"]
    trained, refused = sorted(rows, key=lambda row: row.error)
    assert trained.threads == threads and refused.error
    (before,) = (row for row in recorded if row.variant == trained.variant)
    assert trained.values["parameters"] == before.values["parameters"]
    # One that is refused stops no other where all are asked for at once.
    assert sorted(rows, key=lambda row: row.key) == read_rows(benchmark.results)


@pytest.mark.parametrize(
    "placing, message",
    [({"jobs": 0}, "at least one run"), ({"launch_with": {"num_gpus": 1}}, "no options"), ({"launcher": "rya"}, "ray")],
)
def test_runs_that_cannot_be_placed_are_no_result_of_a_variant(benchmark_, tmp_path, placing, message: str) -> None:
    benchmark = replace(benchmark_, results=tmp_path / "mine.csv")
    write_rows(benchmark.results, [Row(3, "short", "pre-norm:position=sinusoidal", 0)])
    with pytest.raises(ConfigError, match=message):
        bench(benchmark, record=True, output_dir=tmp_path / "out", progress=False, **placing)
    assert not (tmp_path / "out").exists()


def test_rows_come_out_again_and_changed_ones_do_not(benchmark_: Benchmark, recorded: list[Row], monkeypatch) -> None:
    run_here(monkeypatch)
    row = next(row for row in recorded if "learned" in row.variant)
    (same,) = verify(benchmark_, [row])
    assert same.holds and same.exact
    doubled = replace(benchmark_, score="symbol_accuracy@2x")
    (longer,) = verify(doubled, [row])
    assert longer.exact and longer.value == row.values["symbol_accuracy@2x"]
    changed = replace(row, values=dict(row.values) | {"symbol_accuracy": same.value + 1})
    verdicts, here = judge(benchmark_, recorded, row.condition), circumstances()
    assert not judged(changed, same.value, here, verdicts).holds
    # On another machine the noise decides, and of one seed there is none.
    elsewhere = judged(replace(changed, machine="another"), same.value, here, verdicts)
    assert elsewhere.exact is None and not elsewhere.holds
    assert judged(replace(row, machine="another"), same.value, here, verdicts).holds


def test_scores_of_a_changed_test_are_not_kept(benchmark_: Benchmark, tmp_path: Path, monkeypatch) -> None:
    run = Run("a", "run", hash="0123", report={"scores": {}})
    scored: list[str] = []
    monkeypatch.setattr(BenchmarkRun, "score", lambda self, condition, test, model: scored.append(test) or {})
    (tmp_path / "run").mkdir()
    longer = replace(benchmark_, tests={**benchmark_.tests, "8x": "{task}:length=41"})
    for one, asked in ((benchmark_, ["2x", "8x"]), (benchmark_, []), (longer, ["2x", "8x"])):
        scored.clear()
        BenchmarkRun(one, tmp_path, None, None, {"jobs": 1}, False, print).values("short", run, tmp_path)
        assert scored == asked


@pytest.mark.parametrize("mistaken", [True, False])
def test_a_score_in_the_wrong_direction_is_refused(benchmark_: Benchmark, tmp_path: Path, mistaken: bool) -> None:
    taken = replace(benchmark_, less_is_better=["symbol_accuracy"] if mistaken else [])
    session = BenchmarkRun(taken, tmp_path, None, None, {"jobs": 1}, False, print)
    scores = {"symbol_accuracy": {"value": 1.0, "higher_is_better": True}}
    with pytest.raises(ConfigError, match="less_is_better") if mistaken else nullcontext():
        session.check_directions([Run("a", "", report={"scores": scores}), Run("b", "", error="it failed")])


def test_a_row_with_an_error_is_not_repeated(benchmark_: Benchmark, recorded: list[Row]) -> None:
    row = next(row for row in recorded if "learned" in row.variant)
    with pytest.raises(ConfigError, match="no row of benchmark"):
        verify(benchmark_, [replace(row, error="it answers differently after loading")])


def test_rows_of_another_text_are_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("To be")
    with pytest.raises(ConfigError, match="is recorded of"):
        verify(find_benchmark("char-lm"), [], data=tmp_path / "text.txt")
    with pytest.raises(ConfigError, match="needs a text of yours"):
        verify(find_benchmark("char-lm"), [])


def test_rows_of_a_users_text_are_verified_by_their_own_noise(tmp_path: Path, monkeypatch) -> None:
    """The noise of the text that the benchmark names does not count."""
    benchmark, text = find_benchmark("char-lm"), tmp_path / "text.txt"
    text.write_text("To be")
    rows = [
        Row(benchmark.version, benchmark.first, "pre-norm", seed, data, values={benchmark.score: 2.0 + noise * seed})
        for data, noise in ((benchmark.data, 0.0), (name_of_data(text), 1.0))
        for seed in range(3)
    ]
    seen: list[Verdicts] = []
    monkeypatch.setattr(verifying, "repeat", lambda benchmark, row, verdicts, *_: seen.append(verdicts))
    verify(benchmark, rows, data=text)
    standing = seen[0].of("pre-norm")
    assert standing is not None and standing.samples[benchmark.score].deviation == 1.0


def test_what_cannot_be_run_is_refused_before_anything_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a text of yours"):
        bench("char-lm")
    with pytest.raises(ConfigError, match="has its own data"):
        bench("translation-en-pt", data=tmp_path)
    with pytest.raises(ConfigError, match="is no result"):
        bench("translation-en-pt", quick=True, record=True)
    with pytest.raises(ConfigError, match="the seeds 0 were given"):
        bench("translation-en-pt", seeds=0, output_dir=tmp_path)
    with pytest.raises(UnsupportedTaskError):
        bench("translation-en-pt", "gpt2-style")
    with pytest.raises(UnknownNameError, match="did you mean 'copy'"):
        bench("length", conditions=["cpy"])


def test_a_variant_that_is_for_other_tasks_is_left_out_with_the_reason(benchmark_: Benchmark) -> None:
    reported: list[str] = []
    names = names_to_run(benchmark_, ["marian-style", "gpt2-style"], "short", reported.append)
    assert names == ["pre-norm:position=sinusoidal", "gpt2-style"]
    assert len(reported) == 1 and reported[0].startswith("marian-style is left out: ")
    with pytest.raises(UnsupportedTaskError):
        names_to_run(benchmark_, "marian-style", "short", reported.append)


def test_recording_where_nothing_can_be_written_is_refused_before_anything_is_run(benchmark_, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnwritableError, match="cannot be written"):
        bench(replace(benchmark_, results=tmp_path / "file" / "rows.csv"), record=True, output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_lists_and_shows(benchmark_: Benchmark, tmp_path: Path) -> None:
    run = command("bench", "list")
    assert run.exit_code == 0 and "translation-en-pt" in run.output
    write_rows(benchmark_.results.with_name("shown.csv"), [])
    file = tmp_path / "shown.yaml"
    file.write_text(DEFINITION)
    scores = {"pre-norm:position=sinusoidal": [10.0, 11, 12], "pre-norm:position=learned": [40.0, 41, 42]}
    rows = made_rows(benchmark_, scores, "short")
    write_rows(tmp_path / "shown.csv", rows)
    shown = command("bench", "show", file)
    assert shown.exit_code == 0 and "41.00 ± 1.00" in shown.output and "+30" in shown.output
    assert "Not recorded: pre-norm:position=alibi,num_hidden_layers=2" in shown.output
    plain = command("bench", "show", file, "--json")
    assert len(json.loads(plain.output)) == 6


def test_verdicts_against_another_baseline_are_shown_under_the_conditions_that_have_it() -> None:
    shown = command("bench", "show", "char-lm", "--baseline", "llama-style")
    assert shown.exit_code == 0 and "llama-style is not recorded under: 500 steps, equal operations\n" in shown.stdout
    unknown = command("bench", "show", "char-lm", "--baseline", "llama")
    assert unknown.exit_code == 2 and "did you mean 'llama-style'" in unknown.stderr


def test_variants_without_a_finished_run_are_named_with_the_condition(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = find_benchmark("char-lm")
    show_rows(benchmark, read_rows(benchmark.results), names={"my-variant"})
    assert "No run has finished under: 500 steps, " in capsys.readouterr().out
