"""zoo.load: the right head by itself, and one clear error for every kind of broken folder."""

import ast
import importlib
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from native_models import GPT2, native_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedModel

import zoo
from zoo.base.errors import (
    CheckpointError,
    InvalidChoiceError,
    MissingPluginError,
    UnknownQuirkError,
    UnknownTaskError,
    UnknownVariantError,
    ZooError,
    ZooWarning,
)
from zoo.building.loading import NewHeadWarning
from zoo.converters.errors import ConversionError
from zoo.models import ZooForCausalLM, pretrained

WEIGHTS = "model.safetensors"
TASKS = {
    **{"causal-lm": "ZooForCausalLM", "masked-lm": "ZooForMaskedLM", "seq2seq-lm": "ZooForConditionalGeneration"},
    **{"sequence-classification": "ZooForSequenceClassification", "token-classification": "ZooForTokenClassification"},
    "feature-extraction": "ZooDecoder",
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    zoo.build("pre-norm@tiny", vocab_size=40, seed=0).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "checkpoint"))


def cut(folder: Path, end: int) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:end])


def edit_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_training_what_was_loaded_leaves_the_file_alone(folder: Path) -> None:
    """Weights are mapped from the file, each process with pages of its own where it writes."""
    file = folder / "model.safetensors"
    written = file.read_bytes()
    model = zoo.load(folder).train()
    before = [parameter.clone() for parameter in model.parameters()]
    ids = torch.arange(24).reshape(2, 12)
    model(input_ids=ids, decoder_input_ids=ids, labels=ids).loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert not all(map(torch.equal, before, model.parameters())) and file.read_bytes() == written


def test_a_model_outlives_the_file_it_was_loaded_from(folder: Path) -> None:
    """Saving puts another file in its place, also where the model that is saved is mapped from the old one."""
    kept = zoo.load(folder)
    before = {name: tensor.clone() for name, tensor in kept.state_dict().items()}
    other = zoo.load(folder)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    other.save_pretrained(folder)
    torch.testing.assert_close(dict(kept.state_dict()), before, rtol=0, atol=0)
    torch.testing.assert_close(dict(zoo.load(folder).state_dict()), dict(other.state_dict()), rtol=0, atol=0)


@pytest.mark.parametrize(("task", "saved_as"), TASKS.items())
def test_the_head_that_was_saved_comes_back(task: str, saved_as: str, tmp_path: Path) -> None:
    model = zoo.build("pre-norm@tiny", task, vocab_size=40, seed=0)
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path)
    assert type(loaded).__name__ == saved_as and not loaded.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name


def test_another_head_can_be_asked_for(saved: Path) -> None:
    assert type(zoo.load(saved, "sequence-classification")).__name__ == "ZooForSequenceClassification"
    with pytest.raises(UnknownTaskError, match="did you mean 'causal-lm'"):
        zoo.load(saved, "causal-ml")


@pytest.mark.parametrize("config", [None, "{", "{}", '{"model_type": "transformer-zoo", "variant": "pre-norm"}'])
def test_a_folder_that_is_no_model_keeps_its_files_to_itself(tmp_path: Path, config: str | None) -> None:
    """The message may reach a page in a browser."""
    (tmp_path / "diary.txt").touch()
    (tmp_path / "private").mkdir()
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(CheckpointError) as caught:
        zoo.load(tmp_path)
    assert "diary" not in str(caught.value) and "private" not in str(caught.value)


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    native_model("GPT2", "LMHeadModel", GPT2, dtype=torch.float32).save_pretrained(folder)
    return folder


