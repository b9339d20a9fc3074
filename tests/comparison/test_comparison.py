"""Comparisons, from names to results.json."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from comparison.in_process import TINY, quality, run_here
from safetensors.torch import load_file, save_file

from zoo.base.errors import ConfigError, UnknownNameError, UnknownOverrideError, UnknownVariantError
from zoo.base.files import write_json
from zoo.base.folders import TARGET_FOLDER, locked
from zoo.cli.compare import compare as verb
from zoo.comparison import Comparison, ReloadCheck, compare, summarize
from zoo.comparison.files import ANSWERS, CHECKPOINT, LOCK, RELOADED, RESULT
from zoo.comparison.run.launchers import LAUNCHERS, reason
from zoo.comparison.run.record import PHASES, finished, read_run
from zoo.comparison.run.reload import check
from zoo.comparison.setup.job import Job
from zoo.comparison.setup.jobs import folder_name
from zoo.data.tasks import TASKS, read_columns
from zoo.data.tokenizers import pairs
from zoo.registry import VARIANTS
from zoo.training.checkpoints import SEAL, seal

pytestmark = pytest.mark.xdist_group("comparison")  # one comparison serves most tests

MARK = 12345.0  # What the checkpoint of an interrupted run is known by

BUDGET = {"max_steps": 40, "warmup_steps": 1, "per_device_train_batch_size": 8}

PLUGIN = """
from zoo import register
from zoo.models import Transformer

@register("of-a-user", tasks=("seq2seq-lm",), source="a module of their own", defaults={"norm_placement": "post"})
def of_a_user(config):
    '''A variant of the user's own module.'''
    return Transformer()

