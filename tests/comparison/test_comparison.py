"""Comparisons, from names to results.json."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace

import pytest
from click.testing import CliRunner
from rich.console import Console
from safetensors.torch import load_file, save_file

from zoo.cli.compare import compare as verb
from zoo.comparison import Comparison, ReloadCheck, Run, compare, comparing, render
from zoo.comparison.comparing import folder_name
from zoo.comparison.files import ANSWERS, CHECKPOINT
from zoo.comparison.job import Job
from zoo.comparison.reload import TARGET_FOLDER, check
from zoo.comparison.running import reason
from zoo.errors import ConfigError, UnknownNameError, UnknownOverrideError, UnknownVariantError
from zoo.tasks import TASKS, read_columns
from zoo.tasks.tokenizers import pairs

pytestmark = pytest.mark.xdist_group("comparison")  # one comparison serves most tests

SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
BUDGET = {"max_steps": 3, "warmup_steps": 1, "per_device_train_batch_size": 8}

PLUGIN = """
from zoo import register
from zoo.models import Transformer

@register("of-a-user", tasks=("seq2seq-lm",), source="a module of their own", defaults={"norm_placement": "post"})
def of_a_user(config):
    '''A variant of the user's own module.'''
    return Transformer()

@register("killed", tasks=("seq2seq-lm",), source="a module of their own")
def killed(config):
    '''A variant whose process is killed.'''
    import os, signal, sys
    if "zoo.comparison.worker" in getattr(sys.modules["__main__"].__spec__, "name", ""):
        os.kill(os.getpid(), signal.SIGKILL)
    return Transformer()
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    splits = TASKS.get("translation").load()
    for name, examples in (("train", splits.train), ("heldout", splits.train)):
        pairs = "".join(f"{row['en']}\t{row['pt']}\n" for row in examples.select(range(24)))
        (folder / f"{name}.tsv").write_text(f"en\tpt\n{pairs}", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def user_module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("module")
    (folder / "of_a_user.py").write_text(PLUGIN)
    sys.path.insert(0, str(folder))
    import of_a_user  # noqa: F401

    yield
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def compared(data, user_module, tmp_path_factory):
    """One that goes well, one of the user's, one that runs out of memory."""
    folder = tmp_path_factory.mktemp("compared")
    told = []
    comparison = compare(
        ["vanilla", "of-a-user:dropout=0.2", "killed"],
        data=data,
        tokenizer={"kind": "word", "min_frequency": 1},
        settings=SIZE,
        generation={"num_beams": 2, "max_length": 12},
        output_dir=folder,
        progress=False,
        on_run=lambda *what: told.append(what),
        **BUDGET,
    )
    assert told == [(1, 3, "vanilla"), (2, 3, "of-a-user:dropout=0.2"), (3, 3, "killed")]
    return comparison


@pytest.mark.slow
def test_runs_are_trained_saved_and_loaded_again(compared):
    for run in compared.runs[:2]:
        assert run.error is None
        assert run.report["steps"] == 3 and run.report["variant"] == run.name
        assert len(run.outputs) == len(compared.references) == 24
        assert run.reload == ReloadCheck("AutoModelForSeq2SeqLM", pytest.approx(0, abs=1e-5), True, True)


@pytest.mark.slow
def test_all_had_the_same_data_and_budget(compared):
    first, second = (run.report for run in compared.runs[:2])
    assert first["train_tokens"] == second["train_tokens"]
    assert first["seed"] == second["seed"] == compared.seeds[0]


@pytest.mark.slow
def test_a_killed_run_loses_nothing_but_itself(compared):
    killed = compared.runs[2]
    assert killed.failed and killed.report is None
    assert "killed by SIGKILL" in killed.error
    assert compared.best in compared.runs[:2]


@pytest.mark.slow
def test_results_are_written(compared):
    written = json.loads((compared.folder / "results.json").read_text(encoding="utf-8"))
    assert written["format"] == 2
    assert [run["name"] for run in written["runs"]] == [run.name for run in compared.runs]
    assert written["runs"] == json.loads(json.dumps([asdict(run) for run in compared.runs]))
    assert written["recipe"]["arguments"]["max_steps"] == 3
    assert Comparison.read(compared.folder) == compared


@pytest.mark.slow
def test_a_changed_checkpoint_is_noticed(compared):
    folder = compared.folder / "vanilla"
    answers = load_file(folder / ANSWERS)
    assert check(folder)["equal"]
    answers["logits"] += 0.01
    save_file(answers, folder / ANSWERS)
    found = check(folder)
    assert not found["equal"] and found["outputs_equal"]
    assert found["largest_difference"] == pytest.approx(0.01, rel=1e-2)
    assert (folder / CHECKPOINT / "model.safetensors").is_file()


def test_bad_input_stops_before_anything_is_trained(tmp_path):
    for names, error, message in [
        ([], ConfigError, "no variant"),
        (["vanilla", "pre-nrom"], UnknownVariantError, "did you mean 'pre-norm'"),
        (["vanilla", "vanilla"], ConfigError, "given twice"),
        (["vanilla:hidden_siz=3"], UnknownNameError, "did you mean 'hidden_size'"),
    ]:
        with pytest.raises(error, match=message):
            compare(names, output_dir=tmp_path / "out")
    with pytest.raises(UnknownOverrideError, match="did you mean 'max_steps'"):
        compare(["vanilla"], output_dir=tmp_path / "out", max_step=3)
    assert not (tmp_path / "out" / "vanilla").exists()


def test_folders_of_different_names_differ():
    names = ["a", "a:x=1", "a_x=1", "a:x='/'", "a+b", "a" * 300, "a" * 301]
    folders = [folder_name(name) for name in names]
    assert len(set(folders)) == len(names)
    assert all("/" not in folder and len(folder) < 150 for folder in folders)


def test_the_reload_process_knows_where_the_target_tokenizer_is():
    assert TARGET_FOLDER == pairs.TARGET_FOLDER


def test_reasons():
    assert reason(3) == "exit code 3"
    assert reason(-signal.SIGSEGV) == "killed by SIGSEGV"
    assert "memory" in reason(-signal.SIGKILL)


def fake_run(name: str, bleu: float, outputs: list[str], **changes) -> Run:
    report = {
        "num_parameters": 1234567,
        "train_tokens_per_second": 4321.0,
        "peak_memory": 512 * 2**20,
        "train_loss": 1.5,
        "heldout_loss": 0.5,
        "train_examples": 10,
        "heldout_examples": 3,
        "epochs": 8.0,
        "scores": {"bleu": {"name": "BLEU", "value": bleu, "signature": "nrefs:1|tok:13a"}},
    }
    reload = ReloadCheck("AutoModelForSeq2SeqLM", 0.0, True, True)
    return replace(Run(name, name, report=report, outputs=outputs, reload=reload), **changes)


def shown(runs: list[Run], width: int = 200) -> str:
    sources, references = ["A.", "B.", "C."], ["1.", "2.", "3."]
    comparison = Comparison(
        task="translation",
        names=[run.name for run in runs],
        baseline=runs[0].name,
        seeds=[0],
        budget=None,
        match="none",
        sweep=None,
        main_score="bleu",
        recipe={},
        environment={},
        command=[],
        sources=sources,
        references=references,
        runs=runs,
        folder=None,
        seconds=1.0,
    )
    console = Console(width=width)
    with console.capture() as capture:
        console.print(render(comparison))
    return capture.get()


def test_the_table_says_everything():
    text = shown([fake_run("vanilla", 40.0, ["1.", "2.", "x."]), fake_run("pre-norm", 41.26, ["1.", "2.", "3."])])
    for part in ("vanilla", "1,234,567", "4,321", "512 MiB", "1.500", "0.500", "40.00", "41.26", "identical"):
        assert part in text
    assert "BLEU: nrefs:1|tok:13a" in text
    assert "8 epochs, seed 0" in text
    assert "reference" in text and "x." in text


def test_the_table_survives_failures():
    assert "SIGKILL" in shown([Run("vanilla", "vanilla", error="killed by SIGKILL")])
    text = shown([fake_run("a", 1.0, ["1.", "2.", "3."]), Run("b", "b", error="out of luck")])
    assert "b failed: out of luck" in text and "identical" in text
    text = shown([fake_run("a", 1.0, ["1.", "2.", "3."], reload=None, error="could not be loaded")])
    assert "a failed: could not be loaded" in text


def test_long_outputs_are_cut():
    assert "x" * 161 not in shown([fake_run("a", 1.0, ["x" * 1000] * 3)], width=400)


@pytest.mark.parametrize("error", [None, "out of luck"])
def test_the_verb(data, tmp_path, monkeypatch, error):
    jobs = []
    outputs = ["O cachorro."] * 24
    monkeypatch.setattr(comparing, "run", lambda job: jobs.append(job) or fake_run(job.name, 3.0, outputs, error=error))
    arguments = ["vanilla@tiny", "--data", str(data), "--tokenizer", "word", "--quiet", "-o", str(tmp_path / "out")]
    settings = ["--set", "max_steps=2", "--model", "num_hidden_layers=1", "--columns", "pt,en", "--seed", "7"]
    result = CliRunner().invoke(verb, [*arguments, *settings, "--json"], standalone_mode=False)
    assert result.exception is None
    assert result.return_value == (0 if error is None else 1)
    written = json.loads(result.stdout)
    assert written["runs"][0]["name"] == "vanilla@tiny"
    assert written["sources"] == list(read_columns(data / "heldout.tsv")["pt"])
    (job,) = jobs
    assert job == Job.read(job.write())
    assert (job.seed, job.columns, job.progress) == (7, ["pt", "en"], False)
    assert job.recipe.arguments["max_steps"] == 2 and job.recipe.model["num_hidden_layers"] == 1
    assert (tmp_path / "out" / "tokenizer" / "tokenizer.json").is_file()
    shown = CliRunner().invoke(verb, [*arguments, *settings], standalone_mode=False)
    assert "BLEU: nrefs:1|tok:13a" in shown.stdout


@pytest.mark.slow
def test_a_terminated_comparison_leaves_no_process_behind(tmp_path):
    pid_file = tmp_path / "pid"
    (tmp_path / "sleeper.py").write_text(
        "import os, pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1] + '.new').write_text(str(os.getpid()))\n"
        "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "time.sleep(600)\n"
    )
    script = f"from zoo.comparison.running import call; call('sleeper', {str(pid_file)!r})"
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    with subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}) as parent:
        wait_until(pid_file.is_file)
        parent.terminate()
        assert parent.wait(60) == 128 + signal.SIGTERM
    sleeper = int(pid_file.read_text())
    wait_until(lambda: not os.path.isdir(f"/proc/{sleeper}") or not os.path.isdir("/proc"))


def wait_until(condition, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
