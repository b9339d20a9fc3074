"""Each class of transformers that is a table: in, out and in again, with the same outputs."""

import json
import re

import pytest
import torch
import transformers
from every_variant import enough
from native_dense import FALCON, GEMMA, MODERN_BERT, MPT, MULTIPLIED, NEOX, PART, T5GEMMA, WIDE, YARN
from native_experts import (
    DEEPSEEK,
    EXPERTS,
    GLM4_LITE,
    KIMI,
    LFM2_MOE,
    MINICPM3,
    PICTURES,
    QWEN3_5,
    QWEN3_MOE,
    SIGMOIDS,
    YOUTU,
)
from native_families import FAMILY_CASES
from native_models import (
    BART,
    ENCODER,
    GPT2,
    LLAMA,
    NATIVE_CASES,
    OPT,
    ROBERTA,
    T5,
    batch,
    largest_difference,
    native_model,
    outputs,
    scramble,
    zoo_model,
)
from packaging.version import Version

import zoo
from zoo.converters import ExportOptions, plan_export, verification
from zoo.converters.errors import LostInputWarning, NoCounterpartError
from zoo.converters.exporting import export_as
from zoo.converters.native import NATIVE
from zoo.converters.native.common import LABELS
from zoo.converters.native.declared import format_of
from zoo.converters.native.decoders import rotated_columns
from zoo.converters.native.families.llama import Llama
from zoo.converters.planning import plan_target
from zoo.converters.weights import task_of, weights_of

pytestmark = pytest.mark.thorough


def kinds_of(case):
    """What a case has: its class, its head, the settings that it sets, and switches' values."""
    family, head, settings = FAMILY_CASES[case]
    switches = {(name, value) for name, value in settings.items() if isinstance(value, bool | str)}
    return {family, head, *settings} | switches


