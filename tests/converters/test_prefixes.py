"""Weights as training scripts save them: below prefixes, next to other weights, or without their configuration."""

import re
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

import zoo
from zoo.converters import sniff
from zoo.converters.errors import ConversionError, UnknownFormatError
from zoo.converters.native import NATIVE

HINTS = {"num_attention_heads": 2, "norm_placement": "post", "hidden_act": "relu"}
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50}


def torch_weights() -> dict[str, torch.Tensor]:
    return nn.Transformer(16, 2, 1, 1, 32, batch_first=True).state_dict()


def bert_weights() -> dict[str, torch.Tensor]:
    return transformers.BertModel(transformers.BertConfig(**SIZES)).state_dict()


@pytest.mark.parametrize(
    "prefix", ["", "module.", "_orig_mod.", "_orig_mod.module.", "model.", "transformer.", "net.body."]
)
@pytest.mark.parametrize("origin", [None, "torch-nn"])
def test_a_prefix_of_all_keys_is_left_out(prefix: str, origin: str | None) -> None:
    weights = torch_weights()
    bare = zoo.convert(weights, origin, **HINTS).state_dict()
    found = zoo.convert({f"{prefix}{key}": value for key, value in weights.items()}, origin, **HINTS).state_dict()
    assert found.keys() == bare.keys()
    assert all(torch.equal(found[key], bare[key]) for key in bare)


def test_a_wrapped_module_is_asked_for_its_settings() -> None:
    module = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    assert zoo.convert(nn.DataParallel(module)).config.num_attention_heads == 2
    assert zoo.convert(torch.compile(module)).config.num_attention_heads == 2


@pytest.mark.parametrize("origin", [None, "torch-nn"])
def test_a_prefix_of_some_keys_is_proposed(origin: str | None) -> None:
    weights = {f"transformer.{key}": value for key, value in torch_weights().items()}
    weights["src_embed.weight"] = torch.zeros(5, 16)
    proposal = "--from torch-nn --prefix transformer."
    with pytest.raises(UnknownFormatError, match=rf"1 others \(src_embed.weight\).*{re.escape(proposal)}$"):
        zoo.convert(weights, origin, **HINTS)
    assert zoo.convert(weights, "torch-nn", prefix="transformer.", **HINTS).config.hidden_size == 16
    with pytest.raises(
        ConversionError, match="no key .* begins with 'body.'; they begin with src_embed., transformer."
    ):
        zoo.convert(weights, "torch-nn", prefix="body", **HINTS)


@pytest.mark.parametrize("prefix", ["", "module.", "bert.", "model.bert."])
def test_weights_without_a_configuration_name_their_format(prefix: str, tmp_path: Path) -> None:
    weights = {f"{prefix}{key}": value for key, value in bert_weights().items()}
    with pytest.raises(UnknownFormatError, match="weights of transformers' bert, .*--from bert"):
        zoo.convert(weights)
    with pytest.raises(UnknownFormatError, match="weights of transformers' bert, but no configuration"):
        zoo.convert(weights, "bert")
    torch.save(weights, tmp_path / "model.pt")
    transformers.BertConfig(**SIZES).save_pretrained(tmp_path)
    with pytest.raises(UnknownFormatError, match=f"convert the folder, {tmp_path}, which has one"):
        zoo.convert(tmp_path / "model.pt")


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_wrapped_weights_with_a_configuration_are_converted(prefix: str, tmp_path: Path) -> None:
    torch.save({f"{prefix}{key}": value for key, value in bert_weights().items()}, tmp_path / "pytorch_model.bin")
    transformers.BertConfig(**SIZES, architectures=["BertModel"]).save_pretrained(tmp_path)
    assert zoo.convert(tmp_path).config.variant == NATIVE.get("bert").variant


def test_keys_of_no_format_are_not_taken_for_one() -> None:
    with pytest.raises(UnknownFormatError, match="no format has the keys"):
        sniff(["transformer.weights", "layers.0.weight"])
