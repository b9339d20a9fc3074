"""Any configuration of transformers is converted as its class computes it, or refused with a reason."""

import dataclasses
import re

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_dense import ALIKE, DISTILBERT, FALCON, LLAMA3, MPT, PART, T5GEMMA, WIDE, YARN
from native_experts import MINIMAX, QWEN3_MOE
from native_families import FAMILY_CASES
from native_models import (
    BART,
    GPT2,
    LLAMA,
    NATIVE_CASES,
    OPT,
    ROBERTA,
    T5,
    XLM,
    batch,
    largest_difference,
    native_model,
    other_sizes,
    zoo_model,
)
from native_models import outputs as outputs_of

import zoo
from zoo.base.errors import ZooError
from zoo.converters.errors import DifferentOutputsError, LostInputWarning
from zoo.converters.exporting import find_target
from zoo.models import POSITIONS

pytestmark = pytest.mark.thorough

FIRST = {family: (head, sizes) for family, head, sizes in reversed(NATIVE_CASES.values()) if family != "XLMRoberta"}
FAMILIES = {**FIRST, "RobertaPreLayerNorm": ("ForTokenClassification", ROBERTA)}
"""A head, and sizes of a small model."""

TABLES = {family: (head, sizes) for family, head, sizes in FAMILY_CASES.values() if head.endswith("LM")}
"""The same of classes that are written as tables."""

BIASED_CONVOLUTION = {**TABLES["Lfm2"][1], "conv_bias": True}
BASE = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)} | {"use_cache"}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
ROPES = (
    *({"rope_type": "default", "rope_theta": 100.0}, PART, LINEAR, {**LINEAR, "partial_rotary_factor": 0.5}),
    *({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}, YARN, LLAMA3),
)
ROUNDED = {**YARN, "truncate": False}  # which classes with wavelengths by layer do not read
BY_NAME = {
    "rope_parameters": st.sampled_from(ROPES),
    "sliding_window": st.sampled_from([None, 1, 2, 4]),
    "layer_types": st.lists(st.sampled_from(["full_attention", "sliding_attention"]), min_size=2, max_size=2),
    "type_vocab_size": st.integers(1, 3),
    "pad_token_id": st.sampled_from([None, 0, 1, 3, 22]),
    "num_key_value_heads": st.sampled_from([1, 2, 4]),
    "head_dim": st.sampled_from([4, 6, 8]),
    "n_inner": st.sampled_from([None, 20]),
    "feed_forward_proj": st.sampled_from(["relu", "gelu", "gated-gelu", "gated-silu", "silu"]),
    "num_decoder_layers": st.sampled_from([None, 1, 2, 3]),
    "decoder_vocab_size": st.sampled_from([23, 27]),
    "word_embed_proj_dim": st.sampled_from([8, 16]),
    "n_langs": st.integers(1, 2),
    "max_window_layers": st.integers(0, 2),
}
BY_ENDING = {
    ("_act", "activation_function"): st.sampled_from(["relu", "gelu", "gelu_new", "silu", "quick_gelu"]),
    ("_eps", "_epsilon"): st.sampled_from([1e-12, 1e-6, 1e-5, 1e-2]),
    ("_num_buckets",): st.sampled_from([4, 8]),
    ("_max_distance",): st.sampled_from([5, 12]),
}


def values_of(field):
    """What a field of a configuration may be, None where that is a size or changes training only."""
    if field.name in BY_NAME:
        return BY_NAME[field.name]
    if field.name in BASE:
        return None
    if isinstance(field.default, bool):
        return st.booleans()
    return next((values for endings, values in BY_ENDING.items() if field.name.endswith(endings)), None)


def configurations(family):
    """Settings of a family's own configuration class, any of its fields that changes what is computed."""
    head, _ = {**FAMILIES, **TABLES}[family]
    fields = dataclasses.fields(getattr(transformers, family + head).config_class)
    optional = {field.name: values for field in fields if (values := values_of(field)) is not None}
    # What was made for another class of the same code ends up in configurations as well.
    strays = {name: BY_NAME[name] for name in ("sliding_window", "layer_types") if family in ("Llama", "Mistral")}
    return st.fixed_dictionaries({}, optional={"tie_word_embeddings": st.booleans(), **strays, **optional})


RARELY_ACCEPTED = ("GPT2", "OPT", "Roberta", "RobertaPreLayerNorm", "XLM")
"""Classes with many switches without a counterpart: of few configurations none may be converted."""