SHARE = "partial_rotary_factor"
LINEAR = {**PART, "rope_type": "linear", "factor": 2.0}
BY_DAY = enough(FAMILY_CASES, kinds_of)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in BY_DAY else pytest.mark.nightly) for case in FAMILY_CASES]
)
def test_there_and_back(case, tmp_path, monkeypatch):
    """Exports are compared with the model in float32; the tolerance in float64 is no smaller."""
    monkeypatch.setattr(verification, "LARGEST_IN_DOUBLE", 0)
    family, head, settings = FAMILY_CASES[case]
    native = native_model(family, head, settings, dtype=torch.float32)
    model = zoo.convert(native)
    for side in ("right", "left"):
        given = batch(native.config, side)
        theirs = outputs(native, given)
        if side == "left" and model.config.classifier_pooling == "cls" and head == "ForSequenceClassification":
            continue  # the native heads read padding there
        if side == "left" and settings.get("conv_bias"):
            continue  # the native convolution reads a bias there
        assert largest_difference(theirs, outputs(model, given)) < 1e-5 * max(1.0, float(theirs.abs().max())), side
    plan = plan_target(NATIVE.get(native.config.model_type), model.config, weights_of(model), task_of(model))
    assert plan.obstacles == ()
    report = export_as(plan, model, tmp_path, ExportOptions(fresh_process=False))
    assert report.class_name == type(native).__name__
    assert report.difference.greedy in (None, True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_experts_are_read_from_a_folder_in_any_precision(dtype, tmp_path):
    """From a folder transformers runs experts by a grouped product, which PyTorch has in half and single precision."""
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_local_experts": 4, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 20}
    native = native_model("Mixtral", "ForCausalLM", {**sizes, **heads}, dtype)
    native.save_pretrained(tmp_path)
    model = zoo.convert(tmp_path)
    assert model.dtype == dtype and model.config._experts_implementation != "batched_mm"
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.isfinite(model(input_ids=ids).logits).all()


@pytest.mark.parametrize(("target", "stored"), [("deepseek_v3", torch.bfloat16), ("minimax_m2", torch.float32)])
def test_balancing_biases_of_16_bit_models_are_exact_in_classes(target, stored, tmp_path):
    """Where a class would round them, all weights are in float32."""
    unshared = {"n_shared_experts": 0, "qk_norm": "full", "routed_scaling_factor": 1.0}
    settings = unshared if target == "minimax_m2" else {}
    name = "deepseek-v3-style" if target == "deepseek_v3" else "deepseek-moe"
    model = zoo.build(f"{name}@tiny", vocab_size=20, num_hidden_layers=2, seed=0, dtype=torch.bfloat16, **settings)
    biases = [one for key, one in model.named_buffers() if key.endswith("balance_bias")]
    for bias in biases:
        bias.copy_(0.001 * torch.arange(len(bias)))
    zoo.export(model, tmp_path, target, fresh_process=False)
    native = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto")
    theirs = [one for key, one in native.named_buffers() if key.endswith("e_score_correction_bias")]
    assert native.dtype == stored and len(theirs) == len(biases)
    again = [one for key, one in zoo.convert(tmp_path).named_buffers() if key.endswith("balance_bias")]
    for one in (theirs, again):
        torch.testing.assert_close(one, biases, rtol=0, atol=0)


def test_every_model_type_has_a_case():
    cases = (*FAMILY_CASES.values(), *NATIVE_CASES.values())
    tested = {getattr(transformers, family + head).config_class.model_type for family, head, _ in cases}
    tested |= {"camembert", "internlm3", "iquestcoder"}  # XLM-RoBERTa's code and Llama's
    assert {model_type for name in NATIVE for model_type in NATIVE.get(name).model_types} == tested


ROTATING = {
    found.name: config_class(**{name: value for name, value in settings.items() if name != "rope_parameters"})
    for family, head, settings in (*NATIVE_CASES.values(), *FAMILY_CASES.values())
    for config_class in [getattr(transformers, family + head).config_class]
    for found in [format_of(config_class())]
    if "rope_parameters" in found.fields
}


@pytest.mark.parametrize("name", ROTATING)
def test_heads_rotate_as_wide_as_in_the_class_whatever_the_variant_does(name):
    """Nothing in its rotary settings: whole heads, or the class's own part of each."""
    found, native = NATIVE.get(name), ROTATING[name]
    task = next(iter(found.classes))
    read = {name: value for name, value in found.read_config(native, task).items() if name not in LABELS}
    config = zoo.config(found.variant, task, **{"is_decoder": found.stack == "decoder", **read})
    assert rotated_columns(config) == (getattr(native, "rotary_dim", None) or rotated_columns(native))


@pytest.mark.parametrize("family", ["KimiLinear", "Lfm2", "Qwen3Next"])
def test_hybrids_may_have_attention_in_all_layers(family):
    *_, settings = FAMILY_CASES[f"{family}ForCausalLM-0"]
    native = native_model(family, "ForCausalLM", {**settings, "layer_types": ["full_attention"] * 2}, torch.float32)
    assert largest_difference(outputs(native), outputs(zoo.convert(native))) < 1e-5


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("FalconForCausalLM", {**FALCON, "alibi": True}, "alibi=True is set"),
        ("CohereForCausalLM", {**WIDE, "use_qk_norm": True}, "use_qk_norm=True is set"),
        ("MptForCausalLM", {**MPT, "attn_config": {"clip_qkv": 6.0}}, r"clip_qkv=6\.0 is set"),
        ("AlbertForMaskedLM", {**ENCODER, "num_hidden_groups": 2}, "num_hidden_groups=2 is set"),
        ("DeepseekV3Model", {**DEEPSEEK, "rope_parameters": LINEAR}, rf"{SHARE}=0\.5 is set with 'linear'"),
        ("Glm4MoeLiteModel", {**GLM4_LITE, "rope_parameters": PART}, rf"{SHARE}=0\.5 is set with 'default'"),
        ("StableLmModel", {**WIDE, "head_dim": 16}, "head_dim=16 is set, only 8 can be converted"),
        ("YoutuModel", {**YOUTU, "head_dim": 2}, "head_dim=2 is set, only 4 can be converted"),
        ("KimiLinearModel", {**KIMI, "hidden_act": "relu"}, "hidden_act='relu' is set, only 'silu'"),
        ("T5GemmaModel", {**T5GEMMA, "pad_token_id": 3}, "only one id for all can be converted"),
        ("GraniteSWAModel", {**MULTIPLIED, "layer_rope_theta": [1e4, 5e3]}, "can have one base only"),
        ("NanoChatModel", {**LLAMA, "rope_parameters": YARN, "rms_norm_eps": 0.01}, r"rms_norm_eps=0\.01 is added"),
        ("NomicBertForMaskedLM", ENCODER, "NomicBertForMaskedLM has a head that no model of the zoo has"),
        ("MellumModel", {**QWEN3_MOE, "mlp_layer_types": ["sparse", "dense"]}, "only the first layers can be without"),
        ("KimiLinearModel", {**KIMI, "mlp_layer_types": ["sparse", "dense"]}, "only the first layers can be without"),
        ("GraniteModel", {**MULTIPLIED, "logits_scaling": 0.0}, r"logits_scaling=0\.0 is set, only other numbers"),
        ("GraniteSWAModel", {**MULTIPLIED, "attention_multiplier": 0.0}, r"attention_multiplier=0\.0 is set"),
        ("MiniCPM3Model", {**MINICPM3, "scale_emb": 0, "tie_word_embeddings": True}, "scale_emb=0 is set"),
        ("DeepseekV3Model", {**DEEPSEEK, "q_lora_rank": 0}, "q_lora_rank=0 is set, only None or a positive number"),
        ("Glm4MoeModel", {**SIGMOIDS, "n_shared_experts": 0}, "only an expert with channels can be"),
        ("T5GemmaModel", {**T5GEMMA, "decoder": {**GEMMA, "hidden_size": 16}}, r"decoder\.hidden_size is 16"),
        # Types that are known to have no counterpart
        ("UMT5ForConditionalGeneration", T5, "this umt5 model has no counterpart: every layer has its own relative"),
        ("PhimoeModel", EXPERTS, "each of its two experts is weighed among those that score nearly as well"),
        ("Qwen3_5Model", {"text_config": QWEN3_5, "vision_config": PICTURES}, "AutoModelForCausalLM loads by itself"),
        ("Lfm2MoeModel", LFM2_MOE, "divided by a millionth more than their sum"),
        ("ModernBertForMaskedLM", {**MODERN_BERT, "hidden_activation": "silu"}, "hidden_activation='silu' is set"),
        ("ModernBertDecoderModel", MODERN_BERT, "its language model's head transforms what it projects"),
        ("OPTForCausalLM", {**OPT, "word_embed_proj_dim": 8}, "word_embed_proj_dim=8 are projected"),
        ("GPT2LMHeadModel", {**GPT2, "scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("BertLMHeadModel", {**ENCODER, "is_decoder": True}, "BertLMHeadModel"),
        ("BertModel", {**ENCODER, "is_decoder": True}, "is_decoder=True"),
        ("RobertaForMaskedLM", {**ROBERTA, "hidden_act": "relu"}, "hidden_act='relu'"),
        # Heads
        ("T5EncoderModel", T5, "T5EncoderModel is one stack of an encoder-decoder; converted are T5For"),
        ("BertForQuestionAnswering", ENCODER, r"ForQuestionAnswering has a head .*BertForMaskedLM \(masked-lm\)"),
        ("BertForPreTraining", ENCODER, "BertForPreTraining has a head .*--set task="),
        ("BartForSequenceClassification", BART, "BartForSequenceClassification has a head"),
    ],
)
def test_what_the_zoo_lacks_is_refused(name, settings, message):
    with pytest.raises(NoCounterpartError, match=message):
        zoo.convert(native_model(name, "", settings))


def test_a_class_that_zeroes_the_row_of_padding_is_refused_models_with_another():
    model = zoo.convert(native_model("Youtu", "ForCausalLM", YOUTU))
    model.config.pad_token_id = 3
    plan = plan_target(NATIVE.get("youtu"), model.config, weights_of(model), task_of(model))
    assert plan.obstacles == ("the embedding of padding (3) is not zero, which the class makes it when it is loaded",)


@pytest.mark.parametrize("eps", [1e-6, 1e-5])
def test_norms_on_latent_vectors_have_one_epsilon_independent_of_the_others(eps):
    """Classes have 1e-6 there, and theirs in the other norms; a model may have one for both."""
    settings = {"latent_norm_eps": eps, "layer_norm_eps": 1e-3, "vocab_size": 20}
    model = zoo.build("deepseek-v3-style@tiny", **settings)
    found = next(plan for plan in plan_export(model) if plan.target == "deepseek_v3")
    refused = ("norms on latent vectors have an epsilon of 1e-05, here it is 1e-06",)
    assert found.obstacles == (refused if eps == 1e-5 else ())


def test_experts_without_a_shared_one_are_only_of_a_class_without():
    model = zoo.build("deepseek-moe@tiny", n_shared_experts=0, vocab_size=20)
    for name in ("dots1", "glm4_moe", "deepseek_v3"):
        plan = plan_target(NATIVE.get(name), model.config, weights_of(model), task_of(model))
        assert "n_shared_experts=0, here it is at least 1" in plan.obstacles
    plan = plan_target(NATIVE.get("minimax_m2"), zoo.config("deepseek-moe@tiny"), {}, "causal-lm")
    assert "n_shared_experts=1, here it is 0" in plan.obstacles


def test_a_factor_on_the_logits_that_is_no_whole_width_goes_into_the_output_projection():
    model = zoo.convert(native_model("MiniCPM3", "ForCausalLM", MINICPM3))
    plan = plan_target(NATIVE.get("minicpm3"), model.config, weights_of(model), task_of(model))
    assert [step.symmetry.name for step in plan.route.steps] == ["untie-output", "move-logit-scale"]
    whole = {**MINICPM3, "scale_emb": 1, "tie_word_embeddings": False}
    model = zoo.convert(native_model("MiniCPM3", "ForCausalLM", whole))
    plan = plan_target(NATIVE.get("minicpm3"), model.config, weights_of(model), task_of(model))
    assert plan.route.steps == () and model.config.logit_scale == 8 / 32


def test_norms_are_folded_without_loss():
    """Two norms become one by what reads them: 16 bits would round, so the result is float32, with a warning."""
    native = native_model("GPTNeoX", "ForCausalLM", NEOX, dtype=torch.bfloat16)
    with pytest.warns(LostInputWarning, match="stored in float32"):
        model = zoo.convert(native)
    assert model.dtype == torch.float32
    assert largest_difference(outputs(native.float()), outputs(model)) < 1e-4
    plain = transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**NEOX)).to(torch.bfloat16)
    assert zoo.convert(plain).dtype == torch.bfloat16


