"""Adapters: LoRA on every linear layer attaches, trains, merges and is loaded again; others go where PEFT puts them."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers_citizen.support import ASSORTED, EVERY, ONE_OF_EACH, SHARING, enough_over, over, single, tiny

import zoo
from zoo.base.errors import CheckpointError, ConfigError, InputError, UnsupportedOperationError
from zoo.converters import convert_back
from zoo.converters.errors import ConversionError, ExportError
from zoo.inside import summary
from zoo.models import learning_rate_factors

peft = pytest.importorskip("peft")
from peft.tuners.tuners_utils import BaseTunerLayer  # noqa: E402 - peft may be missing

TASK_TYPES = {"causal-lm": "CAUSAL_LM", "seq2seq-lm": "SEQ_2_SEQ_LM", "masked-lm": "FEATURE_EXTRACTION"}


def inputs(pair):
    subject = tiny(pair)
    return {**subject.inputs(), "labels": subject.labels()}


def adapted(pair):
    config = peft.LoraConfig(target_modules="all-linear", r=4, lora_alpha=8, task_type=TASK_TYPES[pair[1]])
    return peft.get_peft_model(single(pair), config)


@enough_over((*EVERY, SHARING))
def test_lora_trains_merges_and_reloads(pair, tmp_path: Path):
    model = adapted(pair)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    base = model.get_base_model()
    for name, module in base.named_modules():
        if name.endswith(("q_proj", "down_proj")):
            assert isinstance(module, peft.tuners.lora.LoraLayer), name
    assert not isinstance(base.lm_head, peft.tuners.lora.LoraLayer)

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        loss = model(**inputs(pair)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]

    model.eval()
    expected = tiny(pair).run(model)
    model.save_pretrained(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match=r"holds an adapter of PEFT: .*merge_and_unload"):
        zoo.load(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(single(pair), tmp_path / "adapter").eval()
    torch.testing.assert_close(tiny(pair).run(again), expected)

    merged = again.merge_and_unload()
    rounding = 3e-5 * max(1.0, float(expected.abs().max()))  # a sum of products is rounded otherwise than their product
    torch.testing.assert_close(tiny(pair).run(merged), expected, rtol=0, atol=rounding)
    merged.save_pretrained(tmp_path / "merged")
    loaded = type(merged).from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(tiny(pair).run(loaded), expected, rtol=0, atol=rounding)


@pytest.mark.parametrize("targets", [["lm_head"], ["embed_tokens"], ["embed_tokens", "lm_head"]], ids=" ".join)
@pytest.mark.parametrize(
    ("pair", "options"),
    [
        (("gpt2-style", "causal-lm"), {}),
        (("gpt2-style", "causal-lm"), {"ensure_weight_tying": True}),
        (("bert-style", "masked-lm"), {"use_dora": True}),
        (("t5-style", "seq2seq-lm"), {}),
        (("t5gemma-style", "seq2seq-lm"), {}),
        (("marian-style", "seq2seq-lm"), {}),
    ],
    ids=str,
)
def test_merging_changes_tied_weights_only_where_an_adapter_is(pair, options, targets, tmp_path: Path):
    subject = tiny(pair)
    config = peft.LoraConfig(target_modules=targets, init_lora_weights=False, **options)
    model = peft.get_peft_model(subject.copy(), config).double().eval()
    expected = subject.run(model)
    model.merge_adapter()
    torch.testing.assert_close(subject.run(model), expected)
    model.unmerge_adapter()
    torch.testing.assert_close(subject.run(model), expected)
    merged = model.merge_and_unload()
    torch.testing.assert_close(subject.run(merged), expected)
    merged.tie_weights()
    torch.testing.assert_close(subject.run(merged), expected)
    merged.save_pretrained(tmp_path)
    again = zoo.load(tmp_path, dtype="float64")
    torch.testing.assert_close(subject.run(again), expected)
    again.tie_weights()
    torch.testing.assert_close(subject.run(again), expected)


def test_only_a_merged_model_is_exported(tmp_path: Path):
    pair = ("gpt2-style", "causal-lm")
    config = peft.LoraConfig(target_modules=["q_proj", "lm_head"], init_lora_weights=False)
    model = peft.get_peft_model(tiny(pair).copy(), config).double().eval()
    expected = tiny(pair).run(model)
    for adapted in (model, model.get_base_model()):
        with pytest.raises(ExportError, match=r"merge them first: PEFT's model.merge_and_unload\(\)"):
            zoo.export(adapted, tmp_path / "out", "gpt2")
        for refused in (
            zoo.to_int8,
            zoo.eject,
            lambda one: zoo.push(one, "someone/model", dry_run=True),
            convert_back,
        ):
            with pytest.raises(UnsupportedOperationError, match="a model with adapters was given; merge them"):
                refused(adapted)
        with pytest.raises(ConversionError, match="a model with adapters was given; merge them"):
            zoo.convert(adapted)
    zoo.export(model.merge_and_unload(), tmp_path / "out", "gpt2", fresh_process=False)
    torch.testing.assert_close(tiny(pair).run(zoo.convert(tmp_path / "out").double().eval()), expected)


def test_a_model_with_adapters_is_evaluated_with_them(tmp_path: Path):
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat on the mat\nthe dog ran to the park\n" * 20, encoding="utf-8")
    zoo.train("gpt2-style@tiny", "language-modeling", data=texts, max_steps=1, output_dir=tmp_path / "model")
    given: dict[str, Any] = {"data": texts, "tokenizer": tmp_path / "model"}
    config = peft.LoraConfig(target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    torch.manual_seed(0)
    model = peft.get_peft_model(zoo.load(tmp_path / "model"), config)
    loss = zoo.evaluate(model, "language-modeling", **given).loss
    assert summary(model).total == model.get_base_model().num_parameters()
    with pytest.raises(InputError, match=r"PeftModel was given; .*model.add_adapter\(config\)"):
        zoo.train(model, "language-modeling", max_steps=1, **given)
    written = zoo.generate(model, "the cat", tokenizer=tmp_path / "model", max_new_tokens=4)[0].text
    merged = model.merge_and_unload()
    assert zoo.evaluate(merged, "language-modeling", **given).loss == pytest.approx(loss, rel=1e-5)
    assert zoo.evaluate(tmp_path / "model", "language-modeling", data=texts).loss != pytest.approx(loss, rel=1e-3)
    assert zoo.generate(merged, "the cat", tokenizer=tmp_path / "model", max_new_tokens=4)[0].text == written
    prompted = peft.get_peft_model(merged, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    with pytest.raises(UnsupportedOperationError, match=r"learned prompt \(PROMPT_TUNING\)"):
        zoo.evaluate(prompted, "language-modeling", **given)


def test_a_folder_with_an_adapter_next_to_weights_is_refused(tmp_path: Path):
    model = tiny(("llama-style", "causal-lm")).copy()
    model.add_adapter(peft.LoraConfig(target_modules=["q_proj"]))
    model.save_pretrained(tmp_path)
    with pytest.raises(ConversionError, match=r"is no file, nor a folder .*; it holds an adapter of PEFT"):
        zoo.convert(tmp_path)
    tiny(("llama-style", "causal-lm")).model.save_pretrained(tmp_path)
    for task in (None, "feature-extraction"):
        with pytest.raises(CheckpointError, match="has an adapter next to its weights"):
            zoo.load(tmp_path, task)


def test_adapters_have_no_learning_rates_of_mup():
    config = peft.LoraConfig(target_modules=["q_proj"])
    plain, scaled = (single(("llama-style", "causal-lm"), parametrization=one) for one in ("standard", "mup"))
    assert set(learning_rate_factors(peft.get_peft_model(plain, config)).values()) == {1.0}
    scaled.add_adapter(config)
    with pytest.raises(ConfigError, match="give adapters one learning rate"):
        learning_rate_factors(scaled)


def test_an_adapter_of_a_projection_with_factors_is_not_merged():
    model = peft.get_peft_model(single(("ngpt", "causal-lm")), peft.LoraConfig(target_modules=["lm_head"]))
    with pytest.raises(UnsupportedOperationError, match="leave the adapter unmerged"):
        model.merge_and_unload()


@pytest.mark.parametrize("targets", [None, ["norm_in", "norm_out", "norm_branch", "q_norm", "norm"]], ids=str)
@over(ASSORTED, (*ONE_OF_EACH, ("llama-style", "causal-lm")))
def test_norms_are_tuned_where_a_block_has_some(pair, targets, tmp_path: Path):
    subject = tiny(pair)
    model = peft.get_peft_model(subject.copy(), peft.LNTuningConfig(target_modules=targets)).eval()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert trained
    for parameter in trained:
        torch.nn.init.normal_(parameter)
    expected = subject.run(model)
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(subject.run(peft.PeftModel.from_pretrained(subject.copy(), tmp_path).eval()), expected)
    torch.testing.assert_close(subject.run(model.merge_and_unload()), expected)
    assert not torch.allclose(subject.run(), expected)


@pytest.mark.parametrize("variant", ["rezero", "gpt-bert-style"])
def test_norms_are_not_tuned_where_none_has_weights(variant):
    with pytest.raises(UnsupportedOperationError, match="LNTuning has nothing to tune; target others"):
        peft.get_peft_model(single((variant, "causal-lm")), peft.LNTuningConfig())


@over((*ASSORTED, SHARING), (*ONE_OF_EACH, SHARING))
@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (peft.LoraConfig(), {"q_proj", "v_proj"}),
        (peft.AdaLoraConfig(total_step=10), {"q_proj", "v_proj"}),
        (peft.IA3Config(), {"k_proj", "v_proj", "down_proj"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_without_target_modules_adapters_go_where_they_do_in_llama(pair, config, layers):
    model = peft.get_peft_model(single(pair), copy.deepcopy(config))
    adapted = {name for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)}
    assert {name.rpartition(".")[2] for name in adapted} == layers
    base = {name for name, _ in single(pair).named_modules() if name.rpartition(".")[2] in layers}
    assert {name.removeprefix("base_model.model.") for name in adapted} == base
    model(**inputs(pair)).loss.backward()
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


@over(ASSORTED)
def test_an_adapter_is_added_by_transformers_itself(pair, tmp_path: Path):
    model = single(pair)
    model.add_adapter(peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    with_adapter = tiny(pair).run(model)
    model.save_pretrained(tmp_path)
    model.disable_adapters()
    assert not torch.allclose(tiny(pair).run(model), with_adapter)
    again = single(pair)
    again.load_adapter(tmp_path)
    torch.testing.assert_close(tiny(pair).run(again), with_adapter)


@pytest.mark.parametrize(
    ("name", "task", "head"),
    [
        ("bert-style@tiny", "sequence-classification", "SequenceClassification"),
        ("bert-style@tiny", "token-classification", "TokenClassification"),
        ("bert-style@tiny", "masked-lm", "MaskedLM"),
        ("gpt2-style@tiny", "causal-lm", "SequenceClassification"),
        ("universal@tiny", "sequence-classification", "SequenceClassification"),
        ("pre-norm@tiny:position=t5", "sequence-classification", "SequenceClassification"),
        ("pre-norm@tiny:position=rotary,sliding_window=2", "token-classification", "TokenClassification"),
    ],
)
def test_prefix_tuning_trains_and_knows_its_prefix_from_padding(name, task, head):
    torch.manual_seed(0)
    types = {"SequenceClassification": "SEQ_CLS", "TokenClassification": "TOKEN_CLS"}
    model = getattr(zoo.models, f"ZooFor{head}")(zoo.config(name, task, vocab_size=30))
    config = peft.PrefixTuningConfig(task_type=types.get(head, "FEATURE_EXTRACTION"), num_virtual_tokens=3)
    model = peft.get_peft_model(model, config).eval()
    ids = torch.randint(5, 30, (2, 6))
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    padded, alone = model(input_ids=ids, attention_mask=mask), model(input_ids=ids[1:, :4], attention_mask=mask[1:, :4])
    read = slice(4) if alone.logits.ndim == 3 else slice(None)
    torch.testing.assert_close(padded.logits[1, read], alone.logits[0], atol=1e-5, rtol=1e-5)
    padded.logits.square().sum().backward()
    prefix = model.prompt_encoder["default"].embedding.weight
    assert prefix.grad is not None
    assert prefix.grad.any()


def test_lora_trains_with_checkpointing():
    pair = ("llama-style", "causal-lm")
    plain, checkpointed = (adapted(pair) for _ in range(2))
    checkpointed.load_state_dict(plain.state_dict())
    checkpointed.train()
    checkpointed.enable_input_require_grads()
    checkpointed.gradient_checkpointing_enable({"use_reentrant": True})
    for model in (plain, checkpointed):
        model(**inputs(pair)).loss.backward()
    for (name, one), other in zip(plain.named_parameters(), checkpointed.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, msg=name)
