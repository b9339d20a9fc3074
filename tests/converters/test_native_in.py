"""Checkpoints of transformers' own classes become models of the zoo with the same outputs."""

import json

import pytest
import torch
import transformers
from native_dense import MODERN_BERT
from native_families import FAMILY_CASES
from native_models import (
    EACH_NATIVE,
    ENCODER,
    GPT2,
    LLAMA,
    NATIVE_CASES,
    OPT,
    ROBERTA,
    XLM,
    batch,
    largest_difference,
    native_model,
    outputs,
)
from safetensors.torch import load_file, save_file

import zoo
from zoo.base.errors import TokenIdError, UnknownOverrideError
from zoo.converters.errors import (
    ConversionError,
    DifferentOutputsError,
    LostInputWarning,
    NoCounterpartError,
    NotComparedWarning,
    NotFiniteWarning,
    UnknownConverterError,
)
from zoo.converters.native import comparing
from zoo.converters.native.declared import NATIVE, UnknownNativeError
from zoo.converters.native.families.bart import Opt
from zoo.converters.native.families.llama import Llama
from zoo.models import RotaryPosition
from zoo.models.choices import Pooling
from zoo.models.transformer import POOLERS

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("case", EACH_NATIVE)
def test_same_outputs(case):
    native = native_model(*NATIVE_CASES[case])
    model = zoo.convert(native)
    assert model.dtype == torch.float64
    assert not model.training
    # These compute some things in float32 even in a float64 model: norms, tables of sines, softmax.
    partly_single = case.startswith(("Llama", "Mistral", "Qwen", "T5", "MT5", "Marian", "Pegasus", "XLM-"))
    for side in ("right", "left"):
        given = batch(native.config, side)
        ours, theirs = outputs(model, given), outputs(native, given)
        if model.config.classifier_pooling == "cls" and "ForSequenceClassification" in case and side == "left":
            ours, theirs = ours[:1], theirs[:1]  # the native heads read padding in the others
        assert largest_difference(ours, theirs) < (1e-5 if partly_single else 1e-10), side


IN_FILES = ("Bert-0-ForMaskedLM", "Roberta-0-ForSequenceClassification", "MegatronBert-0-Model", "Marian-1-MTModel")
DECODERS = ("GPT2-0-LMHeadModel", "Qwen3-0-ForCausalLM", "OPT-0-ForCausalLM")
BOTH = [f"{family}-ForConditionalGeneration" for family in ("T5-0", "T5-1", "Bart-0", "Pegasus-0")]


@pytest.mark.parametrize("case", [*IN_FILES, *DECODERS, *BOTH])
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


@pytest.mark.parametrize("family", ["Bert", "Roberta", "XLM"])
def test_classifiers_by_the_first_position_are_compared_with_padding_there(family, monkeypatch):
    sizes = {"Bert": ENCODER, "Roberta": ROBERTA, "XLM": XLM}[family]
    native = native_model(family, "ForSequenceClassification", sizes)
    zoo.convert(native)
    monkeypatch.setitem(POOLERS, Pooling.CLS, lambda hidden_states, attention_mask: hidden_states[:, 0])
    with pytest.raises(DifferentOutputsError, match="padded on the left"):
        zoo.convert(native)


def test_a_classifier_reads_a_prefix_as_berts_body_does():
    native = native_model("Bert", "ForSequenceClassification", ENCODER)
    ids = batch(native.config)["input_ids"]
    prefix = [tuple(torch.randn(2, len(ids), 4, 3, 4, dtype=torch.float64)) for _ in range(2)]
    settings = {"attention_mask": torch.ones(len(ids), 3 + ids.shape[1], dtype=torch.long)}
    with torch.no_grad():
        body = native.bert(ids, **settings, past_key_values=transformers.DynamicCache(prefix))
        got = zoo.convert(native)(ids, **settings, past_key_values=transformers.DynamicCache(prefix)).logits
        assert largest_difference(native.classifier(body.pooler_output), got) < 1e-10


def test_labels_are_carried_over():
    settings = {**ENCODER, "id2label": {0: "no", 1: "yes", 2: "perhaps"}, "label2id": {"no": 0, "yes": 1, "perhaps": 2}}
    model = zoo.convert(native_model("Bert", "ForSequenceClassification", settings))
    assert model.config.id2label == settings["id2label"]
    assert model.config.num_labels == 3


def test_a_configuration_that_names_no_class_asks_for_the_task(tmp_path):
    native_model("Bert", "ForMaskedLM", ENCODER).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": None}))
    with pytest.raises(
        ConversionError, match=r"names no architecture.*--set task=\.\.\.\), one of feature-extraction, masked"
    ):
        zoo.convert(tmp_path)
    assert type(zoo.convert(tmp_path, task="masked-lm")).__name__ == "ZooForMaskedLM"


