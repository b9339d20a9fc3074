"""Models of the zoo become models of transformers' own classes, verified, or are refused with a reason."""

import json
import re
from contextlib import nullcontext

import pytest
import torch
import transformers
from native_models import largest_difference, outputs, scramble, zoo_model
from safetensors import safe_open
from tokenizers import Tokenizer, models

import zoo
from zoo.base.errors import OutputExistsError
from zoo.converters import ExportOptions, plan_export, verification
from zoo.converters.errors import ExportError, VerificationError
from zoo.converters.exporting import export_as
from zoo.converters.native.writing import save_weights
from zoo.data.tokenizers import train_bpe

pytestmark = pytest.mark.thorough

ENCODER = dict(is_decoder=False, is_encoder_decoder=False)

DECODER = dict(is_decoder=True, is_encoder_decoder=False, classifier_pooling="last")

TIED = dict(tie_word_embeddings=True, share_encoder_decoder_embeddings=True, lm_head_bias=True)
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
HALF = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
BLOOM = dict(embedding_norm=True, hidden_act="gelu_pytorch_tanh", intermediate_size=64)
SIX_HEADS = dict(hidden_size=24, num_attention_heads=6, intermediate_size=96)  # slopes of no power of two
CAPS = dict(attn_logit_softcapping=2.0, final_logit_softcapping=3.0)
BY_ITS_RULES = "marian ignore-blind-rows move-attention-scale"
GATE = dict(attention_out_bias=True, head_dim=8)
GEMMA2 = dict(**CAPS, num_key_value_heads=2, head_dim=8, sliding_window=4)

EXACT = {
    "d2l": ("d2l-style", None, {}, "marian permute-residual zero-attention-bias zero-attention-out-bias"),
    "vanilla": ("vanilla", None, dict(decoder_vocab_size=23), "marian"),
    "vanilla-faithful": ("vanilla+faithful", None, dict(decoder_vocab_size=23), BY_ITS_RULES),
    "odom": ("odom-style", None, {}, "marian permute-residual"),
    "nlpt-body": ("nlpt-encoder", "feature-extraction", {}, "roberta-prelayernorm rescale-embeddings"),
    "post-body": ("post-norm", "feature-extraction", ENCODER, "bert, roberta, xlm pad-feed-forward"),
    "post-body-plain": ("post-norm", "feature-extraction", dict(**ENCODER, embedding_norm=False), "opt"),
    "pre-body": ("pre-norm", "feature-extraction", ENCODER, "megatron-bert, opt"),
    "post-mlm": ("post-norm", "masked-lm", {}, "xlm zero-output-bias pad-feed-forward"),
    "post-mlm-bert": ("post-norm", "masked-lm", dict(lm_head_transform=True), "bert zero-output-bias"),
    "post-cls": ("post-norm", "sequence-classification", dict(classifier_pooling="cls"), "xlm pad-feed-forward"),
    "bert-mlm": ("bert-style", "masked-lm", {}, "bert, roberta"),
    "bert-cls": ("bert-style", "sequence-classification", {}, "bert, roberta"),
    "bert-tokens": ("bert-style", "token-classification", {}, "bert, roberta, xlm pad-feed-forward"),
    "pre-causal": ("pre-norm", "causal-lm", {}, "gpt2, opt"),
    "pre-causal-unfinished": ("pre-norm", "causal-lm", dict(final_norm=False), "opt"),
    "post-causal": ("post-norm", "causal-lm", dict(embedding_norm=False), "opt"),
    "deepnorm-causal": ("deepnorm", "causal-lm", {}, "opt divide-by-deepnorm-alpha rescale-stream"),
    "gpt2-cls": ("gpt2-style", "sequence-classification", {}, "gpt2, opt"),
    "opt-cls": ("post-norm", "sequence-classification", dict(**DECODER, embedding_norm=False), "opt"),
    "llama": ("llama-style", None, {}, "llama, mistral, qwen2 zero-attention-bias"),
    "llama-interleaved": ("llama-style", None, dict(position="rotary-interleaved"), "llama split-rotary-halves"),
    "llama-window": ("llama-style", None, dict(sliding_window=4), "mistral, qwen2 zero-attention-bias"),
    "qk-norm": ("qk-norm", None, {}, "qwen3"),
    "pre-seq2seq": (
        *("pre-norm", "seq2seq-lm", dict(position="sinusoidal", decoder_vocab_size=17)),
        "pegasus zero-output-bias pad-target-vocabulary permute-residual"
        ", blenderbot zero-output-bias pad-target-vocabulary store-table",
    ),
    "pegasus-tied": ("pegasus-style", None, {}, "pegasus"),
    "marian-tied": ("marian-style", None, {}, "marian"),
    "bart": ("post-norm", "seq2seq-lm", {}, "bart zero-output-bias"),
    "bart-tied": ("post-norm", "seq2seq-lm", TIED, "bart"),
    "mbart": ("pre-norm", "seq2seq-lm", dict(**TIED, embedding_norm=True), "mbart"),
    "t5": ("t5-style", None, {}, "t5"),
    "t5-tied": ("t5-style", None, dict(tie_word_embeddings=True, logit_scale=0.25), "t5"),
    "prelayernorm-mlm": ("roberta-prelayernorm-style", "masked-lm", {}, "roberta-prelayernorm"),
    "gpt2": ("gpt2-style", None, {}, "gpt2"),
    "gptj": ("gptj-style", None, dict(rope_parameters=HALF), "gptj"),
    "bloom": ("alibi-decoder", None, BLOOM, "bloom"),
    "bloom-six-heads": ("alibi-decoder", None, {**BLOOM, **SIX_HEADS}, "bloom"),
    "llama-groups": ("llama-style", None, dict(num_key_value_heads=2), "llama"),
    "olmo2": ("olmo2-style", None, {}, "olmo2"),
    "gemma2": ("gemma2-style", None, GEMMA2, "gemma2 shift-norm-weights"),
    "tokens-of-another-eps": (
        *("bert-style:layer_norm_eps=1e-4", "token-classification", dict(type_vocab_size=None)),
        "distilbert rescale-stream rescale-embeddings",
    ),
    "gated-attention": ("qwen3-next-style:feed_forward=gated", None, GATE, "qwen3_5_text zero-attention-bias"),
}
"""Variants, tasks and settings, and the classes that express them, each with the symmetries by which it does."""