def test_a_folder_of_transformers_own_classes_is_converted(native: Path, folder: Path) -> None:
    model = zoo.load(native, dtype="bfloat16", attn_implementation="eager")
    assert model.dtype == torch.bfloat16
    assert model.config._attn_implementation == model.model.config._attn_implementation == "eager"
    assert type(zoo.load(str(native), "feature-extraction", dtype=torch.float64)).__name__ == "ZooDecoder"
    edit_config(folder, model_type="bert")
    with pytest.raises(ConversionError):
        zoo.load(folder)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"no_such_option": 3}, "unknown setting 'no_such_option' of loading"),
        ({"dtpye": "bfloat16"}, "did you mean 'dtype'"),
        ({"attn_implementation": "eagre"}, "did you mean 'eager'"),
    ],
)
def test_unknown_options_are_refused(native: Path, saved: Path, options: dict[str, object], words: str) -> None:
    for path in (native, saved):
        with pytest.raises(ZooError, match=words):
            zoo.load(path, **options)
    with pytest.raises(InvalidChoiceError, match="did you mean 'bfloat16'"):
        zoo.load(native, dtype="bfloat61")


@pytest.mark.parametrize(
    ("options", "warning", "words"),
    [
        ({"num_hidden_layers": 1}, ZooWarning, r"left out, because num_hidden_layers=1: model\.layers\.1"),
        ({"norm_placement": "post"}, NewHeadWarning, "new and random, because norm_placement=post: "),
    ],
)
def test_weights_that_options_leave_out_or_add_are_named(
    folder: Path, options: dict[str, Any], warning: type[Warning], words: str
) -> None:
    with pytest.warns(warning, match=words):
        zoo.load(folder, **options)


LINEAR = {"rope_type": "linear", "factor": 2.0}
BASE = {"rope_theta": 100.0, "partial_rotary_factor": 0.5}
DEFAULT = {"rope_type": "default", **BASE}


@pytest.mark.parametrize(
    ("name", "saved", "given", "whole"),
    [
        ("llama-style", DEFAULT, {"rope_parameters": LINEAR}, {**LINEAR, **BASE}),
        ("llama-style", DEFAULT, {"rope_scaling": LINEAR}, {**LINEAR, **BASE}),
        (
            "llama-style",
            DEFAULT,
            {"rope_parameters": {**LINEAR, "rope_theta": 9.0}},
            {**LINEAR, **BASE, "rope_theta": 9.0},
        ),
        (
            "gemma3-style",
            {"full_attention": DEFAULT, "sliding_attention": {**DEFAULT, "rope_theta": 50.0}},
            {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": {"rope_type": "default"}}},
            {
                "full_attention": {**LINEAR, **BASE},
                "sliding_attention": {**DEFAULT, "rope_theta": 50.0},
            },
        ),
    ],
)
def test_scaled_rotations_keep_the_saved_base_and_channels(
    name: str, saved: dict[str, Any], given: dict[str, Any], whole: dict[str, Any], tmp_path: Path
) -> None:
    model = zoo.build(f"{name}@tiny", "causal-lm", vocab_size=40, rope_parameters=saved)
    model.save_pretrained(tmp_path)
    expected = zoo.build(f"{name}@tiny", "causal-lm", vocab_size=40, rope_parameters=whole)
    expected.load_state_dict(model.state_dict())
    ids = torch.arange(3, 33)[None]
    for loaded in (zoo.load(tmp_path, **given), AutoModelForCausalLM.from_pretrained(tmp_path, **given)):
        assert torch.equal(loaded(ids).logits, expected(ids).logits)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rope_parameters": {"type": "lin", "factor": 2.0}}, "unknown rope_type 'lin'"),
        ({"layer_types": ["sliding"]}, "unknown layer_types 'sliding'"),
        ({"quirks": ["any"]}, "has its own, zoo.build makes others"),
    ],
)
@pytest.mark.parametrize("load", [zoo.load, AutoModelForCausalLM.from_pretrained], ids=["zoo", "auto"])
def test_options_are_checked_as_settings_are(
    tmp_path: Path, options: dict[str, Any], words: str, load: Callable[..., Any]
) -> None:
    zoo.build("llama-style@tiny", "causal-lm", vocab_size=40).save_pretrained(tmp_path)
    with pytest.raises(ZooError, match=words):
        load(tmp_path, **options)