def test_unknown_classes_are_refused_with_the_nearest():
    sizes = dict(vocab_size=23, hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(UnknownNativeError, match="unknown model type of transformers 'mamba'; valid: albert, .* more"):
        zoo.convert(transformers.MambaForCausalLM(transformers.MambaConfig(**sizes)))
    with pytest.raises(UnknownConverterError, match="did you mean 'marian'"):
        zoo.convert({"x": torch.zeros(1)}, "marain")


@pytest.mark.parametrize("wrap", [torch.compile, torch.nn.DataParallel])
def test_a_wrapped_model_is_taken_out(wrap):
    native = native_model("Llama", "ForCausalLM", LLAMA)
    inputs = batch(native.config)
    assert largest_difference(outputs(native, inputs), outputs(zoo.convert(wrap(native)), inputs)) < 1e-5


def test_models_of_the_zoo_need_no_conversion(tmp_path):
    model = zoo.build("llama-style@tiny", vocab_size=20)
    model.save_pretrained(tmp_path)
    for source in (model, tmp_path):
        with pytest.raises(ConversionError, match=r"it is a model of the zoo already; zoo\.load opens"):
            zoo.convert(source)


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
    lost = "transformer.h.1.attn.c_attn.weight"
    changed(tmp_path, lambda tensors: {name: one for name, one in tensors.items() if name != lost})
    with pytest.raises(ConversionError, match=r"lacks weights .*h\.1\.attn\.c_attn\.weight"):
        zoo.convert(tmp_path)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
def test_weights_in_8_bits_are_refused(dtype, tmp_path):
    name = "transformer.h.0.attn.c_attn.weight"
    native_model("GPT2", "LMHeadModel", GPT2).save_pretrained(tmp_path)
    changed(tmp_path, lambda tensors: {**tensors, name: tensors[name].to(getattr(torch, dtype))})
    with pytest.raises(ConversionError, match=rf"holds 1 weights in {dtype} \('{name}'"):
        zoo.convert(tmp_path)


def test_weights_of_a_live_model_in_8_bits_are_refused():
    native = native_model("GPT2", "LMHeadModel", GPT2)
    native.transformer.h[0].attn.c_attn.weight.data = native.transformer.h[0].attn.c_attn.weight.to(torch.float8_e4m3fn)
    with pytest.raises(
        ConversionError, match=r"holds 1 weights in float8_e4m3fn \('transformer.h.0.attn.c_attn.weight'"
    ):
        zoo.convert(native)


def test_what_generation_gives_no_positions_for_is_counted_alike():
    """OPT counts positions from the mask, also where a cache holds the padding."""
    native = native_model("OPT", "ForCausalLM", OPT)
    model = zoo.convert(native)
    given = batch(native.config, "left")
    steps = []
    for one in (native, model):
        cache = one(input_ids=given["input_ids"][:, :5], attention_mask=given["attention_mask"][:, :5]).past_key_values
        rest = {"input_ids": given["input_ids"][:, 5:], "attention_mask": given["attention_mask"]}
        steps.append(one(**rest, past_key_values=cache).logits)
    assert largest_difference(*steps) < 1e-10


def test_token_types_are_carried_over(tmp_path):
    native = native_model("Bert", "ForSequenceClassification", ENCODER, dtype=torch.float32)
    model = zoo.convert(native)
    given = batch(native.config)
    swapped = {**given, "token_type_ids": 1 - given["token_type_ids"]}
    assert largest_difference(outputs(model, given), outputs(model, swapped)) > 0.1
    zoo.export(model, tmp_path / "bert", fresh_process=False)
    back = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "bert")
    assert largest_difference(outputs(native, swapped), outputs(back, swapped)) < 1e-5
    with pytest.raises(TokenIdError, match="token type 2 at position"):
        model(**{**given, "token_type_ids": torch.full_like(given["token_type_ids"], 2)})


def test_a_model_that_is_read_wrongly_is_refused(monkeypatch):
    """Here an epsilon, in 16-bit weights, with rounding that would hide that."""
    read = Llama.read_config
    monkeypatch.setattr(Llama, "read_config", lambda self, *given: {**read(self, *given), "layer_norm_eps": 2e-5})
    native = native_model("Llama", "ForCausalLM", LLAMA, dtype=torch.bfloat16)
    with pytest.raises(DifferentOutputsError, match=r"differ from those of LlamaForCausalLM by .* \(rounding explains"):
        zoo.convert(native)
    monkeypatch.undo()
    assert zoo.convert(native).dtype == torch.bfloat16


