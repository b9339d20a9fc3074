"""Saved folders in which anything was changed either load and compute, or give one clear error."""

import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedConfig

import zoo
from zoo.base.errors import CheckpointError, ConfigError, ZooError
from zoo.base.folders import EVALUATIONS_FILE, RECORD_FILE, RESULT_FILE
from zoo.cli.main import cli
from zoo.comparison import Comparison
from zoo.data.tasks import DataSource, load_tokenizers
from zoo.data.tokenizers.pairs import train_tokenizers
from zoo.hub.folders import check_shards
from zoo.hub.records import find_results, keep_evaluation
from zoo.models import ZooModel
from zoo.models.configuration import WITHOUT_FIELD, ZooConfig
from zoo.models.fields import SETTINGS
from zoo.training import Recipe
from zoo.training.checkpoints import SEAL, damage
from zoo.training.record import DataRecord, ExamplesRecord, RunRecord, saved_run

FUZZING = os.environ.get("ZOO_FUZZ_EXAMPLES")
EXAMPLES = int(FUZZING or 40)  # How many changes each test tries: always the same, except by `scripts/fuzz`

NAMES = ("pre-norm@tiny", "vanilla@tiny", "t5-style@tiny", "llama-style@tiny", "bert-style@tiny", "gemma2-style@tiny")
INHERITED = (
    *("id2label", "label2id", "num_labels", "problem_type", "dtype", "torch_dtype", "quantization_config"),
    *("architectures", "layer_types", "rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"),
    *("per_layer_config", "attn_implementation", "transformers_weights", "return_dict", "output_attentions"),
    *("chunk_size_feed_forward", "tokenizer_class", "name_or_path", "auto_map", "max_length"),
)
FIELDS = sorted({*ZooConfig.__dataclass_fields__, *INHERITED} - {"model_type"})
ATTRIBUTES = sorted({*dir(ZooConfig), "_attn_implementation_internal"} - {"model_type", "auto_map"})
"""Whatever the class has: fields, properties, methods, what is private."""

