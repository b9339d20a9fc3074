"""Every way in which transformers loads and saves a model, quantised ones included."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BitsAndBytesConfig,
    TorchAoConfig,
)
from transformers.quantizers.base import get_keys_to_not_convert
from transformers_citizen import support
from transformers_citizen.support import ASSORTED, ONE_OF_EACH, over, single, tiny

import zoo
from zoo import models
from zoo.testing.cases import assert_equal, assert_same_weights

AUTO = {"causal-lm": AutoModelForCausalLM, "masked-lm": AutoModelForMaskedLM, "seq2seq-lm": AutoModelForSeq2SeqLM}


@pytest.fixture
def saved(pair, tmp_path: Path) -> Path:
    support.tiny(pair).copy().save_pretrained(tmp_path)
    return tmp_path


@support.over(support.ONE_OF_EACH)
@pytest.mark.parametrize("dtype", ["auto", "bfloat16", torch.float16, torch.float32])
def test_a_dtype_is_obeyed(pair, saved, dtype):
    model = AUTO[pair[1]].from_pretrained(saved, dtype=dtype)
    expected = {"auto": torch.float64, "bfloat16": torch.bfloat16}.get(dtype, dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {expected}
    assert torch.isfinite(support.tiny(pair).run(model)).all()


@support.over(support.ONE_OF_EACH)
def test_an_attention_backend_is_obeyed(pair, saved):
    model = AUTO[pair[1]].from_pretrained(saved, attn_implementation="eager", dtype="auto")
    assert model.config._attn_implementation == "eager"
    torch.testing.assert_close(support.tiny(pair).run(model), support.tiny(pair).run())
    assert "attn_implementation" not in (saved / "config.json").read_text()


@support.over(support.ASSORTED)
@pytest.mark.parametrize("device_map", ["auto", "cpu", {"": "cpu"}, "balanced"], ids=str)
def test_a_device_map_is_obeyed(pair, saved, device_map):
    model = AUTO[pair[1]].from_pretrained(saved, device_map=device_map, dtype="auto")
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    torch.testing.assert_close(support.tiny(pair).run(model), support.tiny(pair).run())


def leaves(module: torch.nn.Module, path: str = "") -> Iterator[str]:
    """Paths of modules that own parameters, and of parameters next to modules."""
    own = [f"{path}.{name}".lstrip(".") for name, _ in module.named_parameters(recurse=False)]
    named = ((f"{path}.{name}".lstrip("."), child) for name, child in module.named_children())
    children = [(place, child) for place, child in named if any(True for _ in child.parameters())]
    if own and not children:
        yield path
        return
    yield from own
    for name, child in children:
        yield from leaves(child, name)


@support.enough_over((*support.EVERY, support.SHARING))
@pytest.mark.parametrize(
    "on_disk", [r"(.*\.)?layers\.0\.(cross_attn|mlp)", r"(?!.*layers\.)"], ids=["sublayers", "all but layers"]
)
def test_parts_that_are_offloaded_to_the_disk_compute_the_same(pair, on_disk, saved, tmp_path: Path):
    subject = support.tiny(pair)
    places = {leaf: "disk" if re.match(on_disk, leaf) else "cpu" for leaf in leaves(subject.model)}
    loaded = AUTO[pair[1]].from_pretrained(
        saved, device_map=places, offload_folder=tmp_path / "offload", dtype=torch.float64
    )
    assert any(parameter.is_meta for parameter in loaded.parameters())
    torch.testing.assert_close(subject.run(loaded), subject.run())


@pytest.mark.parametrize("missing", ["layers.0.self_attn.q_proj.weight", "layers.0.mlp_residual.norm_out.bias"])
def test_a_shared_weight_that_a_checkpoint_lacks_is_reported_and_initialised(missing, tmp_path: Path):
    model = support.tiny(support.SHARING).copy()
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights[f"model.decoder.{missing}"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / ".zoo-manifest.json").unlink(missing_ok=True)  # the weights were changed on purpose
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert f"model.decoder.{missing}" in info["missing_keys"]
    new = support.single(support.SHARING).get_parameter(f"model.decoder.{missing}")
    found = loaded.get_parameter(f"model.decoder.{missing}")
    assert found.abs().max() <= 1
    assert torch.equal(found, torch.zeros_like(new)) if missing.endswith("bias") else found.std() > 0.01


@support.enough_over(support.EVERY)
def test_a_layer_is_never_split_over_devices(pair):
    model = support.tiny(pair).model
    layers = {type(module).__name__ for module in model.modules() if isinstance(module, models.TransformerLayer)}
    assert set(model._no_split_modules) == layers


@support.over(support.ONE_OF_EACH)
def test_a_checkpoint_in_pieces_is_the_same(pair, tmp_path: Path):
    subject = support.tiny(pair)
    subject.copy().save_pretrained(tmp_path, max_shard_size="20KB")
    pieces = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(set(pieces.values())) > 2
    settings = dict(output_loading_info=True, dtype="auto", low_cpu_mem_usage=True)
    model, info = AUTO[pair[1]].from_pretrained(tmp_path, **settings)
    assert not any(info.values())
    assert_same_weights(model, subject.model, "loaded = saved")
    assert_equal(subject.run(model), subject.run(), "loaded = saved")


@support.over(support.ONE_OF_EACH[:2])
def test_a_classifier_begins_with_the_body_of_a_language_model(pair, saved):
    for head in (models.ZooForSequenceClassification, models.ZooForTokenClassification):
        model, info = head.from_pretrained(saved, num_labels=3, output_loading_info=True, dtype="auto")
        assert {name.partition(".")[0] for name in info["missing_keys"]} <= {"classifier", "pooler"}
        assert torch.equal(model.get_input_embeddings().weight, support.tiny(pair).model.get_input_embeddings().weight)
        assert torch.isfinite(model.classifier.weight).all()


def test_weights_of_another_size_are_made_anew_only_if_that_is_asked_for(tmp_path: Path):
    support.single(("bert-style", "masked-lm")).save_pretrained(tmp_path)
    five = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    five.save_pretrained(tmp_path / "five")
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "five", num_labels=7)
    seven, info = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "five", num_labels=7, ignore_mismatched_sizes=True, output_loading_info=True
    )
    assert {key for key, *_ in info["mismatched_keys"]} == {"classifier.weight", "classifier.bias"}
    assert seven.classifier.out_features == 7
    assert torch.equal(seven.get_input_embeddings().weight, five.get_input_embeddings().weight)


@support.over(support.ONE_OF_EACH[::2])
def test_a_stack_of_an_encoder_decoder_loads_alone(pair, tmp_path: Path):
    subject = support.tiny(pair)
    for name in ("get_encoder", "get_decoder") if subject.stack == "encoder-decoder" else ("get_decoder",):
        stack = getattr(subject.copy(), name)()
        stack.save_pretrained(tmp_path / name)
        loaded, info = type(stack).from_pretrained(tmp_path / name, output_loading_info=True, dtype="auto")
        assert not info["missing_keys"]
        ids = subject.inputs()["input_ids"]
        assert_same_weights(loaded, stack, "loaded = saved")
        assert_equal(loaded(ids).last_hidden_state, stack(ids).last_hidden_state, "loaded = saved")


def test_a_configuration_is_left_as_it_was():
    config = zoo.config("marian-style@tiny", "seq2seq-lm")
    config.is_decoder = True
    model = models.ZooForConditionalGeneration(config)
    assert config.is_decoder
    assert model.config.stack == "encoder-decoder"
    assert model.config is model.model.config is model.model.encoder.config


@support.over(support.ONE_OF_EACH)
def test_loading_takes_no_random_number_for_weights_that_are_there(pair, saved):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    AUTO[pair[1]].from_pretrained(saved)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_body_class_loads_all_three_stacks(tmp_path: Path):
    for pair in support.ONE_OF_EACH:
        support.tiny(pair).copy().save_pretrained(tmp_path / pair[0])
        assert type(models.ZooModel.from_pretrained(tmp_path / pair[0])) is type(support.tiny(pair).model.model)


def torchao() -> TorchAoConfig:
    """Eight-bit weights by torchao."""
    return TorchAoConfig(pytest.importorskip("torchao.quantization").Int8WeightOnlyConfig())


def eight_bits() -> BitsAndBytesConfig:
    """Eight-bit matrix products by bitsandbytes."""
    pytest.importorskip("bitsandbytes")
    return BitsAndBytesConfig(load_in_8bit=True)


def four_bits() -> BitsAndBytesConfig:
    """Four-bit weights by bitsandbytes."""
    pytest.importorskip("bitsandbytes")
    return BitsAndBytesConfig(load_in_4bit=True)


@over(ASSORTED)
def test_the_head_is_kept_and_every_other_projection_is_not(pair):
    model = tiny(pair).model
    kept = get_keys_to_not_convert(model)
    assert "lm_head" in kept
    linear = {name for name, module in model.model.named_modules() if type(module) is nn.Linear}
    assert not any(name.startswith(tuple(kept)) for name in (f"model.{name}" for name in linear))


@over(ONE_OF_EACH)
@pytest.mark.parametrize(("quantised", "least"), [(torchao, 0.99), (eight_bits, 0.95), (four_bits, 0.6)])
def test_quantised_weights_give_nearly_the_same_logits(pair, quantised, least, tmp_path: Path):
    config = quantised()
    model = single(pair)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, quantization_config=config)
    types = {type(module) for name, module in loaded.named_modules() if name.endswith("q_proj")}
    weights = {type(parameter) for name, parameter in loaded.named_parameters() if name.endswith("q_proj.weight")}
    assert types != {nn.Linear} or weights != {nn.Parameter}
    plain, changed = (tiny(pair).run(one).float().flatten() for one in (model, loaded))
    assert torch.corrcoef(torch.stack([plain, changed]))[0, 1] > least
