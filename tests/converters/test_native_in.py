"""Checkpoints of transformers' own classes become models of the zoo with the same outputs."""

import json
import warnings

import pytest
import torch
import transformers
from native_models import (
    ENCODER,
    GPT2,
    LLAMA,
    NATIVE_CASES,
    OPT,
    ROBERTA,
    T5,
    largest_difference,
    native_model,
    outputs,
)
from safetensors.torch import load_file, save_file

import zoo
from zoo.converters.errors import (
    ConversionError,
    LostInputWarning,
    NotConvertibleError,
    NotFiniteWarning,
    UnknownConverterError,
)
from zoo.converters.native.base import UnknownNativeError
from zoo.converters.native.tokenizer import carry_tokenizer
from zoo.errors import UnknownOverrideError


@pytest.mark.parametrize("case", NATIVE_CASES)
def test_same_outputs(case):
    native = native_model(*NATIVE_CASES[case])
    model = zoo.convert(native)
    assert model.dtype == torch.float64
    assert not model.training
    # These compute some things in float32 even in a float64 model: norms, tables of sines, softmax.
    partly_single = case.startswith(("Llama", "Mistral", "Qwen", "T5", "Marian", "Pegasus", "XLM-"))
    assert largest_difference(outputs(native), outputs(model)) < (1e-5 if partly_single else 1e-10)


@pytest.mark.parametrize("case", ["Bert-0-ForMaskedLM", "GPT2-0-LMHeadModel", "Llama-0-ForCausalLM", "Bart-0-Model"])
def test_same_outputs_in_float32(case):
    native = native_model(*NATIVE_CASES[case], dtype=torch.float32)
    assert largest_difference(outputs(native), outputs(zoo.convert(native))) < 1e-5


@pytest.mark.parametrize(
    "case",
    [
        "Bert-0-ForMaskedLM",
        "Roberta-0-ForSequenceClassification",
        "MegatronBert-0-Model",
        "GPT2-0-LMHeadModel",
        "Qwen3-0-ForCausalLM",
        "OPT-0-ForCausalLM",
        "T5-0-ForConditionalGeneration",
        "T5-1-ForConditionalGeneration",
        "Bart-0-ForConditionalGeneration",
        "Marian-1-MTModel",
        "Pegasus-0-ForConditionalGeneration",
    ],
)
def test_from_a_folder(case, tmp_path):
    native = native_model(*NATIVE_CASES[case], dtype=torch.float32)
    native._keys_to_ignore_on_save = None
    native.save_pretrained(tmp_path, max_shard_size="20KB")
    model = zoo.convert(tmp_path)
    assert largest_difference(outputs(native), outputs(model)) < 1e-5
    model.save_pretrained(tmp_path / "zoo")
    assert torch.equal(outputs(zoo.load(tmp_path / "zoo")), outputs(model))


def test_a_live_model_keeps_its_weights():
    native = native_model("GPT2", "LMHeadModel", GPT2)
    before = native.transformer.wte.weight.clone()
    with torch.no_grad():
        zoo.convert(native).model.embed_tokens.weight.zero_()
    assert torch.equal(native.transformer.wte.weight, before)


def test_task_may_be_chosen(tmp_path):
    native = native_model("Bert", "ForMaskedLM", ENCODER)
    native.save_pretrained(tmp_path)
    body = zoo.convert(tmp_path, task="feature-extraction")
    ids = torch.randint(3, 17, (2, 5))
    assert largest_difference(native.bert(ids).last_hidden_state, body(ids).last_hidden_state) < 1e-12


def test_computed_positions_are_recognised():
    native = native_model(*NATIVE_CASES["Marian-0-MTModel"])
    assert zoo.convert(native).config.position == "sinusoidal-halves"
    with torch.no_grad():
        native.model.encoder.embed_positions.weight[3, 2] += 0.1
    assert zoo.convert(native).config.position == "learned"


def test_generation_settings_are_carried_over():
    native = native_model("GPT2", "LMHeadModel", GPT2)
    native.generation_config.max_new_tokens = 5
    ids = torch.randint(3, 17, (2, 4))
    model = zoo.convert(native)
    assert torch.equal(native.generate(ids, do_sample=False), model.generate(ids, do_sample=False))