def test_variant_names_files_of_weights_where_auto_classes_load(tmp_path: Path) -> None:
    model = zoo.build("llama-style@tiny", "causal-lm", vocab_size=40)
    model.save_pretrained(tmp_path, variant="fp16")
    for load in (AutoModelForCausalLM.from_pretrained, type(model).from_pretrained):
        loaded = load(tmp_path, variant="fp16")
        assert loaded.config.variant == "llama-style" and torch.equal(loaded.lm_head.weight, model.lm_head.weight)
        with pytest.raises(ZooError, match=r"no file named model\.vanilla\.safetensors"):
            load(tmp_path, variant="vanilla")


@pytest.mark.parametrize("module", ["builder", "loading"])
def test_variants_and_folders_know_neither_hub_nor_converters(module: str) -> None:
    source = Path(str(importlib.import_module(f"zoo.building.{module}").__file__)).read_text()
    imported = [node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    assert not [one for one in imported if str(one).startswith(("zoo.hub", "zoo.converters", "zoo.building.dispatch"))]


@pytest.mark.parametrize(
    ("spoil", "wording"),
    [
        (shutil.rmtree, "checkpoint is not a folder"),
        (lambda folder: (folder / "config.json").unlink(), r"no config\.json, so it is no checkpoint"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config\.json is not valid JSON"),
        *((partial(cut, end=end), f"{WEIGHTS} is truncated or damaged") for end in (0, 5, 200, -1)),
        (lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"), f"no {WEIGHTS}; weights are read"),
        (partial(edit_config, architectures=["ZooForEverything"]), "'ZooForEverything'.*ZooForCausalLM"),
    ],
)
def test_a_broken_folder_is_one_clear_error(folder: Path, spoil: Callable[[Path], object], wording: str) -> None:
    spoil(folder)
    with pytest.raises(CheckpointError, match=wording):
        zoo.load(folder)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_damaged_settings_of_generation_are_one_clear_error(native: Path, folder: Path, text: str) -> None:
    shutil.copytree(native, folder / "native")
    for source in (folder, folder / "native"):
        (source / "generation_config.json").write_text(text)
        with pytest.raises((CheckpointError, ConversionError), match="JSON|configuration"):
            zoo.load(source)


def test_given_labels_replace_the_saved_ones(tmp_path: Path) -> None:
    labels = {"id2label": {0: "a", 1: "b"}, "label2id": {"a": 0, "b": 1}}
    zoo.build("pre-norm@tiny", "sequence-classification", **labels).save_pretrained(tmp_path)
    assert zoo.load(tmp_path).config.label2id == {"a": 0, "b": 1}
    assert zoo.load(tmp_path, id2label={0: "c", 1: "d"}).config.label2id is None, "as in a new configuration"
    with pytest.warns(NewHeadWarning):
        assert len(zoo.load(tmp_path, num_labels=5).config.id2label) == 5


@pytest.mark.parametrize("load", [zoo.load, zoo.convert])
def test_the_name_of_a_repository_without_its_prefix_is_explained(load: Callable[[str], object]) -> None:
    for name in ("gpt2", "hf:gpt2", "hf://gpt2", "gpt2@v1"):
        meant = name.split("/")[-1].removeprefix("hf:")
        with pytest.raises(CheckpointError, match=f"a repository on the Hub would be 'hf-hub:{meant}'"):
            load(name)


def test_a_saved_quirk_that_the_variant_does_not_have_is_refused(tmp_path: Path) -> None:
    zoo.build("vanilla@tiny").save_pretrained(tmp_path)
    edit_config(tmp_path, quirks=["scores-scaled"])
    for load in (zoo.load, AutoConfig.from_pretrained, AutoModel.from_pretrained):
        with pytest.raises(UnknownQuirkError, match="did you mean 'scores-scaled-by-model-width'"):
            load(tmp_path)


def test_pickled_weights_are_refused_by_from_pretrained_too(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    with pytest.raises(CheckpointError, match="safetensors files only"):
        AutoModelForCausalLM.from_pretrained(folder, use_safetensors=False)
    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(OSError, match="safetensors"):
        AutoModelForCausalLM.from_pretrained(folder)


def test_missing_weights_are_named(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    del weights["lm_head.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks weights.*lm_head\.weight"):
        zoo.load(folder)


def test_a_shard_that_is_not_there(tmp_path: Path) -> None:
    zoo.build("pre-norm@tiny", vocab_size=40, seed=0).save_pretrained(tmp_path, max_shard_size="100KB")
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(CheckpointError, match=shard.name):
        zoo.load(tmp_path)


@pytest.mark.parametrize("size", ["1GB", "20KB"])
def test_weights_with_a_suffix_and_in_a_subfolder_load_as_in_transformers(tmp_path: Path, size: str) -> None:
    model = zoo.build("pre-norm@tiny", vocab_size=40, seed=0)
    model.save_pretrained(tmp_path / "inner", variant="fp16", max_shard_size=size)
    assert len(list(tmp_path.glob("inner/*.safetensors"))) > (size != "1GB")
    asked = {"subfolder": "inner", "variant": "fp16"}
    for loaded in (
        ZooForCausalLM.from_pretrained(tmp_path, **asked),
        AutoModelForCausalLM.from_pretrained(tmp_path, **asked),
        zoo.load(tmp_path, **asked),
        zoo.load(tmp_path, "causal-lm", **asked, dtype="float32"),
    ):
        assert all(torch.equal(one, other) for one, other in zip(loaded.parameters(), model.parameters(), strict=True))
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors"):
        zoo.load(tmp_path / "inner")
    with pytest.raises(CheckpointError, match=r"lacks weights|has no model\.int8\.safetensors"):
        zoo.load(tmp_path, subfolder="inner", variant="int8")


def test_an_unknown_variant_has_a_nearest_match(folder: Path) -> None:
    edit_config(folder, variant="pre-nrom")
    with pytest.raises(UnknownVariantError, match="did you mean 'pre-norm'"):
        zoo.load(folder)


@pytest.mark.parametrize("field", ["variant", "position", "norm"])
def test_a_missing_plugin_is_named(folder: Path, field: str) -> None:
    edit_config(folder, **{field: "from-afar", "providers": {field: "zoo-from-afar"}})
    with pytest.raises(MissingPluginError, match="pip install zoo-from-afar"):
        zoo.load(folder)


def test_a_model_is_built_once_and_compared_before_its_weights_are_read(tmp_path: Path, monkeypatch) -> None:
    zoo.build("gpt2-style@tiny", vocab_size=20).save_pretrained(tmp_path / "model")
    built = []
    plain = ZooForCausalLM.__init__
    monkeypatch.setattr(ZooForCausalLM, "__init__", lambda self, config: (built.append(1), plain(self, config))[1])
    for options in ({}, {"verify": False}):
        zoo.load(tmp_path / "model", **options)
    assert len(built) == 2
    edit_config(tmp_path / "model", intermediate_size=136)
    with monkeypatch.context() as patch:
        patch.setattr(PreTrainedModel, "_load_pretrained_model", lambda *_, **given: pytest.fail("weights are read"))
        with pytest.raises(CheckpointError, match="mlp"):
            zoo.load(tmp_path / "model")


@pytest.mark.parametrize("options", [{}, {"dtype": torch.bfloat16}], ids=str)
@pytest.mark.parametrize("name", ["gpt2-style@tiny", "t5-style@tiny", "albert-style@tiny", "llama-style@tiny"])
def test_weights_are_assigned_as_transformers_loads_them(tmp_path: Path, monkeypatch, name: str, options) -> None:
    zoo.build(name, vocab_size=40, seed=0).save_pretrained(tmp_path)
    loaded, assigned = [], []
    assign = pretrained.assign_weights
    for how in (assign, lambda *args: None):
        monkeypatch.setattr(pretrained, "assign_weights", lambda *_, how=how: assigned.append(how(*_)) or assigned[-1])
        loaded.append(zoo.load(tmp_path, **options))
    assert (assigned[0] is not None) is (not options)
    ours, theirs = loaded
    for one, other in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert one[0] == other[0] and (one[1].dtype, one[1].requires_grad) == (other[1].dtype, other[1].requires_grad)
        assert torch.equal(one[1], other[1])
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(map(torch.equal, ours.buffers(), theirs.buffers()))