NOT_A_CONFIGURATION = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,  # in the forward of Falcon's new architecture without parallel attention
    NotImplementedError,
    RuntimeError,
    StrictDataclassError,
    TypeError,
    ValueError,
)
"""What classes of transformers raise for a configuration that they do not take."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [1, pytest.param(8, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("family", {**FAMILIES, **TABLES})
def test_configurations_are_read_as_their_class_does(family, count):
    """Nothing that is misread: what can be converted is the same, with padding on either side; and some can."""
    head, sizes = {**FAMILIES, **TABLES}[family]
    dtype = torch.float32 if family in TABLES else torch.float64
    some_are = count > 1 and family not in (*TABLES, *RARELY_ACCEPTED)
    always_the_same = {"derandomize": True} if some_are else {}
    converted = []

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), **always_the_same)
    @given(configurations(family).filter(len))
    def convert(drawn):
        converted.append(is_same_or_refused(family, head, {**sizes, **drawn, "use_cache": False}, dtype))

    convert()
    assert any(converted) or not some_are


def is_same_or_refused(family, head, drawn, dtype):
    """Convert a native model with settings, unless its class takes none of the kind: whether it was converted."""
    try:
        native = native_model(family, head, drawn, dtype)
        outputs_of(native, batch(native.config))
    except NOT_A_CONFIGURATION:
        return False  # no configuration that the class takes
    try:
        model = zoo.convert(native)
    except DifferentOutputsError:
        raise
    except ZooError:
        return False
    for side in ("right", "left"):
        inputs = batch(native.config, side)
        # A native model rotates a short row as the longest one of its batch, the zoo by its own length.
        by_batch = POSITIONS.get(model.config.position).changes_after(model.config) is not None
        if by_batch or getattr(native.config, "conv_bias", False):  # with which LFM2 reads padding on the left
            inputs = {name: tensor[:1] for name, tensor in inputs.items()}
        assert largest_difference(outputs_of(native, inputs), outputs_of(model, inputs)) < 1e-4
    return True


@pytest.mark.parametrize(
    ("family", "head", "settings"),
    [
        ("Glm4", "ForCausalLM", WIDE),
        ("EuroBert", "ForTokenClassification", WIDE),
        ("Llama", "ForSequenceClassification", LLAMA),
        ("Starcoder2", "ForTokenClassification", WIDE),
        ("DistilBert", "ForTokenClassification", {**DISTILBERT, "dropout": 0.0, "seq_classif_dropout": 0.5}),
        ("XLM", "ForSequenceClassification", {**XLM, "dropout": 0.0, "attention_dropout": 0.0}),
        ("Mpt", "ForCausalLM", {**MPT, "resid_pdrop": 0.5}),
        ("Falcon", "ForCausalLM", {**FALCON, "attention_dropout": 0.5}),  # which FlashAttention alone reads there
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_elements_are_dropped_in_training_where_the_class_drops_any(family, head, settings):
    native = native_model(family, head, settings)
    assert drops(zoo.convert(native)) == drops(native)


def drops(model):
    """Whether outputs are others in training."""
    return largest_difference(outputs_of(model.eval()), outputs_of(model.train())) > 1e-6


CLASSIFIER = "classifier_dropout=0.2,classifier_bias=False"
CLASSIFIER_RATES = "classifier_dropout=0.0 in llama, 0.2"


@pytest.mark.parametrize(
    ("family", "head", "settings", "lost"),
    [
        ("Lfm2", "ForCausalLM", BIASED_CONVOLUTION, "conv_bias=True: .* reads padding on the left"),
        ("GPT2", "LMHeadModel", {**GPT2, "embd_pdrop": 0.3}, r"differ: embd_pdrop=0\.3 in gpt2, 0\.1 in the zoo"),
        ("GPTJ", "ForCausalLM", {**GPT2, "rotary_dim": 2, "embd_pdrop": 0.3}, r"embd_pdrop=0\.3 in gptj, 0\.0"),
        ("Phi", "ForCausalLM", {**WIDE, "resid_pdrop": 0.3}, r"embd_pdrop=0\.0 in phi, 0\.3"),
        ("Starcoder2", "ForCausalLM", {**WIDE, "embedding_dropout": 0.3}, r"embedding_dropout=0\.3 in starcoder2"),
        (
            *("Bart", "Model", {**BART, "encoder_layerdrop": 0.1, "decoder_layerdrop": 0.2}),
            r"decoder_layerdrop=0\.2 in bart, 0\.0 in the zoo; encoder_layerdrop=0\.1 in bart, 0\.0",
        ),
        ("OPT", "ForCausalLM", {**OPT, "layerdrop": 0.1}, r"layerdrop=0\.1 in opt, 0\.0"),
        ("MiniMaxM2", "ForCausalLM", {**MINIMAX, "output_router_logits": True}, "have an addend that balances experts"),
        ("T5Gemma", "ForConditionalGeneration", T5GEMMA, "takes every pad_token_id for padding"),
        ("Mellum", "ForCausalLM", {**QWEN3_MOE, "rope_parameters": {**ALIKE, "full_attention": ROUNDED}}, None),
        ("GPT2", "LMHeadModel", GPT2, None),
        ("M2M100", "ForConditionalGeneration", {**BART, "vocab_size": 22, "encoder_layerdrop": 0.1}, "layerdrop=0"),
        ("Bart", "Model", BART, None),
    ],
)
def test_inputs_losses_and_rates_of_dropout_that_a_model_lacks_are_named(family, head, settings, lost, recwarn):
    zoo.convert(native_model(family, head, settings, torch.float32))
    warned = [str(warning.message) for warning in recwarn if warning.category is LostInputWarning]
    found = [message for message in warned if "freeze them to go back" not in message]  # of parameters
    assert len(found) == (lost is not None)
    assert all(re.search(lost, message) for message in found)


@pytest.mark.parametrize(
    ("name", "task", "target", "lost"),
    [
        ("llama-style:dropout=0.2", None, "llama", "Rates of dropout differ: dropout=0.0 in llama, 0.2 in the zoo."),
        ("llama-style:activation_dropout=0.2", None, "mistral", "activation_dropout=0.0 in mistral, 0.2"),
        ("llama-style:attention_dropout=0.2", None, "llama", ""),
        ("llama-style:classifier_dropout=0.2", "token-classification", "llama", ""),
        (f"llama-style:{CLASSIFIER}", "sequence-classification", "llama", f"{CLASSIFIER_RATES} in the zoo"),
        ("gpt2-style:dropout=0.2", None, "gpt2", ""),
        ("t5-style:dropout=0.2,attention_dropout=0.1", None, "t5", "attention_dropout=0.2 in t5, 0.1 in the zoo"),
        ("bert-style:activation_dropout=0.2", None, "bert", "activation_dropout=0.0 in bert, 0.2 in the zoo"),
        ("t5gemma-style:dropout=0.2,activation_dropout=0.0", None, "t5gemma", "activation_dropout=0.2 in t5gemma"),
        ("lfm2-style:conv_bias=True", None, "lfm2", "reads padding on the left"),
        ("t5gemma-style", None, "t5gemma", "Without an attention_mask t5gemma takes every pad_token_id for padding"),
        ("pegasus-style:position=learned,embedding_norm=True", None, "mbart", "begin with the last label in mbart"),
    ],
)
def test_exports_note_what_a_class_trains_or_reads_otherwise(name, task, target, lost):
    model = zoo_model(name, task, **other_sizes(name, {"pad_token_id": 0, "dropout": 0.0}))
    plan = find_target(target).plan(model)
    assert plan.exact and (lost in " ".join(plan.notes) if lost else "dropout" not in " ".join(plan.notes))


@pytest.mark.parametrize(
    ("family", "head", "settings"),
    [
        ("Marian", "MTModel", BART),
        ("T5", "ForConditionalGeneration", T5),
        ("T5Gemma", "ForConditionalGeneration", T5GEMMA),
        *((name, "ForConditionalGeneration", BART) for name in ("Bart", "MBart", "PLBart", "Mvp", "M2M100")),
        *((name, "ForConditionalGeneration", BART) for name in ("Pegasus", "Blenderbot")),
    ],
)
def test_labels_alone_give_the_same_loss_or_a_warning(family, head, settings, recwarn):
    native = native_model(family, head, settings, torch.float32)
    model = zoo.convert(native)
    ids, labels = torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.tensor([[11, 12, 2, 16], [14, 2, 17, -100]])
    losses = [one(input_ids=ids, labels=labels).loss for one in (native, model)]
    warned = any("begin with the last label" in str(warning.message) for warning in recwarn)
    assert (largest_difference(*losses) > 1e-4) == warned == (family in ("MBart", "PLBart"))
