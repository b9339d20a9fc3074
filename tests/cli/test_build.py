import json
import re
import shlex
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

import zoo as library
from zoo.base.manifest import MANIFEST_FILE
from zoo.testing.new_plugin import KINDS

TINY = ("pre-norm@tiny", "--set", "vocab_size=50")


def test_what_is_built_can_be_loaded(zoo, tmp_path):
    run = zoo("build", *TINY, "-o", tmp_path / "new" / "model", "--task", "masked-lm")
    assert run.exit_code == 0, run.stderr
    folder = tmp_path / "new" / "model"
    assert "AutoModelForMaskedLM" in run.stdout
    model = library.load(folder)
    assert type(model).__name__ == "ZooForMaskedLM" and model.config.vocab_size == 50
    assert [file.name for file in folder.parent.iterdir()] == ["model"]


def test_a_seed_makes_the_weights_reproducible(zoo, tmp_path):
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert zoo("build", *TINY, "-o", tmp_path / name, "--seed", seed).exit_code == 0
    a, b, c = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    assert all(torch.equal(a[key], b[key]) for key in a) and not all(torch.equal(a[key], c[key]) for key in a)


def test_json(zoo, tmp_path):
    built = json.loads(zoo("build", *TINY, "-o", tmp_path / "model", "--json").stdout)
    assert built["auto_class"] == "AutoModelForCausalLM" and built["path"] == str((tmp_path / "model").resolve())
    assert {"config.json", "model.safetensors"} <= set(built["files"])
    assert built["num_parameters"] == library.load(built["path"]).num_parameters()


def test_settings_in_the_name_and_options_come_together(zoo, tmp_path):
    arguments = "pre-norm@tiny:position=rotary --set vocab_size=50 --set 'hidden_size=32' -o"
    assert zoo("build", *shlex.split(arguments), tmp_path / "model").exit_code == 0
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (config["position"], config["vocab_size"], config["hidden_size"]) == ("rotary", 50, 32)


@pytest.mark.parametrize(
    ("settings", "useful"),
    [
        ("hidden_siz=3", "did you mean 'hidden_size'?"),
        ("hidden_size", "KEY=VALUE"),
        ("position=rotry", "did you mean 'rotary'?"),
        ("num_attention_heads=7", "does not divide hidden_size=64"),
    ],
)
def test_bad_settings_leave_nothing_behind(zoo, tmp_path, settings, useful):
    run = zoo("build", *TINY, "--set", settings, "-o", tmp_path / "model")
    assert run.exit_code == 2 and useful in run.stderr and list(tmp_path.iterdir()) == []


def test_a_folder_with_files_is_refused(zoo, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    for force in ([], ["--force"]):
        run = zoo("build", *TINY, "-o", folder, *force)
        assert run.exit_code == 2 and "is not empty" in run.stderr
    assert [file.name for file in tmp_path.rglob("*")] == ["mine", "thesis.txt"]


def test_a_saved_model_is_replaced_by_force_only(zoo, tmp_path):
    folder = tmp_path / "model"
    assert zoo("build", *TINY, "-o", folder).exit_code == 0
    refused = zoo("build", "post-norm@tiny", "-o", folder)
    assert refused.exit_code == 2 and "--force" in refused.stderr
    assert zoo("build", "post-norm@tiny", "--set", "vocab_size=50", "-o", folder, "--force").exit_code == 0
    assert json.loads((folder / "config.json").read_text())["variant"] == "post-norm"
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_is_a_package_with_tests(zoo, tmp_path, kind):
    folder = tmp_path / f"my-{kind}"
    run = zoo("new", "plugin", f"--{kind}", folder, "--json")
    assert run.exit_code == 0, run.stderr
    files = ["pyproject.toml", f"my_{kind}.py", f"test_my_{kind}.py"]
    assert json.loads(run.stdout)["files"] == files
    assert set(files) == {file.name for file in folder.iterdir()} - {MANIFEST_FILE}
    for file in files[1:]:
        compile((folder / file).read_text(), file, "exec")
    again = zoo("new", "plugin", f"--{kind}", folder)
    assert again.exit_code == 2 and "is not empty" in again.stderr
    assert "lower-case letters" in zoo("new", "plugin", f"--{kind}", tmp_path / "My part").stderr


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_its_tests(zoo, tmp_path, kind):
    folder = tmp_path / f"my-{kind}"
    assert zoo("new", "plugin", f"--{kind}", folder).exit_code == 0
    options = ("-q", "-W", "ignore", "-p", "no:cacheprovider")
    run = subprocess.run([sys.executable, "-m", "pytest", *options, str(folder)], capture_output=True, check=False)
    assert run.returncode == 0, run.stdout
    assert re.search(rb"^[5-9]\d passed", run.stdout, re.MULTILINE), run.stdout
