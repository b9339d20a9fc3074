"""Conversions of the five documents: sniffing, hints, round trips, files, and everything that may be wrong."""

import warnings
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from oracles import d2l, explicando, nlpt, odom, vanilla
from oracles.weights import part
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
from transformers.utils import logging

import zoo
from zoo.base.errors import ConfigError, UnknownOverrideError, UnknownQuirkError
from zoo.converters import CONVERTERS, convert_back, errors, sniff
from zoo.models import ZooEncoder, ZooForCausalLM, ZooForConditionalGeneration, ZooForSequenceClassification

pytestmark = pytest.mark.thorough

VANILLA = dict(num_attention_heads=3, pad_token_id=1)
EXPLICANDO = dict(num_attention_heads=3, decoder_attention_heads=2)
HEADS = dict(num_attention_heads=3)
CHARACTERS = dict(input_characters="abcdefghi", output_characters="zyxwvut")
SEQ2SEQ, CLASSIFIER = ZooForConditionalGeneration, ZooForSequenceClassification
CASES = {
    "vanilla": (vanilla.random_state_dict, dict(**VANILLA, decoder_pad_token_id=2), SEQ2SEQ),
    "vanilla classifier": (vanilla.random_classifier_state_dict, VANILLA, CLASSIFIER),
    "odom": (odom.random_state_dict, {}, SEQ2SEQ),
    "nlpt": (nlpt.random_state_dict, {}, ZooEncoder),
    "nlpt classifier": (nlpt.random_classifier_state_dict, {}, CLASSIFIER),
    "d2l": (d2l.random_state_dict, HEADS, SEQ2SEQ),
    "d2l with biases": (partial(d2l.random_state_dict, use_bias=True), HEADS, SEQ2SEQ),
    "d2l encoder": (lambda **given: part(d2l.random_state_dict(**given), "encoder"), HEADS, ZooEncoder),
    "d2l decoder": (lambda **given: part(d2l.random_state_dict(**given), "decoder"), HEADS, ZooForCausalLM),
    "explicando": (explicando.random_state_dict, {**EXPLICANDO, **CHARACTERS}, SEQ2SEQ),
}
"""Weights, hints and a class, by the name of the format with what is special."""


@pytest.fixture(params=CASES)
def case(request):
    make, hints, model_class = CASES[request.param]
    origin = request.param.partition(" ")[0]
    return SimpleNamespace(origin=origin, make=make, hints=hints, model_class=model_class, name=request.param)


def convert_vanilla(source, **more):
    return zoo.convert(source, **CASES["vanilla"][1], **more)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_round_trip_is_bit_exact(case, dtype):
    weights = case.make(seed=3, dtype=dtype)
    model = zoo.convert(weights, case.origin, **case.hints, keep_dead=True)
    assert model.dtype == dtype
    back = convert_back(model)
    assert back.keys() == weights.keys()
    for key, value in weights.items():
        assert back[key].dtype == dtype
        assert torch.equal(back[key], value), key


def test_without_keep_dead_only_dead_keys_are_zero_on_the_way_back():
    weights = vanilla.random_state_dict()
    back = convert_back(convert_vanilla(weights))
    assert back.keys() == weights.keys()
    dead = vanilla.dead_keys(weights)
    assert all(torch.equal(back[key], weights[key]) for key in weights.keys() - dead)
    assert all(back[key].count_nonzero() == 0 and back[key].shape == weights[key].shape for key in dead)


def test_the_format_is_recognised_and_a_saved_model_reloads_and_goes_back_bit_exact(case, tmp_path):
    weights = case.make()
    assert sniff(weights) == case.origin
    model = zoo.convert(weights, **case.hints, keep_dead=True)
    assert type(model) is case.model_class and not model.training
    assert model.config.variant == CONVERTERS.get(case.origin).variant
    model.save_pretrained(tmp_path)
    again = zoo.load(tmp_path, dtype="auto")
    assert type(again) is case.model_class
    assert all(torch.equal(value, weights[key]) for key, value in convert_back(again).items())
    auto = {"d2l decoder": AutoModelForCausalLM, "vanilla": AutoModelForSeq2SeqLM}.get(case.name)
    if auto is not None:
        assert type(auto.from_pretrained(tmp_path)) is case.model_class


def test_no_progress_is_drawn_of_what_is_in_memory(capfd):
    logging.enable_progress_bar()
    try:
        convert_vanilla(vanilla.random_state_dict())
        assert logging.is_progress_bar_enabled() and capfd.readouterr().err == ""
    finally:
        logging.disable_progress_bar()


def test_weights_are_copied():
    weights = vanilla.random_state_dict()
    model = convert_vanilla(weights)
    before = weights["encoder.tok_emb.weight"].clone()
    with torch.no_grad():
        model.model.encoder.embed_tokens.weight.zero_()
    assert torch.equal(weights["encoder.tok_emb.weight"], before)
    convert_back(model)["decoder.fc.bias"].fill_(7)
    assert not torch.equal(model.lm_head.bias, torch.full_like(model.lm_head.bias, 7))