def test_labels_are_carried_over():
    settings = {**ENCODER, "id2label": {0: "no", 1: "yes", 2: "perhaps"}, "label2id": {"no": 0, "yes": 1, "perhaps": 2}}
    model = zoo.convert(native_model("Bert", "ForSequenceClassification", settings))
    assert model.config.id2label == settings["id2label"]
    assert model.config.num_labels == 3


def test_half_precision_is_kept(tmp_path):
    native = native_model("Llama", "ForCausalLM", LLAMA, dtype=torch.bfloat16)
    native.save_pretrained(tmp_path)
    assert zoo.convert(tmp_path).dtype == torch.bfloat16


def test_tokenizer_files_are_carried_over(tmp_path):
    from tokenizers import Tokenizer, models

    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")), unk_token="[UNK]"
    )
    words.save_pretrained(tmp_path / "from")
    assert "tokenizer.json" in carry_tokenizer(tmp_path / "from", tmp_path / "to")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "to").get_vocab() == words.get_vocab()


@pytest.mark.parametrize(
    ("family", "head", "settings", "says"),
    [
        ("OPT", "ForCausalLM", {**OPT, "word_embed_proj_dim": 8}, "word_embed_proj_dim=8"),
        ("GPT2", "LMHeadModel", {**GPT2, "scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("Bert", "LMHeadModel", {**ENCODER, "is_decoder": True}, "BertLMHeadModel"),
        ("Bert", "Model", {**ENCODER, "is_decoder": True}, "is_decoder=True"),
        ("Roberta", "ForMaskedLM", {**ROBERTA, "hidden_act": "relu"}, "hidden_act='relu'"),
        ("T5", "EncoderModel", T5, "T5EncoderModel"),
        ("Bert", "ForQuestionAnswering", ENCODER, "ForQuestionAnswering"),
    ],
)
def test_what_the_zoo_lacks_is_refused(family, head, settings, says):
    with pytest.raises(NotConvertibleError, match=says):
        zoo.convert(native_model(family, head, settings))


def test_unknown_classes_are_refused_with_the_nearest():
    with pytest.raises(UnknownNativeError, match="llama"):
        zoo.convert(transformers.GemmaForCausalLM(transformers.GemmaConfig(**LLAMA, head_dim=4)))
    with pytest.raises(UnknownConverterError, match="did you mean 'marian'"):
        zoo.convert({"x": torch.zeros(1)}, "marain")


def test_hints_are_for_other_checkpoints():
    with pytest.raises(
        UnknownOverrideError, match="'quirks' of a conversion of transformers' own classes; valid: task"
    ):
        zoo.convert(native_model("Bert", "Model", ENCODER), quirks=())


def test_wrong_origin_is_refused(tmp_path):
    native_model("Bert", "Model", ENCODER).save_pretrained(tmp_path)
    with pytest.raises(ConversionError, match="origin='gpt2' was given, but .* is bert"):
        zoo.convert(tmp_path, "gpt2")


def test_missing_weights_are_named(tmp_path):
    native_model("GPT2", "LMHeadModel", GPT2).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["transformer.h.1.attn.c_attn.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ConversionError, match=r"lacks weights .*h\.1\.attn\.c_attn\.weight"):
        zoo.convert(tmp_path)


def test_broken_folders_are_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-model"}))
    with pytest.raises(ConversionError, match="no configuration that transformers reads"):
        zoo.convert(tmp_path)


def test_nan_weights_are_reported():
    native = native_model("GPT2", "LMHeadModel", GPT2)
    with torch.no_grad():
        native.transformer.h[0].ln_1.weight[0] = float("nan")
    with pytest.warns(NotFiniteWarning, match="ln_1"):
        zoo.convert(native)


def test_lost_token_types_are_reported():
    native = native_model("Bert", "Model", ENCODER)
    with pytest.warns(LostInputWarning, match="no token types: .* has 2 types"):
        zoo.convert(native)
    with torch.no_grad():
        native.embeddings.token_type_embeddings.weight[1] = native.embeddings.token_type_embeddings.weight[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostInputWarning)
        zoo.convert(native)


def test_shared_code_is_reported():
    with pytest.warns(LostInputWarning, match="the way back from the zoo is 'roberta', whose code 'camembert' shares"):
        zoo.convert(native_model("Camembert", "Model", {**ROBERTA, "type_vocab_size": 1}))