def expected_of(case):
    """The symmetries by class."""
    words = (target.split() for target in EXACT[case][3].split(", "))
    return {name: set(symmetries) for name, *symmetries in words}


@pytest.mark.parametrize("case", EXACT)
def test_exports_are_exact(case, tmp_path):
    name, task, settings, _ = EXACT[case]
    expected, model = expected_of(case), zoo_model(name, task, dtype=torch.float32, **settings)
    plans = {plan.target: plan for plan in plan_export(model, expected)}
    for target, transforms in expected.items():
        assert plans[target].obstacles == ()
        assert set(plans[target].transforms) == transforms
    for target in list(expected)[:1] if case != "pre-seq2seq" else expected:
        (tmp_path / target).mkdir()
        report = export_as(plans[target], model, tmp_path / target, ExportOptions(fresh_process=False))
        scale = max(1.0, report.difference.largest)
        assert report.difference.float32 < 1e-5 * scale
        assert report.difference.float64 < 5e-6 * scale
        assert report.difference.greedy in (None, True)


REFUSED = [
    ("sandwich-norm", "causal-lm", {}, "gpt2", "norm_placement='sandwich'"),
    ("vanilla", "sequence-classification", dict(embedding_norm=True), "xlm", "classifier_pooling='max'"),
    ("pre-norm", "causal-lm", dict(lm_head_bias=True), "gpt2", "no bias"),
    ("pre-norm", "causal-lm", dict(lm_head_bias=True), "opt", "no bias"),
    ("llama-style", None, dict(lm_head_bias=True), "llama", "no bias"),
    ("post-norm", "sequence-classification", dict(classifier_pooling="cls"), "bert", "reads a dense layer with tanh"),
    ("pegasus-style", None, dict(position="learned"), "mbart", "take away their mean and their scale"),
    ("post-norm", "masked-lm", {}, "bert", "a plain projection"),
    ("vanilla", None, {}, "bart", "take away their mean"),
    (
        *("nlpt-encoder+padding-is-attended", "feature-extraction", {}, "roberta-prelayernorm"),
        "quirk 'padding-is-attended'",
    ),
    ("d2l-style", None, dict(faithful=True), "marian", "quirk 'evaluation-sees-the-future'"),
    ("alibi-decoder", None, {}, "gpt2", "position='alibi'"),
    ("pre-norm", "causal-lm", {}, "marian", "it is a decoder"),
    ("d2l-style", None, {}, "bert", "it is an encoder-decoder"),
    ("post-norm", "masked-lm", dict(intermediate_size=80), "xlm", "four times"),
    ("t5-style", None, dict(hidden_act="gelu"), "t5", "gated-gelu"),
    ("llama-style", None, dict(rope_parameters=HALF), "llama", "a part of each head"),
    *(
        ("roformer-style:position=rotary", "feature-extraction", dict(rope_parameters=HALF), target, "a part of each")
        for target in ("nomic_bert", "eurobert", "modernbert")
    ),
    ("universal", "causal-lm", {}, "opt", "computes more than its settings describe"),
    ("llama-style", "sequence-classification", dict(classifier_bias=True), "llama", "classifier has a bias"),
    ("bert-style", "masked-lm", dict(hidden_act="relu"), "roberta", "hidden_act='relu'"),
    ("roformer-style", None, dict(rope_parameters=DYNAMIC), "roformer", "begin at 10000 and have no scaling"),
    ("gptj-style", None, dict(rope_parameters=DYNAMIC), "gptj", "begin at 10000 and have no scaling"),
    ("llama-style", None, dict(rope_parameters=DYNAMIC), "phi3", "its configuration refuses it.*longrope"),
    ("llama-style", None, dict(bos_token_id=None), "cwm", "its configuration refuses it.*bos_token_id"),
    ("llama-style", None, dict(position="rotary-interleaved", head_dim=6), "helium", "head_dim=6, it has 4"),
    ("qwen3-moe-style", None, dict(residual_scaling="layer-scale"), "qwen3_moe", "residual_scaling='layer-scale'"),
    ("deepseek-v3-style", None, dict(attention_out_bias=True), "deepseek_v3", "attention_bias=False"),
    ("gpt-oss-style", None, dict(mlp_bias=False), "gpt_oss", "mlp_bias=False"),
    ("gptj-style", None, dict(position="rotary", qk_norm="head", head_dim=8), "phi", "head_dim=8, it has 4"),
    ("llama-style", None, dict(attention="latent", position="rotary-interleaved"), "minicpm3", "rotary-interleaved"),
    ("deepseek-v3-style", None, dict(attention_scale="hidden-size"), "deepseek_v3", "attention_scale='hidden-size'"),
    ("deepseek-v3-style", None, dict(attention_scale=2.0, head_dim=4), "deepseek_v3", "attention_scale=2.0"),
    ("gemma3-style", None, dict(attn_logit_softcapping=2.0), "gemma3_text", "attn_logit_softcapping=2.0"),
]