FIXTURE = HealthCheck.function_scoped_fixture
fuzzed = settings(max_examples=EXAMPLES, deadline=None, derandomize=not FUZZING, suppress_health_check=[FIXTURE])
numbers = st.one_of(
    st.sampled_from([0, 1, -1, 3, 10**9, 10**9 + 1, 10**20, -(10**20), 0.0, 1.5, -1.5, 1e-320, 1e300]),
    st.sampled_from([float("nan"), float("inf"), float("-inf")]),
    st.integers(-100, 300),
)
words = st.one_of(st.sampled_from(["", "../..", "\0", "eager", "full_attention", "64", "float32"]), st.text(max_size=5))
plain = st.one_of(st.none(), st.booleans(), numbers, words)
values = st.recursive(
    plain, lambda one: st.lists(one, max_size=3) | st.dictionaries(words, one, max_size=3), max_leaves=4
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folders = []
    for name in NAMES:
        folders.append(tmp_path_factory.mktemp("saved") / "model")
        zoo.build(name, vocab_size=40, seed=0).save_pretrained(folders[-1])
    return folders


@contextmanager
def one_line_at_most() -> Iterator[None]:
    """An error of the zoo's own in one line is as good as none, and warnings are not looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except ZooError as error:
            assert "\n" not in str(error)


def changed(folder: Path, target: Path, **changes: Any) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    config = json.loads((folder / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **changes}))
    return target


@fuzzed
@given(data=st.data())
def test_a_changed_configuration(saved: list[Path], tmp_path: Path, data: st.DataObject) -> None:
    field, ids = data.draw(st.sampled_from(FIELDS)), torch.tensor([[5, 6, 7, 8]])
    target = changed(data.draw(st.sampled_from(saved)), tmp_path / "model", **{field: data.draw(values)})
    with one_line_at_most():
        model = zoo.load(target)
        decoder = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
        assert torch.isfinite(model(input_ids=ids, **decoder, return_dict=True)[0]).all()
    if field != "auto_map":  # which transformers reads before it knows the class of the configuration
        with one_line_at_most():
            AutoModel.from_pretrained(target)


@fuzzed
@given(name=st.sampled_from(ATTRIBUTES) | st.from_regex("_[a-z_]{1,9}", fullmatch=True) | words, value=values)
def test_a_configuration_with_any_name_in_it(saved: list[Path], name: str, value: Any) -> None:
    config = json.loads((saved[0] / "config.json").read_text())
    with one_line_at_most():
        made = ZooConfig.from_dict({**config, name: value})
        assert type(made).from_dict(made.to_dict()).to_dict() == made.to_dict()


def test_every_attribute_that_is_no_setting_is_refused(saved: list[Path]) -> None:
    config = json.loads((saved[0] / "config.json").read_text())
    others = {*ATTRIBUTES} - {*ZooConfig.__dataclass_fields__, *WITHOUT_FIELD, *ZooConfig.attribute_map}
    assert {"use_return_dict", "sub_configs", "stack", "_attn_implementation", "to_dict", "__dict__"} <= others
    for name in others:
        with pytest.raises(ConfigError, match="which cannot have that"):
            ZooConfig.from_dict({**config, name: 1})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("model_type", value) for value in ([None], {}, 3, None)),
        *(("auto_map", value) for value in (3, ["a"], {"AutoConfig": 3}, {"AutoConfig": None})),
    ],
)
def test_what_an_auto_class_trips_over_is_one_error_of_the_zoo(saved, tmp_path: Path, field: str, value: Any) -> None:
    """An Auto class reads these before it knows the class of the configuration; some end in its own errors."""
    folder = changed(saved[0], tmp_path / "model", **{field: value})
    with pytest.raises(CheckpointError, match=re.escape(repr(value))) as found:
        zoo.load(folder)
    for verb in (["export", str(folder), "--plan"], ["evaluate", str(folder)], ["convert", str(folder), "-o", "out"]):
        result = CliRunner().invoke(cli, verb)
        (line,) = result.stderr.splitlines()
        assert result.exit_code == 2 and line.startswith("zoo: error: ")
        assert verb[0] == "convert" or str(found.value) in line


def test_every_number_of_a_configuration_has_a_range() -> None:
    own = ZooConfig.__dataclass_fields__.keys() - PreTrainedConfig.__dataclass_fields__.keys()
    numbers = {name for name in own if re.search("int|float", str(ZooConfig.__dataclass_fields__[name].type))}
    assert numbers <= {name for name, one in SETTINGS.items() if one.least is not None or one.positive}


@pytest.mark.parametrize("name", ["a" * 5000 + ".safetensors", "é" * 200, 3, None, "../m", "/a", "a/b", ""])
def test_an_index_that_names_what_is_no_file(saved: list[Path], tmp_path: Path, name: Any) -> None:
    folder = changed(saved[0], tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"x": name}}))
    for read in (zoo.load, AutoModel.from_pretrained, check_shards):
        with pytest.raises(CheckpointError, match="not a file of its own folder") as error:
            read(folder)
        assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 1}, "holds weights that are not those of the ZooForCausalLM"),
        ({"num_hidden_layers": 9000}, "for 9000 layers"),
        ({"num_hidden_layers": 3}, r"lacks weights of .*layers\.2\."),
        ({"vocab_size": 41}, r"has shape \[40, 64\] in the file, \[41, 64\] by the config"),
        ({"hidden_size": 10**9 + 1}, r"config\.json: hidden_size=1000000001 was given"),
        ({"num_hidden_layers": -1}, r"config\.json: num_hidden_layers=-1"),
        ({"attn_implementation": "someone/kernels"}, "attn_implementation='someone/kernels'"),
    ],
)
def test_a_configuration_of_another_model(
    saved: list[Path], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        zoo.load(changed(saved[0], tmp_path / "model", **change))


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizers")
    train_tokenizers(["the dog ran", "a cat sat"], ["o cão"], kind="bpe", vocab_size=300).save(folder)
    return folder


def change_somewhere(content: Any, data: st.DataObject) -> None:
    place = content
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not place[key] or not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(values)


@fuzzed
@given(data=st.data())
def test_changed_tokenizers(tokenizers: Path, tmp_path: Path, data: st.DataObject) -> None:
    target = tmp_path / "tokenizers"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(tokenizers, target)
    file = target / data.draw(st.sampled_from(["tokenizer.json", "tokenizer_config.json"]))
    content = json.loads(file.read_text())
    change_somewhere(content, data)
    text = json.dumps(content)
    file.write_text(text[: data.draw(st.just(len(text)) | st.integers(0, len(text)))])
    with one_line_at_most():
        load_tokenizers(target)


@fuzzed
@given(data=st.data())
def test_changed_records_of_runs(tmp_path: Path, data: st.DataObject) -> None:
    part = ExamplesRecord(3, "00")
    source = DataSource("train.tsv", columns=["a", "b"])
    recipe = Recipe("translation", generation={"num_beams": 2}, arguments={"max_steps": 3})
    content = RunRecord("vanilla", 0, recipe, "00", DataRecord(source, part, part)).to_dict()
    assert RunRecord.from_dict(content).to_dict() == content
    change_somewhere(content, data)
    (tmp_path / "result.json").write_text(json.dumps(content))
    run = saved_run(tmp_path)
    if run is not None:
        assert isinstance(run.recipe.task, str)
        run.recipe.changed(generation={"num_beams": 1}, arguments={}, model={})
        run.identity(examples_a_batch=8)


@fuzzed
@given(result=values, evaluations=values)
def test_changed_records(tmp_path: Path, result: Any, evaluations: Any) -> None:
    for field in ("recipe", "report", "task", "data", "tokenizer"):
        (tmp_path / "result.json").write_text(json.dumps({field: result}))
        assert saved_run(tmp_path) is None
        find_results(tmp_path)
    (tmp_path / "evaluations.json").write_text(json.dumps({"evaluations": [evaluations]}))
    find_results(tmp_path)
    keep_evaluation(tmp_path, {"task": "translation", "loss": 1.0}, "data")
    assert len(find_results(tmp_path)) >= 1


def test_nested_too_deeply(saved: list[Path], tmp_path: Path) -> None:
    folder = changed(saved[0], tmp_path / "model")
    for depth, message in ((400, "nested more than 50 levels"), (100_000, "not valid JSON")):
        (folder / "config.json").write_text('{"model_type": "transformer-zoo", "x": ' + "[" * depth + "]" * depth + "}")
        with pytest.raises(CheckpointError, match=message):
            zoo.load(folder)


def test_records_that_are_nested_too_deeply(saved: list[Path], tmp_path: Path) -> None:
    folder = changed(saved[0], tmp_path / "model")
    for name in (RESULT_FILE, EVALUATIONS_FILE, RECORD_FILE, SEAL, "results.json"):
        (folder / name).write_text("[" * 100_000 + "]" * 100_000)
    assert saved_run(folder) is None and find_results(folder) == [] and damage(folder) == f"its {SEAL} cannot be read"
    for read, message in (
        (Comparison.read, "no finished comparison"),
        (zoo.load, "is damaged: it is nested too deeply"),
    ):
        with pytest.raises(ZooError, match=message):
            read(folder)


def test_auto_classes_do_not_leave_the_folder_either(saved: list[Path], tmp_path: Path) -> None:
    folder = changed(saved[0], tmp_path / "inner" / "model")
    (folder / "model.safetensors").rename(tmp_path / "model.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "../../model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="not a file of its own folder"):
        AutoModelForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 41}, r"embed_tokens\.weight is \[40, 64\] in the file, \[41, 64\] in the model"),
        ({"base_model_ep_plan": ["x"]}, "base_model_ep_plan="),
        ({"attribute_map": {"vocab_size": "x"}}, "attribute_map="),
        ({"to_dict": 3}, "to_dict=3"),
        ({"note": json.loads("[" * 60 + "]" * 60)}, "more than 50 levels"),
    ],
)
def test_an_auto_class_names_the_error_in_one_line(saved: list[Path], tmp_path: Path, change, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        AutoModel.from_pretrained(changed(saved[0], tmp_path / "model", **change))


def test_damaged_files_and_an_auto_class(saved: list[Path], tmp_path: Path) -> None:
    folder = changed(saved[0], tmp_path / "model")
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:300])
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        AutoModel.from_pretrained(folder, verify=False)
    weights.unlink()
    with pytest.raises(CheckpointError, match="no file named model.safetensors"):
        AutoModel.from_pretrained(folder)
    (folder / "weights.safetensors").write_bytes(content)
    for index in ({"weight_map": {"a": "weights.safetensors"}}, {"weight_map": {}, "metadata": {}}, {"metadata": []}):
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(CheckpointError, match="index"):
            AutoModel.from_pretrained(folder)
    (folder / "model.safetensors.index.json").unlink()
    (folder / "config.json").write_text('{"model_type": "transformer-zoo", "note": ' + "[" * 9000 + "]" * 9000 + "}")
    with pytest.raises(CheckpointError, match="nested too deeply"):
        ZooModel.from_pretrained(folder)


def test_arguments_are_checked_as_the_configuration_is(saved: list[Path]) -> None:
    with pytest.raises(ConfigError, match="num_hidden_layers=-1"):
        AutoModel.from_pretrained(saved[0], num_hidden_layers=-1)
    assert AutoModel.from_pretrained(saved[0], num_hidden_layers=1, dropout=0.5).config.dropout == 0.5