def test_biases_of_norms_keep_a_model_from_classes_without():
    name = "pre-norm:position=alibi,attention_bias=False,mlp_bias=False,intermediate_size=64"
    (plan,) = plan_export(zoo_model(name, "causal-lm"), ["mpt"])
    assert plan.obstacles == ("its norms have biases, which this class's lack",)


UNTRAINED = dict.fromkeys(("CohereForCausalLM-0", "Cohere2ForCausalLM-0", "MptForCausalLM-0"), "norm.*bias")
UNTRAINED |= dict.fromkeys(("OlmoForCausalLM-0", "NanoChatForCausalLM-0"), "norm")
UNTRAINED |= dict.fromkeys(("M2M100ForConditionalGeneration-0", "XGLMForCausalLM-0"), "position")


@pytest.mark.parametrize(("case", "lacking"), UNTRAINED.items())
def test_parameters_that_a_class_lacks_are_named_when_it_is_read(case, lacking):
    native = native_model(*FAMILY_CASES[case], dtype=torch.float32)
    with pytest.warns(LostInputWarning, match="are trained in the zoo, and .* has none: freeze them to go back"):
        model = zoo.convert(native)
    for frozen in (lacking, "nothing"):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter += 0.01 * (re.search(frozen, name) is None)
        plan = plan_target(NATIVE.get(native.config.model_type), model.config, weights_of(model), task_of(model))
        assert plan.exact == (frozen == lacking), plan.obstacles