@pytest.mark.parametrize(("name", "task", "settings", "target", "message"), REFUSED)
def test_what_is_not_exact_is_refused_with_the_reason(name, task, settings, target, message):
    (plan,) = plan_export(zoo_model(name, task, dtype=torch.float32, **settings), [target])
    assert not plan.exact and re.search(message, plan.why_not)


@pytest.mark.parametrize("target", ["granite", "hyperclovax", "minicpm3"])
def test_logits_that_are_all_zero_are_so_by_their_weights(target):
    name = "llama-style:attention=latent" if target == "minicpm3" else "llama-style"
    (plan,) = plan_export(zoo_model(name, "causal-lm", logit_scale=0.0), [target])
    assert plan.exact and "move-logit-scale" in plan.transforms


def test_without_any_exact_class_the_nearest_is_named(tmp_path):
    with pytest.raises(
        ExportError,
        match=r"no class .* nearest is gpt2: this setting differs: norm_placement='sandwich'.*What works: bundle",
    ):
        zoo.export(zoo_model("sandwich-norm", dtype=torch.float32), tmp_path / "out")


@pytest.mark.parametrize("bias", [False, True])
def test_a_classifier_without_a_bias_goes_to_llama(bias, tmp_path):
    model = zoo_model("llama-style", "sequence-classification", dtype=torch.float32, classifier_bias=bias)
    if bias:
        with torch.no_grad():
            model.classifier.bias.zero_()
    report = zoo.export(model, tmp_path / "out", fresh_process=False)
    assert report.class_name == "LlamaForSequenceClassification"