def test_files_give_the_same_model(case, tmp_path):
    weights = case.make()
    save_file({key: value.clone() for key, value in weights.items()}, tmp_path / "model.safetensors")
    torch.save(weights, tmp_path / "model.pt")
    torch.save({"model_state_dict": weights, "epoch": 3}, tmp_path / "nested.pt")
    expected = zoo.convert(weights, **case.hints)
    for path in sorted(tmp_path.iterdir()) if case.name in ("vanilla", "odom") else [tmp_path / "model.safetensors"]:
        for found, wanted in zip(zoo.convert(path, **case.hints).parameters(), expected.parameters(), strict=True):
            assert torch.equal(found, wanted)


class Nested(torch.nn.Module):
    """A live module with given keys in its state_dict."""

    def __init__(self, tensors):
        super().__init__()
        for key, value in tensors.items():
            *path, name = key.split(".")
            module = self
            for step in path:
                if step not in module._modules:
                    module.add_module(step, torch.nn.Module())
                module = module._modules[step]
            module.register_parameter(name, torch.nn.Parameter(value))


def test_live_modules_are_converted_and_asked():
    module = Nested(vanilla.random_state_dict())
    with pytest.raises(errors.MissingHintError, match="num_attention_heads"):
        zoo.convert(module)  # it does not answer
    module.encoder.dropout = torch.nn.Dropout(0.25)
    module.encoder.blocks.__class__ = type(
        "Blocks", (torch.nn.Module,), {"__getitem__": lambda self, i: self._modules[str(i)]}
    )
    module.encoder.blocks[0].attention.n_heads = 3
    module.src_pad_idx, module.trg_pad_idx = 1, 2
    config = zoo.convert(module).config
    assert (config.num_attention_heads, config.pad_token_id, config.decoder_pad_token_id) == (3, 1, 2)
    assert (config.dropout, config.attention_dropout, config.activation_dropout) == (0.25, 0.25, 0.25)
    assert zoo.convert(module, num_attention_heads=4).config.num_attention_heads == 4


def test_sizes_are_read_off_the_shapes():
    weights = explicando.random_state_dict(
        n_encoder_layers=1, n_decoder_layers=4, encoder_hidden_dim=10, decoder_hidden_dim=14, in_vocab_size=6
    )
    config = zoo.convert(weights, **EXPLICANDO, input_characters=None, output_characters=None).config
    assert (config.num_hidden_layers, config.decoder_layers) == (1, 4)
    assert (config.intermediate_size, config.decoder_intermediate_size) == (10, 14)
    assert (config.vocab_size, config.decoder_vocab_size, config.hidden_size) == (9, 7, 12)
    config = zoo.convert(odom.random_state_dict(num_heads=5, model_dim=3)).config
    assert (config.num_attention_heads, config.head_dim, config.hidden_size) == (5, 1, 3)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("vanilla", ("num_attention_heads", "pad_token_id", "decoder_pad_token_id")),
        ("vanilla classifier", ("num_attention_heads", "pad_token_id")),
        ("d2l", ("num_attention_heads",)),
        ("explicando", ("num_attention_heads", "decoder_attention_heads", "input_characters", "output_characters")),
    ],
)
def test_settings_that_no_shape_shows_are_asked_for_by_name(name, asked):
    with pytest.raises(errors.MissingHintError) as caught:
        zoo.convert(CASES[name][0]())
    assert caught.value.missing == asked
    assert all(f"{hint}=..." in str(caught.value) for hint in asked)


SEQ2SEQ_HINTS, TEXT = CASES["vanilla"][1], dict(**EXPLICANDO, input_characters="ab", output_characters=None)
LAYERS = "num_hidden_layers=5 was given, but this checkpoint has num_hidden_layers=2"
QUIRK = dict(**SEQ2SEQ_HINTS, quirks=("max-pool-padding",))
FEW = "input_characters has 2 characters, but this checkpoint has 9"
MISSPELT, ONE = dict(num_atention_heads=3), torch.zeros(1)


