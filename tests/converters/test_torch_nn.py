"""PyTorch's own Transformer modules, and weights as training scripts save them: below prefixes, or without settings."""

import re
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

import zoo
from zoo.converters import convert_back, sniff
from zoo.converters.errors import (
    CheckpointKeysError,
    ConversionError,
    MissingHintError,
    NotConvertibleError,
    UnknownFormatError,
)
from zoo.converters.native import NATIVE

HINTS = dict(num_attention_heads=3, hidden_act="gelu")


def transformer(norm_first=False, bias=True, activation="gelu"):
    options = dict(dim_feedforward=20, activation=activation, norm_first=norm_first, bias=bias, batch_first=True)
    module = nn.Transformer(12, 3, 2, 1, dtype=torch.float64, **options).eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4 + 0.1
    return module


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(1)
    source = torch.randn(2, 5, 12, generator=generator, dtype=torch.float64)
    target = torch.randn(2, 4, 12, generator=generator, dtype=torch.float64)
    causal = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64)
    return source, target, torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]), causal


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_all_three_classes(norm_first, bias, inputs, tmp_path):
    source, target, mask, causal = inputs
    module = transformer(norm_first, bias)
    model = zoo.convert(module)
    given = dict(inputs_embeds=source, attention_mask=mask)
    padding = dict(src_key_padding_mask=mask == 0, memory_key_padding_mask=mask == 0)
    expected = module(source, target, tgt_mask=causal, **padding)
    assert torch.allclose(model(**given, decoder_inputs_embeds=target).last_hidden_state, expected, atol=1e-12)

    encoder = zoo.convert(module.encoder)
    expected = module.encoder(source, src_key_padding_mask=mask == 0)
    real = mask.bool()
    assert torch.allclose(encoder(**given).last_hidden_state[real], expected[real], atol=1e-12)

    torch.save(module.decoder.state_dict(), tmp_path / "decoder.pt")
    decoder = zoo.convert(tmp_path / "decoder.pt", norm_placement="pre" if norm_first else "post", **HINTS)
    expected = module.decoder(target, source, tgt_mask=causal, memory_key_padding_mask=mask == 0)
    memory = dict(encoder_hidden_states=source, encoder_attention_mask=mask)
    assert torch.allclose(decoder(inputs_embeds=target, **memory).last_hidden_state, expected, atol=1e-12)

    for original, converted in ((module, model), (module.encoder, encoder), (module.decoder, decoder)):
        converted.save_pretrained(tmp_path / "saved")
        back = convert_back(zoo.load(tmp_path / "saved", dtype="auto"), "torch-nn")
        weights = original.state_dict()
        assert back.keys() == weights.keys()
        assert all(torch.equal(back[key], value) for key, value in weights.items())


def test_settings_that_the_file_lacks_are_asked_for():
    weights = transformer().state_dict()
    assert sniff(weights) == "torch-nn"
    with pytest.raises(MissingHintError, match=r"num_attention_heads \(nhead\), norm_placement .*, hidden_act"):
        zoo.convert(weights)
    odd = transformer(activation=torch.tanh)
    with pytest.raises(MissingHintError, match="does not have hidden_act"):
        zoo.convert(odd)
    assert zoo.convert(odd, hidden_act="tanh").config.hidden_act == "tanh"
    with pytest.raises(NotConvertibleError, match="norm_placement is 'sandwich', it has 'pre' or 'post'"):
        zoo.convert(weights, norm_placement="sandwich", **HINTS)
    with pytest.raises(NotConvertibleError, match="position is 'rotary', it has 'none'"):
        zoo.convert(weights, norm_placement="post", position="rotary", **HINTS)


def test_layers_that_differ_are_refused():
    other = nn.TransformerDecoder(nn.TransformerDecoderLayer(12, 2, 20, layer_norm_eps=1e-2), 1, norm=nn.LayerNorm(12))
    with pytest.raises(ConversionError, match="layer_norm_eps is not the same in all layers: 0.01, 1e-05"):
        zoo.convert(other)
    other.norm = None
    module = nn.Transformer(12, 3, 1, 1, 20, custom_decoder=other)
    with pytest.raises(ConversionError, match="num_attention_heads is not the same in all layers: 2, 3"):
        zoo.convert(module)
    changes = {"norm2.eps": "layer_norm_eps", "dropout2.p": "dropout", "multihead_attn.dropout": "attention_dropout"}
    for place, setting in changes.items():
        module = transformer()
        part, _, name = place.partition(".")
        setattr(getattr(module.decoder.layers[0], part), name, 0.25)
        with pytest.raises(ConversionError, match=f"^{setting} is not the same in all layers: "):
            zoo.convert(module)


@pytest.mark.parametrize("place", ["norm", "layers.0.norm2"])
def test_norms_of_another_kind_are_refused(place):
    module = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(12, 2, 20, bias=False), 1, norm=nn.LayerNorm(12, bias=False)
    )
    module.set_submodule(place, nn.RMSNorm(12, eps=1e-5))
    with pytest.raises(ConversionError, match=f"{place} is RMSNorm, only LayerNorm can be converted"):
        zoo.convert(module)


def test_keys_that_do_not_fit_are_listed():
    weights = transformer().state_dict()
    weights["encoder.layers.0.linear3.weight"] = weights.pop("encoder.layers.0.linear2.weight")
    with pytest.raises(CheckpointKeysError, match=r"unknown \(1\): encoder.layers.0.linear3.weight"):
        zoo.convert(weights, norm_placement="post", **HINTS)
    halved = {key: value for key, value in transformer().state_dict().items() if key.startswith("encoder.")}
    with pytest.raises(CheckpointKeysError, match=r"missing \(1\): decoder.layers.0"):
        zoo.convert(halved, norm_placement="post", **HINTS)


@pytest.mark.parametrize(
    ("name", "task", "settings", "message"),
    [
        ("post-norm", "feature-extraction", {}, "embedding_norm is True"),
        ("pre-norm", "masked-lm", dict(position="none"), "ZooForMaskedLM has a head"),
        ("pre-norm", "feature-extraction", dict(position="rotary"), "position is 'rotary', it has 'none'"),
    ],
)
def test_what_it_does_not_compute_does_not_go_back(name, task, settings, message):
    sizes = dict(vocab_size=5, hidden_size=8, num_attention_heads=2, intermediate_size=8, num_hidden_layers=1)
    with pytest.raises(NotConvertibleError, match=message):
        convert_back(zoo.build(name, task, **sizes, **settings), "torch-nn")


PREFIXED = {"num_attention_heads": 2, "norm_placement": "post", "hidden_act": "relu"}
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
    bare = zoo.convert(weights, origin, **PREFIXED).state_dict()
    found = zoo.convert({f"{prefix}{key}": value for key, value in weights.items()}, origin, **PREFIXED).state_dict()
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
        zoo.convert(weights, origin, **PREFIXED)
    assert zoo.convert(weights, "torch-nn", prefix="transformer.", **PREFIXED).config.hidden_size == 16
    with pytest.raises(
        ConversionError, match="no key .* begins with 'body.'; they begin with src_embed., transformer."
    ):
        zoo.convert(weights, "torch-nn", prefix="body", **PREFIXED)


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