def test_the_folder_holds_what_transformers_needs(tmp_path):
    model = zoo_model("marian-style", dtype=torch.float32)
    model.save_pretrained(tmp_path / "saved")
    words = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path / "saved")
    report = zoo.export(tmp_path / "saved", tmp_path / "out", fresh_process=False)
    assert report.target == "marian"
    assert {"README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= set(
        report.files
    )
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["MarianMTModel"]
    assert config["tie_word_embeddings"] is True
    assert "auto_map" not in config
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118 - tied, so stored once
    card = (tmp_path / "out" / "README.md").read_text()
    assert "AutoModelForSeq2SeqLM.from_pretrained" in card
    assert f"at most {report.difference.float32:.1e} in float32" in card


def test_half_precision_stays_where_nothing_is_lost(tmp_path):
    exact = zoo_model("llama-style", dtype=torch.bfloat16)
    zoo.export(exact, tmp_path / "exact", fresh_process=False)
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exact", dtype="auto").dtype == torch.bfloat16
    scaled = zoo_model("vanilla", dtype=torch.bfloat16, attention_scale=3.0)
    zoo.export(scaled, tmp_path / "scaled", fresh_process=False)
    assert transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "scaled", dtype="auto").dtype == torch.float32


def test_fragile_symmetries_are_noted():
    model = zoo_model("roberta-prelayernorm-style", "feature-extraction", embedding_norm_eps=1e-3)
    plans = {plan.target: plan for plan in plan_export(model)}
    assert plans["roberta-prelayernorm"].exact
    assert not plans["roberta-prelayernorm"].half_precision
    assert "16-bit" in plans["roberta-prelayernorm"].notes[-1]


def test_a_wrong_export_leaves_nothing(tmp_path, monkeypatch):
    model = zoo_model("vanilla", dtype=torch.float32)

    def broken(state, folder):
        state["model.encoder.layers.0.fc1.bias"] = state["model.encoder.layers.0.fc1.bias"] + 0.01
        save_weights(state, folder)

    monkeypatch.setattr("zoo.converters.native.writing.save_weights", broken)
    with pytest.raises(VerificationError, match="differs by"):
        zoo.export(model, tmp_path / "out", fresh_process=False)
    assert list(tmp_path.iterdir()) == []


def judge(ours, theirs):
    return verification.judge(lambda dtype: ours, {"float32": theirs})


def test_padding_hides_nothing_of_a_sequence():
    batches = {"padded": {"attention_mask": torch.tensor([[1, 1, 0]])}}
    ours = {"padded.output": torch.ones(1, 3, 4)}
    theirs = {"padded.output": torch.tensor([1.0, 1.0, 2.0])[None, :, None].expand(1, 3, 4)}
    real = [verification.only_real(answers, batches, "token-classification") for answers in (ours, theirs)]
    assert judge(*real).float32 == 0.0
    with pytest.raises(VerificationError, match="differs by"):
        judge(*(verification.only_real(answers, batches, "sequence-classification") for answers in (ours, theirs)))


def test_other_tokens_are_an_error():
    same, tokens = torch.ones(2, 3, 4), torch.tensor([[1, 2, 3], [4, 5, 6]])
    ours = {"full.output": same, "generate_greedy.tokens": tokens}
    assert judge(ours, ours).greedy
    with pytest.raises(VerificationError, match="decodes other tokens greedily in 1 of 2 inputs"):
        judge(ours, {**ours, "generate_greedy.tokens": torch.tensor([[1, 2, 3], [4, 5, 7]])})
    with pytest.raises(VerificationError, match="differs by inf"):
        judge(ours, {**ours, "full.output": same * torch.nan})