@pytest.mark.parametrize(
    ("source", "hints", "error", "message"),
    [
        (nlpt.random_state_dict, MISSPELT, UnknownOverrideError, "did you mean 'num_attention_heads'"),
        (nlpt.random_state_dict, dict(task="masked-lm"), errors.ConversionError, "task='masked-lm' was given"),
        (vanilla.random_state_dict, dict(**SEQ2SEQ_HINTS, num_hidden_layers=5), errors.ConversionError, LAYERS),
        (d2l.random_state_dict, dict(num_attention_heads=5), ConfigError, "does not divide"),
        (vanilla.random_state_dict, QUIRK, UnknownQuirkError, "did you mean 'max-pools-padding'"),
        (explicando.random_state_dict, TEXT, errors.ConversionError, FEW),
        # Formats
        (dict(foo=ONE), {}, errors.UnknownFormatError, r"no format has the keys foo.*--from on the command line"),
        (vanilla.random_state_dict, dict(origin="vanila"), errors.UnknownConverterError, "did you mean 'vanilla'"),
        ({}, {}, errors.ConversionError, "holds no tensors"),
        (3, {}, errors.ConversionError, "a int was given"),
        (dict(w=ONE, epoch=3), {}, errors.ConversionError, "no tensors: epoch"),
    ],
)
def test_wrong_hints_and_unknown_formats_are_refused(source, hints, error, message):
    with pytest.raises(error, match=message):
        zoo.convert(source() if callable(source) else source, **hints)


def test_unknown_missing_and_misshapen_keys_are_all_listed():
    weights = vanilla.random_state_dict()
    weights["decoder.blocks.1.norm_1.wieght"] = weights.pop("decoder.blocks.1.norm_1.weight")
    del weights["encoder.blocks.0.attention.keys.bias"]
    weights["decoder.fc.bias"] = torch.zeros(4, dtype=torch.float64)
    weights["decoder.blocks.0.norm_3.bias"] = torch.zeros(5, dtype=torch.float64)
    with pytest.raises(errors.CheckpointKeysError) as caught:
        convert_vanilla(weights)
    assert caught.value.unknown == ("decoder.blocks.1.norm_1.wieght",)
    assert caught.value.missing == ("decoder.blocks.1.norm_1.weight", "encoder.blocks.0.attention.keys.bias")
    assert caught.value.misshapen == ("decoder.blocks.0.norm_3.bias", "decoder.fc.bias")
    assert "keys do not fit a vanilla checkpoint" in str(caught.value)


def test_a_missing_key_that_sizes_are_read_from_is_listed():
    weights = vanilla.random_state_dict()
    del weights["encoder.pos_emb.weight"]
    with pytest.raises(errors.CheckpointKeysError, match=r"missing \(1\): encoder.pos_emb.weight"):
        convert_vanilla(weights)


def test_disagreeing_aliases_are_refused():
    weights = dict(odom.random_state_dict())
    key = "encoders.2.attention_layer.sublayer.attention_heads.1.v_linear_layer.bias"
    weights[key] = weights[key] + 1
    with pytest.raises(errors.ConversionError, match="names of one tensor, but their values differ"):
        zoo.convert(weights)


def test_norms_over_time_are_refused():
    weights = d2l.random_state_dict(encoder_norm_shape=(9, 12), decoder_norm_shape=(7, 12))
    with pytest.raises(errors.ConversionError, match="norm_shape was several dimensions"):
        zoo.convert(weights, num_attention_heads=3)


def test_models_that_compute_something_else_do_not_go_back():
    model = convert_vanilla(vanilla.random_state_dict(), quirks=("max-pools-padding",))
    with pytest.raises(errors.NotConvertibleError, match="the quirk scores-scaled-by-model-width is off"):
        convert_back(model)
    with pytest.raises(errors.NotConvertibleError, match="hidden_act is 'gelu' instead of 'relu'"):
        convert_back(zoo.build("vanilla@tiny", faithful=True, hidden_act="gelu", vocab_size=10))
    with pytest.raises(errors.NotConvertibleError, match="variant 'pre-norm' has no original"):
        convert_back(zoo.build("pre-norm@tiny", "masked-lm", vocab_size=10))
    with pytest.raises(errors.NotConvertibleError, match="variant 'd2l-style' instead of 'vanilla'"):
        convert_back(zoo.build("d2l-style@tiny", faithful=True, vocab_size=10), "vanilla")


def test_new_faithful_models_go_back():
    model = zoo.build("vanilla@tiny", faithful=True, vocab_size=10, seed=0)
    weights = convert_back(model)
    again = zoo.convert(weights, num_attention_heads=4, pad_token_id=0, decoder_pad_token_id=0)
    ids = torch.randint(1, 10, (2, 5))
    assert torch.equal(
        again(input_ids=ids, decoder_input_ids=ids).logits, model(input_ids=ids, decoder_input_ids=ids).logits
    )


def test_nan_is_reported():
    weights = nlpt.random_state_dict()
    weights["layers.0.layer_norm_1.bias"][0] = float("nan")
    with pytest.warns(errors.NotFiniteWarning, match=r"layers\.0\.layer_norm_1\.bias"):
        model = zoo.convert(weights)
    assert all(torch.equal(value.isnan(), weights[key].isnan()) for key, value in convert_back(model).items())
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.NotFiniteWarning)
        zoo.convert(nlpt.random_state_dict())