@register("killed", tasks=("seq2seq-lm",), source="a module of their own")
def killed(config):
    '''A variant that kills its process.'''
    import os, signal, sys
    if "zoo.comparison.run.fork_server" in getattr(sys.modules["__main__"].__spec__, "name", ""):
        os.kill(os.getpid(), signal.SIGKILL)
    return Transformer()
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    examples = TASKS.get("translation").load().train
    for name, first in (("train", 0), ("heldout", 24)):
        pairs = "".join(f"{row['en']}\t{row['pt']}\n" for row in examples.select(range(first, first + 24)))
        (folder / f"{name}.tsv").write_text(f"en\tpt\n{pairs}", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def user_module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("module")
    (folder / "of_a_user.py").write_text(PLUGIN)
    assert len(VARIANTS)  # those built in are there by now, and stay
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setattr(VARIANTS, "_items", {**VARIANTS._items})
        import of_a_user

        yield folder
        del sys.modules[of_a_user.__name__]


@pytest.fixture(scope="module")
def asked(data, user_module, tmp_path_factory):
    """One that goes well, one of the user's, one that runs out of memory."""
    return {
        **{"names": ["vanilla", "of-a-user:dropout=0.2", "killed"], "data": str(data)},
        **{"tokenizer": {"kind": "word", "min_frequency": 1}, "settings": TINY},
        **{"generation": {"num_beams": 2, "max_length": 12}, "output_dir": str(tmp_path_factory.mktemp("compared"))},
        **{"progress": False, "save_steps": 4},
        **BUDGET,
    }


@pytest.fixture(scope="module")
def left(asked, user_module):
    """What a process leaves that is killed while its second run trains."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))  # sums of more threads round differently
        yield interrupted(asked)


def interrupted(asked):
    folder = Path(asked["output_dir"])
    parent = multiprocessing.get_context("fork").Process(target=compare, kwargs=asked)
    parent.start()
    wait_until(lambda: list(folder.glob(f"of-a-user*/*/model-checkpoints/checkpoint-*/{SEAL}")), parent.is_alive)
    parent.kill()
    parent.join()
    (run,) = folder.glob("of-a-user*/*")
    with locked(run / LOCK):  # its process has ended, too
        assert not (run / RESULT).exists()
    steps = []
    for sealed in run.glob(f"*/*/{SEAL}"):
        file = sealed.with_name("trainer_state.json")
        state = json.loads(file.read_text())
        state["log_history"][0]["grad_norm"] = MARK
        file.write_text(json.dumps(state))
        seal(sealed.parent, json.loads(sealed.read_text())["run"])
        steps.append(state["global_step"])
    return steps


@pytest.fixture(scope="module")
def compared(asked, left):
    """The same command again."""
    reported = []
    comparison = compare(**asked, on_run=lambda *what: reported.append(what))
    assert reported == [(1, 2, "of-a-user:dropout=0.2, seed 0"), (2, 2, "killed, seed 0")]
    return comparison


def test_runs_are_trained_saved_and_loaded_again(compared):
    for run in compared.runs[:2]:
        assert run.error is None and run.report["steps"] == BUDGET["max_steps"] and run.report["variant"] == run.name
        assert len(run.outputs) == len(compared.references) == 24
        assert run.reload == ReloadCheck("AutoModelForSeq2SeqLM", pytest.approx(0, abs=1e-5), True, True)
        assert run.costs["flops_per_token"] > 0 and run.costs["model_flops_utilization"] < 1
        assert not Path(run.folder, "model-checkpoints").exists()


def test_phases_are_timed_where_nothing_interrupted_them(compared):
    whole, resumed, _ = compared.runs
    assert {*whole.timings} == {*PHASES} and min(whole.timings.values()) > 0 and resumed.timings == {}


def test_a_resumed_run_comes_to_the_same(asked, left, compared, tmp_path):
    assert max(left) < BUDGET["max_steps"]
    resumed = compared.runs[1]
    assert resumed.curve[0]["grad_norm"] == MARK
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        wanted = {**asked, "names": [resumed.name], "output_dir": tmp_path}
        (whole,) = compare(**wanted).runs
    assert quality(resumed) == quality(whole)


def test_all_had_the_same_data_and_budget(compared):
    first, second = (run.report for run in compared.runs[:2])
    assert first["train_tokens"] == second["train_tokens"] and first["seed"] == second["seed"] == compared.seeds[0]
    curves = [[(point["step"], point["tokens"]) for point in run.curve] for run in compared.runs[:2]]
    assert curves[0] == curves[1] and len(curves[0]) == BUDGET["max_steps"] + 1


def test_a_killed_run_loses_nothing_but_itself(compared):
    killed = compared.runs[2]
    assert killed.failed and killed.report is None and "killed by SIGKILL" in killed.error
    assert summarize(compared).best.name in compared.names[:2] and compared.failed == [killed]


def test_results_are_written(compared):
    written = json.loads((compared.folder / "results.json").read_text(encoding="utf-8"))
    assert written["format"] == 2 and [run["name"] for run in written["runs"]] == [run.name for run in compared.runs]
    assert written["runs"] == json.loads(json.dumps([asdict(run) for run in compared.runs]))
    assert written["recipe"]["arguments"]["max_steps"] == BUDGET["max_steps"]
    assert Comparison.read(compared.folder) == compared


def test_a_changed_checkpoint_is_noticed(compared):
    folder = Path(compared.runs[0].folder)
    answers = load_file(folder / ANSWERS)
    assert check(folder)["equal"]
    save_file({**answers, "logits": answers["logits"] + 0.01}, folder / ANSWERS)
    found = check(folder)
    save_file(answers, folder / ANSWERS)
    assert not found["equal"] and found["outputs_equal"]
    assert found["largest_difference"] == pytest.approx(0.01, rel=1e-2)
    assert (folder / CHECKPOINT / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("launcher", "options"),
    [
        pytest.param("ray", {}, marks=pytest.mark.nightly),
        pytest.param("submitit", {"cluster": "local"}, marks=pytest.mark.nightly),
        ("submitit", {"cluster": "debug"}),  # the same in this process, not in one that first imports everything
    ],
    ids=["ray", "submitit", "submitit-debug"],
)
def test_engines_get_whole_runs(compared, launcher, options, monkeypatch):
    """A run that lacks its last part only, so that the test is quick."""
    monkeypatch.setenv("RAY_worker_niceness", "0")  # or its workers wait until the other tests are done
    run = compared.runs[0]
    Path(run.folder, RELOADED).unlink()
    reported = []
    job = Job.read(Path(run.folder, "job.json"))
    assert not finished(job)
    LAUNCHERS[launcher]([job], 2, options, reported.append)
    assert reported == [job] and finished(job)
    assert replace(read_run(job), timings=run.timings) == run and run.circumstances["machine"]


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
    assert not (tmp_path / "out" / "vanilla").exists() and not (tmp_path / "out" / "comparison.json").exists()


def test_folders_of_different_names_differ():
    names = ["a", "a:x=1", "a_x=1", "a:x='/'", "a+b", "a" * 300, "a" * 301]
    folders = [folder_name(name) for name in names]
    assert len(set(folders)) == len(names) and all("/" not in folder and len(folder) < 150 for folder in folders)


def test_the_reload_process_knows_where_the_target_tokenizer_is():
    assert TARGET_FOLDER == pairs.TARGET_FOLDER


def test_reasons():
    assert reason(3) == "exit code 3" and reason(-signal.SIGSEGV) == "killed by SIGSEGV"
    assert "memory" in reason(-signal.SIGKILL)


REPORT = {
    **dict(num_parameters=1234567, train_tokens_per_second=4321.0, peak_memory=512 * 2**20, train_loss=1.5),
    **dict(heldout_loss=0.5, train_examples=10, heldout_examples=3, epochs=8.0, steps=2),
    "scores": {"bleu": {"name": "BLEU", "value": 3.0, "signature": "nrefs:1|tok:13a", "higher_is_better": True}},
}


@pytest.mark.parametrize("error", [None, "out of luck"])
def test_the_verb(data, tmp_path, monkeypatch, error):
    jobs = []
    result = {"report": REPORT, "outputs": ["O cachorro."] * 24, "curve": [], "costs": None}

    def launch(waiting, processes, options, announce):
        for job in waiting:
            jobs.append((job, processes, options))
            result_file = Path(job.folder, RESULT)
            write_json(result_file, {"hash": job.hash, **({"error": error} if error else result)})
            write_json(result_file.parent / RELOADED, asdict(ReloadCheck("AutoModelForSeq2SeqLM", 0.0, True, True)))

    monkeypatch.setitem(LAUNCHERS, "submitit", launch)
    arguments = ["vanilla@tiny", "--data", str(data), "--tokenizer", "word", "--quiet", "-o", str(tmp_path / "out")]
    settings = ["--training", "learning_rate=0.1", "--set", "num_hidden_layers=1", "--columns", "pt,en", "--seed", "7"]
    engine = ["--budget", "steps=2", "--jobs", "3", "--launcher", "submitit", "--launch-with", "timeout_min=1"]
    found = CliRunner().invoke(verb, [*arguments, *settings, *engine, "--json"], standalone_mode=False)
    assert found.exception is None and found.return_value == (0 if error is None else 1)
    written = json.loads(found.stdout)
    assert written["runs"][0]["name"] == "vanilla@tiny" and written["runs"][0]["settings"] == {"max_steps": 2}
    assert written["sources"] == list(read_columns(data / "heldout.tsv")["pt"])
    ((job, processes, options),) = jobs
    assert job == Job.read(job.write())
    assert (job.seed, job.columns, job.progress, processes, options) == (7, ["pt", "en"], False, 3, {"timeout_min": 1})
    assert job.recipe["arguments"]["max_steps"] == 2 and job.recipe["model"]["num_hidden_layers"] == 1
    assert (tmp_path / "out" / "tokenizer" / "tokenizer.json").is_file()
    assert set(written["command"]) >= {*arguments, *settings, "--budget"} - {"--quiet"}
    shown = CliRunner().invoke(verb, ["--report-only", str(tmp_path / "out")], standalone_mode=False)
    assert len(jobs) == 1 and shown.return_value == found.return_value
    assert ("out of luck" if error else "BLEU: nrefs:1|tok:13a") in shown.stdout


@pytest.mark.slow
def test_a_terminated_comparison_leaves_no_process_behind(tmp_path):
    pid_file = tmp_path / "pid"
    (tmp_path / "sleeper.py").write_text(
        "import os, pathlib, time\n"
        "def main(arguments):\n"
        "    pathlib.Path(arguments[0] + '.new').write_text(str(os.getpid()))\n"
        "    os.rename(arguments[0] + '.new', arguments[0])\n"
        "    time.sleep(600)\n"
    )
    script = "from zoo.comparison.run.launchers import ForkServer, sigterm_raised\n"
    script += f"with sigterm_raised(): ForkServer('json', 'sleeper').call('sleeper', {str(pid_file)!r})"
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    with subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}) as parent:
        wait_until(pid_file.is_file, lambda: parent.poll() is None)
        parent.terminate()
        assert parent.wait() == 128 + signal.SIGTERM
    sleeper = int(pid_file.read_text())
    while os.path.isdir(f"/proc/{sleeper}"):
        time.sleep(0.05)


def wait_until(condition, is_alive) -> None:
    """Wait for something that a process does, however busy the machine is."""
    while not condition():
        assert is_alive()
        time.sleep(0.05)