def test_a_mistral_with_layer_types_is_read_as_auto_classes_read_it(tmp_path):
    settings = {**LLAMA, "sliding_window": 3, "layer_types": ["full_attention", "sliding_attention"]}
    native_model("Mistral", "ForCausalLM", settings, torch.float32).save_pretrained(tmp_path)
    native = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(native).__name__ == "MinistralForCausalLM"
    model = zoo.convert(tmp_path)
    assert model.config.layer_types == settings["layer_types"]
    assert largest_difference(outputs(native), outputs(model)) < 1e-5


@pytest.mark.skipif(Version(transformers.__version__) < Version("5.23"), reason="transformers 5.20 has neither")
@pytest.mark.parametrize("name", ["InternLM3Config", "IQuestCoderConfig"])
def test_types_without_classes_of_their_own_are_read_as_those_that_run_them(name, tmp_path):
    settings = {**LLAMA, "head_dim": 8, "attention_bias": True, "mlp_bias": True}
    native = scramble(transformers.LlamaForCausalLM(getattr(transformers, name)(**settings))).double()
    native.save_pretrained(tmp_path)
    for source in (native, tmp_path):
        with pytest.warns(LostInputWarning, match="the way back from the zoo is 'llama'"):
            model = zoo.convert(source)
        assert largest_difference(outputs(native), outputs(model)) < 1e-5


def test_a_format_may_be_named_in_its_body(monkeypatch):
    monkeypatch.setattr(NATIVE, "_items", dict(NATIVE._items))
    named = type("Named", (Llama,), {"name": "named", "rank": 7, "__module__": __name__})
    assert type(NATIVE.get("named")) is named and NATIVE.get("named").rank == 7


ITS_OWN = ("albert", "bloom", "falcon", "gemma2", "gptj", "nanochat", "olmo2", "olmo3", "qwen3", "roformer", "smollm3")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((f"{name}-style", name) for name in (*ITS_OWN, "t5gemma")),
        ("diff-transformer", "diffllama"),
        ("kimi-linear-style", "kimi_linear"),
        ("gemma3-style", "gemma3_text"),
        ("gpt-neox-style", "gpt_neox"),
    ],
)
def test_variants_after_a_class_go_there(name, target):
    plan = plan_export(zoo.build(f"{name}@tiny:vocab_size=20"))[0]
    assert (plan.exact, plan.target) == (True, target)


def test_lfm2s_configuration_has_the_widths_that_vllm_reads(tmp_path):
    zoo.export(zoo.build("lfm2-style@tiny:vocab_size=20"), tmp_path / "out", "lfm2", fresh_process=False)
    found = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert found["conv_dim"] == found["block_dim"] == found["hidden_size"]