@pytest.mark.parametrize(
    ("name", "settings", "side", "message"),
    [
        ("gpt2-style", dict(pad_token_id=2), "right", "ends texts with pad_token_id=2"),
        ("gpt2-style", {}, "left", None),
        ("bert-style", {}, "left", "pads on the left"),
        ("bert-style", {}, "right", None),
    ],
)
def test_tokenizers_by_which_a_class_would_read_another_token_are_refused(name, settings, side, message, tmp_path):
    """Classifiers of transformers find the first token by its position, and the last one by the id of padding."""
    tokenizer = train_bpe(["It is 12345"] * 3, vocab_size=300)
    tokenizer.save_pretrained(tmp_path / "saved")
    written = tmp_path / "saved" / "tokenizer_config.json"
    written.write_text(json.dumps({**json.loads(written.read_text()), "padding_side": side}))
    sizes = dict(vocab_size=300, hidden_size=16, num_attention_heads=2, intermediate_size=24)
    zoo.build(name, "sequence-classification", **sizes, **settings).save_pretrained(tmp_path / "saved")
    with pytest.raises(ExportError, match=message) if message else nullcontext():
        zoo.export(tmp_path / "saved", tmp_path / "out", fresh_process=False)


def test_a_model_that_predicts_masked_tokens_earlier_is_noted(tmp_path):
    model = zoo_model("bert-style", "masked-lm", dtype=torch.float32, masked_next_token=True)
    report = zoo.export(model, tmp_path / "out", "bert", fresh_process=False)
    assert any("predicted one position earlier" in note for note in report.notes)
    assert "pipeline_tag" not in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["llama", "qwen2"])
def test_tokenizers_that_a_class_of_models_replaces_are_refused(target, tmp_path):
    """AutoTokenizer makes a Qwen2Tokenizer of any tokenizer next to that class."""
    sizes = dict(vocab_size=300, hidden_size=16, num_attention_heads=2, intermediate_size=24)
    zoo.build("llama-style", **sizes).save_pretrained(tmp_path / "saved")
    train_bpe(["It is 12345"] * 3, vocab_size=300).save_pretrained(tmp_path / "saved")
    if target == "qwen2":
        with pytest.raises(ExportError, match="makes a Qwen2Tokenizer of the tokenizer, with other tokens"):
            zoo.export(tmp_path / "saved", tmp_path / "out", target, fresh_process=False)
        assert not (tmp_path / "out").exists()
    else:
        zoo.export(tmp_path / "saved", tmp_path / "out", target, fresh_process=False)


def test_large_weights_are_sharded(tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.converters.native.writing.SHARD_SIZE", "10KB")
    model = zoo_model("pre-norm", "causal-lm", dtype=torch.float32)
    report = zoo.export(model, tmp_path / "out", fresh_process=False)
    assert sum(name.endswith(".safetensors") for name in report.files) > 1
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert largest_difference(outputs(loaded), outputs(model)) < 1e-6


def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError):
        zoo.export(zoo_model("vanilla"), tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.parametrize("case", ["d2l", pytest.param("llama", marks=pytest.mark.nightly)])
def test_exports_load_where_the_zoo_cannot_be_imported(case, tmp_path):
    name, task, settings, _ = EXACT[case]
    report = zoo.export(zoo_model(name, task, dtype=torch.float32, **settings), tmp_path / "out")
    assert report.target in expected_of(case)
    assert report.difference.float32 < 1e-5 * max(1.0, report.difference.largest)
    assert "Loaded without transformer-zoo" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("faithful", [True, False])
def test_masks_that_a_model_makes_of_ids_have_to_be_given_to_its_export(faithful):
    """Vanilla's original masks padding by itself; without the defect there is no warning."""
    (plan,) = plan_export(zoo_model("vanilla", faithful=faithful), ["marian"])
    assert plan.exact and any("Give attention masks" in note for note in plan.notes) is faithful


def test_scrambling_reaches_everything():
    """The comparisons here mean something only if no norm or bias is left at one or zero."""
    model = scramble(zoo.build("vanilla", vocab_size=20, hidden_size=16, num_attention_heads=4, intermediate_size=24))
    assert all(parameter.unique().numel() > 1 for parameter in model.parameters())