@pytest.mark.parametrize("task", [None, "feature-extraction"])
def test_a_model_keeps_its_dtype_when_loaded_in_another(task, tmp_path):
    """One that is read in 16 bits, cast to train, and changed by less than they hold; and one that is cast to them."""
    native_model("Llama", "ForCausalLM", LLAMA, dtype=torch.bfloat16).save_pretrained(tmp_path)
    native = transformers.LlamaForCausalLM.from_pretrained(tmp_path).float()
    with torch.no_grad():
        native.model.norm.weight.add_(1e-4)
    assert torch.equal(zoo.convert(native, task=task).base_model.norm.weight, native.model.norm.weight)
    native.save_pretrained(tmp_path)
    cast = transformers.LlamaForCausalLM.from_pretrained(tmp_path).bfloat16()
    assert zoo.convert(cast, task=task).dtype == torch.bfloat16


def test_padding_on_the_left_is_compared(monkeypatch):
    read = Opt.read_config
    monkeypatch.setattr(Opt, "read_config", lambda self, *given: {**read(self, *given), "position": "learned"})
    with pytest.raises(DifferentOutputsError, match="for inputs padded on the left"):
        zoo.convert(native_model("OPT", "ForCausalLM", OPT))


LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0], "rope_theta": 1e4}
GROWING = {
    "longrope": ("Phi3", {"rope_parameters": {**LONG, "original_max_position_embeddings": 9}}),
    "dynamic": ("Llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}}),
    "window": ("Mistral", {"sliding_window": 7}),
}


@pytest.mark.parametrize("case", GROWING)
def test_generation_is_the_native_models_across_every_length(case):
    family, settings = GROWING[case]
    native = native_model(family, "ForCausalLM", {**LLAMA, "max_position_embeddings": 12, **settings})
    given = {"max_new_tokens": 15, "min_new_tokens": 15, "do_sample": False, "pad_token_id": 0}
    expected = native.generate(ids := torch.randint(3, 23, (1, 5)), use_cache=False, **given)
    converted = zoo.convert(native)
    assert converted.generate(ids, **given).tolist() == expected.tolist()
    assert converted.generate(ids, use_cache=False, **given).tolist() == expected.tolist()


@pytest.mark.parametrize("case", ["longrope", "dynamic"])
def test_a_model_that_generates_otherwise_is_refused(case, monkeypatch):
    """Here keys that stay in the cache when their frequencies change, which no forward without a cache shows."""
    family, settings = GROWING[case]
    monkeypatch.setattr(RotaryPosition, "outgrows_cache", lambda *given: False)
    native = native_model(family, "ForCausalLM", {**LLAMA, "max_position_embeddings": 12, **settings})
    with pytest.raises(DifferentOutputsError, match="for inputs that grow from"):
        zoo.convert(native)


@pytest.mark.parametrize("change", [0, 1])
@pytest.mark.parametrize(
    ("family", "head", "settings"),
    [
        ("ModernBert", "ForMaskedLM", {**MODERN_BERT, "local_attention": 60}),
        ("Mistral", "ForSequenceClassification", {**LLAMA, "sliding_window": 30}),
    ],
)
def test_a_window_longer_than_the_batch_is_compared_in_models_that_write_nothing(
    family, head, settings, change, monkeypatch
):
    native = native_model(family, head, {**settings, "max_position_embeddings": 64})
    format = type(NATIVE.get(family.lower()))
    read = format.read_config

    def read_otherwise(*given):
        found = read(*given)
        return {**found, "sliding_window": found["sliding_window"] + change}

    monkeypatch.setattr(format, "read_config", read_otherwise)
    if not change:
        assert zoo.convert(native).config.sliding_window == 30
        return
    with pytest.raises(DifferentOutputsError, match="for inputs that grow from 30 to 32 tokens"):
        zoo.convert(native)


def test_lengths_that_a_large_model_is_not_compared_at_are_named(monkeypatch):
    native = native_model("Mistral", "ForCausalLM", {**LLAMA, "sliding_window": 7})
    monkeypatch.setattr(comparing, "LARGEST", 5 * native.num_parameters())
    with pytest.warns(NotComparedWarning, match="not compared with the native one beyond 6 tokens, .* window"):
        zoo.convert(native)


def test_a_live_model_stays_in_training():
    native = native_model("GPT2", "LMHeadModel", GPT2).train()
    native.transformer.h[0].eval()
    zoo.convert(native)
    assert native.training and native.transformer.wte.training and not native.transformer.h[0].mlp.training


def test_a_live_model_may_get_another_head():
    native = native_model("GPT2", "DoubleHeadsModel", {**GPT2, "summary_proj_to_labels": False})
    with pytest.raises(NoCounterpartError, match=r"GPT2DoubleHeadsModel has a head that no .* with task= "):
        zoo.convert(native)
    model = zoo.convert(native, task="causal-lm")
    given = batch(native.config)
    assert largest_difference(outputs(native, given), outputs(model, given)) < 1e-10
    with pytest.raises(ConversionError, match=r"lacks weights of GPT2ForTokenClassification: classifier\.bias"):
        zoo.convert(native, task="token-classification")


def test_shared_code_is_reported():
    with pytest.warns(LostInputWarning, match="the way back from the zoo is 'roberta', 'camembert' has the same code"):
        zoo.convert(native_model("Camembert", "Model", {**ROBERTA, "type_vocab_size": 1}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_the_only_token_type_of_a_16_bit_model_is_not_rounded_into_its_positions(family, dtype):
    native = native_model(family, "ForMaskedLM", {**ROBERTA, "type_vocab_size": 1}, dtype)
    model = zoo.convert(native)
    assert model.dtype == dtype and model.config.type_vocab_size == 1
    assert largest_difference(outputs(native.float()), outputs(model.float())) < 1e-5
    assert zoo.convert(native.float()).config.type_vocab_size is None


@pytest.mark.parametrize("case", ["GemmaForCausalLM-0", "MiniCPM3ForCausalLM-0", "RoFormerForMaskedLM-0"])
def test_what_classes_compute_is_not_rounded_to_the_16_bits_of_the_weights(case, tmp_path):
    """Factors on embeddings and sines: that of 2048 columns, 45.2548, is 45.25 in a class in bfloat16."""
    family, head, settings = FAMILY_CASES[case]
    native = native_model(family, head, {**settings, "scale_emb": 5.657}, torch.bfloat16)
    native.save_pretrained(tmp_path)
    ours = outputs(zoo.convert(tmp_path).float())
    exact = type(native)(native.config).float().eval()
    exact.load_state_dict({k: v for k, v in native.state_dict().items() if "embed_positions" not in k}, strict=False)
    assert largest_difference(outputs(exact), ours) < 1e-4


def changed(folder, change):
    """Change the weights of a checkpoint."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.1.mlp.up_proj.weight_scale",
        "model.layers.1.self_attn.v_proj.lora_A.weight",
        "model.layers.2.input_layernorm.weight",
        "model.layers.1.self_attn.q_norm.weight",
        "model.layers.1.self_attn.sinks",
    ],
)
@pytest.mark.parametrize("task", ["causal-lm", "feature-extraction"])
def test_weights_that_the_class_does_not_read_are_refused(name, task, tmp_path):
    """A switched-off bias, a scale of rounded weights, an adapter's, a layer too many, parts that no layer has."""
    native_model("Llama", "ForCausalLM", LLAMA).save_pretrained(tmp_path)
    changed(tmp_path, lambda tensors: {**tensors, name: torch.randn(16)})
    with pytest.raises(ConversionError, match=f"that Llama.* does not read: '?{name}"):
        zoo.convert(tmp_path, task=task)


def test_weights_of_other_heads_are_left_out(tmp_path):
    """Poolers, heads, tables that are computed, and layers that predict further tokens."""
    native_model("Bert", "ForMaskedLM", ENCODER).save_pretrained(tmp_path)
    names = ("bert.pooler.dense.weight", "cls.seq_relationship.bias", "bert.embeddings.position_ids")
    changed(tmp_path, lambda tensors: {**tensors, **{name: torch.ones(1) for name in names}})
    assert zoo.convert(tmp_path).config.stack == "encoder"
    native_model("Llama", "ForCausalLM", {**LLAMA, "num_nextn_predict_layers": 1}).save_pretrained(tmp_path)
    names = ("model.layers.2.mlp.up_proj.weight", "model.layers.0.self_attn.rotary_emb.cos_cached")
    changed(tmp_path, lambda tensors: {**tensors, **{name: torch.ones(1) for name in names}})
    assert zoo.convert(tmp_path).config.num_hidden_layers == 2


def test_a_bert_with_relative_positions_is_refused(tmp_path):
    """transformers 5 reads it as one with absolute positions alone."""
    settings = {**ENCODER, "position_embedding_type": "relative_key"}
    native_model("Bert", "ForMaskedLM", settings).save_pretrained(tmp_path)
    name = "bert.encoder.layer.0.attention.self.distance_embedding.weight"
    changed(tmp_path, lambda tensors: {**tensors, name: torch.randn(39, 4)})
    with pytest.raises(ConversionError, match=f"does not read: '?{name}"):
        zoo.convert(tmp_path)


def test_adapters_next_to_weights_are_refused(tmp_path):
    native_model("Llama", "ForCausalLM", LLAMA).save_pretrained(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConversionError, match="has an adapter next to its weights; merge it"):
        zoo.convert(tmp_path)


def test_nan_weights_of_a_live_model_are_reported():
    native = native_model("GPT2", "LMHeadModel", GPT2)
    with torch.no_grad():
        native.transformer.h[0].ln_1.weight[0] = float("nan")
    with pytest.warns(NotFiniteWarning, match="ln_1"):
        zoo.convert(native)
