"""Folders of earlier versions load, and those of newer versions are refused with what to install."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from preloaded import run_python
from transformers import AutoModelForCausalLM

import zoo
from zoo.base import formats
from zoo.base.errors import FormatVersionError, PluginWarning
from zoo.base.manifest import read_manifest
from zoo.comparison.benchmarks import rows
from zoo.comparison.benchmarks.rows import read_rows, write_rows
from zoo.comparison.plan import find_plan
from zoo.comparison.results.comparison import Comparison
from zoo.data.corpora import shards
from zoo.models import ZooConfig
from zoo.models.configuration import WITHOUT_FIELD, known_options
from zoo.registry import VARIANTS
from zoo.registry.plugins import PluginLoader

OLD = Path(__file__).parent / "formats/0.1.0"
LOGITS = [0.6851879, -0.2689565, -0.5007042, 1.1469874]  # Of `trained`, as the version that wrote it computed them


def check_logits(folder: Path) -> None:
    logits = zoo.load(folder)(torch.tensor([[1, 5, 9, 3]])).logits[0, -1, :4]
    torch.testing.assert_close(logits, torch.tensor(LOGITS), atol=1e-5, rtol=1e-5)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the plugin, installed for this test."""
    shutil.copytree(OLD / "plugin", tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delenv("ZOO_PLUGINS", raising=False)
    return tmp_path / "site"


def test_a_trained_model_computes_what_it_did() -> None:
    check_logits(OLD / "trained")
    assert len(read_manifest(OLD / "trained")) == 6


def test_the_weights_of_a_bundle_load(tmp_path: Path) -> None:
    zipfile.ZipFile(OLD / "bundle.zip").extractall(tmp_path)
    check_logits(tmp_path)


@pytest.mark.slow
def test_the_code_of_a_bundle_runs_without_the_zoo(tmp_path: Path) -> None:
    zipfile.ZipFile(OLD / "bundle.zip").extractall(tmp_path / "bundle")
    code = """
import sys
class NoZoo:
    def find_spec(self, name, *_):
        if name.partition('.')[0] == 'zoo': raise ImportError(name)
sys.meta_path.insert(0, NoZoo())
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained('bundle', trust_remote_code=True).eval()
print(model(torch.tensor([[1, 5, 9, 3]])).logits[0, -1, :4].tolist())
"""
    done = run_python(["-c", code], env={"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == pytest.approx(LOGITS, abs=1e-5)


def test_a_comparison_is_read_and_can_be_extended() -> None:
    assert Comparison.read(OLD / "compared").names == ["pre-norm", "post-norm"]
    plan = find_plan(OLD / "compared")
    assert plan is not None and plan.seeds == [0]


def test_token_shards_are_read(tmp_path: Path) -> None:
    folder = shutil.copytree(OLD / "shards", tmp_path / "shards")  # where reading notes which files were verified
    manifest = shards.read_manifest(folder)
    assert len(manifest.row(folder)) == manifest.tokens == 5524


def test_rows_are_written_as_they_were(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.csv", read_rows(OLD / "rows.csv"))
    assert (tmp_path / "rows.csv").read_bytes() == (OLD / "rows.csv").read_bytes()


def test_rows_of_a_later_format_carry_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = replace(formats.ROWS, version=2)
    with monkeypatch.context() as patch:
        patch.setattr(rows, "ROWS", later)
        write_rows(tmp_path / "rows.csv", read_rows(OLD / "rows.csv"))
        assert len(read_rows(tmp_path / "rows.csv")) == len(read_rows(OLD / "rows.csv")) > 0
    with pytest.raises(FormatVersionError, match="a record of runs of format 2.*pip install --upgrade transformer-zoo"):
        read_rows(tmp_path / "rows.csv")


def test_a_plugin_of_the_first_interface_is_loaded(site: Path) -> None:
    code = "import zoo; print(zoo.list_variants('wave-*'))"
    done = run_python(["-c", code], env={"PYTHONPATH": str(site)})
    assert done.stdout == "['wave-decoder']\n", done.stderr


def edit(file: Path, **changed: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), **changed}), encoding="utf-8")


RESULTS = {"format": 3, "environment": {"versions": {"transformer-zoo": "7.1"}}}


@pytest.mark.parametrize(
    ("file", "changed", "read", "version"),
    [
        ("trained/config.json", {"zoo_format": 2, "zoo_version": "7.1"}, zoo.load, "7.1"),
        ("trained/config.json", {"zoo_format": 2}, zoo.load, None),
        ("trained/config.json", {"zoo_version": "7.1", "head_gain": True}, zoo.load, "7.1"),
        ("trained/config.json", {"zoo_version": "7.1", "norm": "norm-of-the-future"}, zoo.load, "7.1"),
        ("trained/.zoo-manifest.json", {"format": 2}, zoo.load, None),
        ("bundle/bundle.json", {"format": 2, "transformer-zoo": "7.1"}, zoo.load, "7.1"),
        ("compared/results.json", RESULTS, Comparison.read, "7.1"),
        ("compared/comparison.json", {"format": 2}, find_plan, None),
        ("shards/zoo-shards.json", {"format": 2}, shards.read_manifest, None),
        ("rows.csv", {}, lambda folder: read_rows(folder / "rows.csv"), "7.1"),
    ],
)
def test_what_a_newer_version_wrote_is_refused_with_what_to_install(file, changed, read, version, tmp_path) -> None:
    shutil.copytree(OLD, tmp_path / "new")
    wanted = "pip install --upgrade " + (f"'transformer-zoo>={version}'" if version else "transformer-zoo")
    zipfile.ZipFile(OLD / "bundle.zip").extractall(tmp_path / "new/bundle")
    place = tmp_path / "new" / file
    if place.suffix == ".csv":
        header, *lines = place.read_text(encoding="utf-8").replace(",0.1.0,", ",7.1,").splitlines()
        place.write_text("\n".join([f"format,{header}", *(f"2,{line}" for line in lines)]), "utf-8")
    else:
        edit(place, **changed)
    with pytest.raises(FormatVersionError) as error:
        read(place.parent)
    assert str(error.value).endswith(wanted) and "\n" not in str(error.value)


def test_a_newer_checkpoint_without_new_settings_loads_by_auto_classes_too(tmp_path: Path) -> None:
    zoo.build("gpt2-style@tiny", "causal-lm", vocab_size=40).save_pretrained(tmp_path)
    edit(tmp_path / "config.json", **{formats.WRITTEN_BY: "7.1"})
    for load in (zoo.load, AutoModelForCausalLM.from_pretrained):
        assert load(tmp_path).config.vocab_size == 40


def test_a_plugin_of_a_newer_interface_alone_is_left_out_by_name(site: Path) -> None:
    info = site / "zoo_wave-0.1.dist-info/entry_points.txt"
    info.write_text(info.read_text().replace("[zoo.plugins]", "[zoo.plugins.v2]"))
    with pytest.warns(PluginWarning, match=r"'zoo-wave' of zoo-wave 0\.1 is left out.*pip install --upgrade"):
        PluginLoader().load()
    assert "zoo_wave" not in sys.modules


def test_results_of_a_version_before_the_oldest_are_refused(tmp_path: Path) -> None:
    shutil.copytree(OLD / "compared", tmp_path / "compared")
    edit(tmp_path / "compared/results.json", format=1)
    with pytest.raises(FormatVersionError, match="format 1, and transformer-zoo .* reads format 2; .*write it again"):
        Comparison.read(tmp_path / "compared")


@pytest.mark.parametrize("name", VARIANTS.names())
def test_a_saved_configuration_holds_known_settings_and_its_version(name: str) -> None:
    """So that an unknown one in a configuration of a newer version is a newer setting."""
    for task in VARIANTS.get(name).tasks:
        config = zoo.config(f"{name}@tiny", task)
        saved = json.loads(config.to_json_string())
        assert saved[formats.CONFIGURATION.key] == formats.CONFIGURATION.version
        assert saved[formats.WRITTEN_BY] == zoo.__version__
        known = {*(field.name for field in fields(ZooConfig)), *WITHOUT_FIELD, *known_options(config)}
        assert saved.keys() - known == set()
        assert ZooConfig.from_dict({**saved, formats.WRITTEN_BY: "7.1"}).to_diff_dict() == config.to_diff_dict()
