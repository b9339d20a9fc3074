"""What decides about speed and no busy machine can change: operations, operators, breaks in graphs.

Numbers are compared with those of transformers' own classes. Operators are counted outside of the innermost modules:
what a linear layer or a norm calls is PyTorch's business, what is between them is ours.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from every_variant import EACH
from native_dense import ALBERT, MODERN_BERT
from native_experts import DEEPSEEK, KIMI, LFM2, QWEN3_NEXT
from native_models import BART, ENCODER, GPT2, LLAMA, NATIVE_CASES, T5, native_model
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from transformers import DynamicCache, EncoderDecoderCache

import zoo
from zoo.analysis.measuring import OperatorCounter, executed
from zoo.fast import unpadding
from zoo.fast.switches import fast_paths
from zoo.models.transformer import transformer_of
from zoo.registry import VARIANTS

pytestmark = pytest.mark.thorough

IDS = torch.arange(3, 17).view(2, 7)


class Native(NamedTuple):
    """A class of transformers, and what its configuration calls the depths of its stacks."""

    family: str
    head: str
    settings: dict[str, Any]
    depths: tuple[str, ...] = ("num_hidden_layers",)

    def build(self, *layers: int) -> Any:
        settings = {**self.settings, **dict(zip(self.depths, layers, strict=True))}
        config = getattr(transformers, f"{self.family}Config")(**settings)
        return getattr(transformers, self.family + self.head)(config).eval()


class OfTwoStacks(Native):
    """The same where each stack has a configuration of its own."""

    def build(self, *layers: int) -> Any:
        stacks = zip(("encoder", "decoder"), layers, strict=True)
        settings = {stack: {**self.settings, "num_hidden_layers": depth} for stack, depth in stacks}
        return Native(self.family, self.head, settings, ()).build()


class EveryOther(Native):
    """The same where every other layer has no attention."""

    def build(self, *layers: int) -> Any:
        settings = {**self.settings, "layer_types": ["linear_attention", "full_attention"] * (layers[0] // 2)}
        return Native(self.family, self.head, settings).build(*layers)


DEEP = ("n_layer",)
EVERY_OTHER = {"layer_types": None, "full_attention_interval": 2}
HYBRIDS = {**dict.fromkeys(("kimi-linear-style", "qwen3-next-style"), "linear_attention"), "lfm2-style": "conv"}
"""Kinds of layers without attention; every other layer is one here."""
BERT = Native("Bert", "ForMaskedLM", ENCODER)
NATIVES = {
    "bert-style": BERT,
    "gpt2-style": Native("GPT2", "LMHeadModel", GPT2, DEEP),
    "llama-style": Native("Llama", "ForCausalLM", LLAMA),
    "gptj-style": Native(
        "GPTJ", "ForCausalLM", {"vocab_size": 23, "n_embd": 16, "n_head": 4, "rotary_dim": 4, "n_positions": 20}, DEEP
    ),
    "gemma2-style": Native("Gemma2", "ForCausalLM", {**LLAMA, "head_dim": 4, "attn_implementation": "eager"}),
    "alibi-decoder": Native("Bloom", "ForCausalLM", {"vocab_size": 23, "hidden_size": 16, "n_head": 4}, DEEP),
    "marian-style": Native("Marian", "MTModel", BART, ("encoder_layers", "decoder_layers")),
    "t5-style": Native("T5", "ForConditionalGeneration", T5, ("num_layers", "num_decoder_layers")),
}
EXPERTS = {**LLAMA, "num_experts_per_tok": 2}
NATIVES |= {
    "mixtral-style": Native("Mixtral", "ForCausalLM", {**EXPERTS, "num_local_experts": 4}),
    "qwen3-moe-style": Native("Qwen3Moe", "ForCausalLM", {**EXPERTS, "num_experts": 4, "moe_intermediate_size": 24}),
}
NATIVES["deepseek-moe"] = NATIVES["mixtral-style"]
NATIVES["gpt-oss-style"] = Native("GptOss", "ForCausalLM", {**EXPERTS, "num_local_experts": 4})
NATIVES["deepseek-v3-style"] = Native("DeepseekV3", "ForCausalLM", {**DEEPSEEK, "num_experts_per_tok": 2})
LLAMAS = ("qk-norm", "olmo2-style", "qwen3-style", "smollm3-style", "value-residual", "ngpt", "multi-token-prediction")
NATIVES |= dict.fromkeys(LLAMAS, NATIVES["llama-style"])
NATIVES |= {"diff-transformer": Native("DiffLlama", "ForCausalLM", LLAMA)}
NATIVES |= {"nanochat-style": Native("NanoChat", "ForCausalLM", LLAMA)}
NATIVES |= {"olmo3-style": Native("Olmo3", "ForCausalLM", LLAMA), "gemma3-style": NATIVES["gemma2-style"]}
NATIVES |= {"modernbert-style": Native("ModernBert", "ForMaskedLM", {**MODERN_BERT, "layer_types": None})}
NATIVES |= {
    "qwen3-next-style": Native("Qwen3Next", "ForCausalLM", {**QWEN3_NEXT, **EVERY_OTHER}),
    "lfm2-style": Native("Lfm2", "ForCausalLM", {**LFM2, "layer_types": None, "full_attn_idxs": [1, 3]}),
}
NATIVES |= {"kimi-linear-style": EveryOther("KimiLinear", "ForCausalLM", {**KIMI, "num_experts_per_tok": 2})}
NATIVES |= {"albert-style": Native("Albert", "ForMaskedLM", ALBERT)}
NATIVES |= {
    "t5gemma-style": OfTwoStacks(
        "T5Gemma", "ForConditionalGeneration", {**LLAMA, "head_dim": 4}, ("encoder", "decoder")
    )
}
NATIVES |= {"roformer-style": Native("RoFormer", "ForMaskedLM", {**ENCODER, "embedding_size": 16})}
NATIVES |= dict.fromkeys(("gpt-neox-style", "falcon-style"), NATIVES["gptj-style"])
NATIVES |= {"bloom-style": NATIVES["alibi-decoder"]}
BY_STACK = {"encoder": BERT, "decoder": NATIVES["gpt2-style"], "encoder-decoder": NATIVES["marian-style"]}
"""What variants without a published model are measured by."""


def between_modules(model: nn.Module, run: Callable[[], object]) -> int:
    """Operators that a run calls outside of the innermost modules."""
    inside, began = 0, []

    def enter(module: nn.Module, _: Any) -> None:
        if module in innermost:
            began.append(counter.calls.total())

    def leave(module: nn.Module, *_: Any) -> None:
        nonlocal inside
        if module in innermost:
            inside += counter.calls.total() - began.pop()

    innermost = {module for module in model.modules() if not any(module.children())}
    # Of all modules: some compute in another way where they have hooks of their own.
    hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]
    with torch.no_grad(), OperatorCounter() as counter:
        run()
    for hook in hooks:
        hook.remove()
    return counter.calls.total() - inside


def reads(model: Any) -> int:
    """Operators of reading a batch."""
    inputs = {"input_ids": IDS}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = IDS[:, :5].contiguous()
    if model.can_generate():
        inputs["use_cache"] = False
    return between_modules(model, lambda: model(**inputs))


def writes(model: Any) -> int:
    """Operators of one more token with a cache."""
    options: dict[str, Any] = {"use_cache": True}
    name, cache = "input_ids", DynamicCache(config=model.config)
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            options["encoder_outputs"] = model.get_encoder()(input_ids=IDS)
            options["attention_mask"] = torch.ones_like(IDS)
            name, cache = "decoder_input_ids", EncoderDecoderCache(DynamicCache(), DynamicCache())
        model(**{name: IDS[:, :3]}, past_key_values=cache, **options)
    return between_modules(model, lambda: model(**{name: IDS[:, 3:4]}, past_key_values=cache, **options))


def a_layer_and_the_rest(count: Callable[[Any], int], build: Callable[..., Any], stacks: int) -> tuple[list[int], int]:
    """Operators that each stack's next layers add, and those of a model without layers."""
    depths = (2,) * stacks
    few = count(build(*depths))
    added = []
    for stack in range(stacks):
        deeper = (*depths[:stack], 4, *depths[stack + 1 :])  # two more, because layers may alternate
        added.append(count(build(*deeper)) - few)
    return added, few - sum(added)


@cache
def of_native(count: Callable[[Any], int], name: str, stack: str) -> tuple[list[int], int]:
    native = NATIVES.get(name, BY_STACK[stack])
    return a_layer_and_the_rest(count, native.build, len(native.depths))


MORE_A_LAYER = {
    "t5-style": 1,
    "normformer": 1,
    "hyper-connections": 65,
    "manifold-hyper-connections": 36,
    "gated-hyper-connections": 37,
    "attention-residuals": 3,
    "deepseek-moe": 2,
    "deepseek-v3-style": 1,
    "gpt-oss-style": 30,
    "value-residual": 5,
    "ngpt": 30,
    "ltg-bert-style": 56,
    "gpt-bert-style": 77,
}
"""Operators that variants need and their measure does not: a bias that is cut to its place, heads that are scaled,
streams that are read, mixed and written, an expert that every token sees, sinks that
are written as keys (which any backend then takes), values of the first layer that are mixed in, weight vectors that
are normalised, buckets of distances and the scores of contents with them, mixtures over depth."""

MORE_A_MODEL = {
    reads: {
        "encoder-decoder": 34,
        "t5-style": 23,
        "alibi-decoder": 5,
        "bloom-style": 5,
        "ltg-bert-style": 4,
        "gpt-bert-style": 4,
        "manifold-hyper-connections": 6,
        "gated-hyper-connections": 10,
        **dict.fromkeys(HYBRIDS, 5),
    },
    writes: {"encoder-decoder": 5, "t5-style": 3, "manifold-hyper-connections": 7, "gated-hyper-connections": 10},
}
"""The same outside of layers: tables of sines are computed and not kept, source and target masked by one rule,
positions looked at for documents packed into one row."""


@pytest.mark.parametrize("count", [reads, writes])
@pytest.mark.parametrize("name", EACH)
def test_a_layer_calls_no_more_operators_than_transformers_own(name, count):
    task = VARIANTS.get(name).default_task
    stacks = 2 if task == "seq2seq-lm" else 1
    stack = zoo.config(f"{name}@tiny").stack
    if count is writes and stack == "encoder":
        return

    def build(*layers: int) -> Any:
        depths: dict[str, Any] = dict(zip(("num_hidden_layers", "decoder_layers"), layers, strict=False))
        if name in HYBRIDS:
            depths["layer_types"] = [HYBRIDS[name], "full_attention"]
        return zoo.build(f"{name}@tiny", vocab_size=20, **depths)

    layers, rest = a_layer_and_the_rest(count, build, stacks)
    their_layers, their_rest = of_native(count, name, stack)
    for ours, theirs in zip(layers, their_layers, strict=True):
        assert ours <= theirs + 2 * MORE_A_LAYER.get(name, 0), (layers, their_layers)
    more = MORE_A_MODEL[count]
    assert rest <= their_rest + more.get(name, more.get(stack, 0)), (rest, their_rest)


@pytest.mark.parametrize(
    "case",
    [
        *("Bert-0-ForMaskedLM", "RobertaPreLayerNorm-0-ForMaskedLM", "GPT2-0-LMHeadModel", "Llama-0-ForCausalLM"),
        *("Qwen3-0-ForCausalLM", "OPT-0-ForCausalLM", "T5-0-ForConditionalGeneration", "Marian-0-MTModel"),
        *("Bart-0-ForConditionalGeneration", "Bert-0-ForSequenceClassification"),
    ],
)
def test_a_training_step_takes_the_operations_of_transformers_own(case):
    native = native_model(*NATIVE_CASES[case], dtype=torch.float32)
    ours = zoo.convert(native)

    def step(model: Any) -> int:
        labels = torch.tensor([0, 1]) if case.endswith("Classification") else IDS
        model.train()
        return executed(lambda: torch.autograd.backward(model(input_ids=IDS, labels=labels).loss)).flops

    assert 0 < step(ours) <= step(native)


@pytest.mark.parametrize("name", EACH)
def test_without_padding_tokens_alone_are_worked_on(name, monkeypatch):
    monkeypatch.setattr(unpadding, "SHORT", 0)
    body = zoo.build(f"{name}@tiny", vocab_size=20).base_model
    mask = (torch.arange(7) < torch.tensor([[7], [2]])).long()
    inputs: dict[str, Any] = {"input_ids": IDS, "attention_mask": mask}
    if body.config.stack != "encoder":
        inputs["use_cache"] = False
    if body.config.is_encoder_decoder:
        inputs |= {"decoder_input_ids": IDS, "decoder_attention_mask": mask}

    def work(mode: str) -> int:
        with fast_paths(unpadding=mode), torch.no_grad():
            return executed(lambda: body(**inputs)).flops

    supports_unpadding = transformer_of(body.config).can_unpad(body.config) and body.supported_backends()[0] == "sdpa"
    share = mask.float().mean().item() if supports_unpadding else 1.0
    assert work("always") <= share * work("never")


HEADS = (
    *(("pre-norm", task) for task in ("sequence-classification", "token-classification", "feature-extraction")),
    ("llama-style", "causal-lm"),
)
"""One of each that tests of training, which compile every variant, do not train."""


@pytest.mark.parametrize(("name", "task"), HEADS)
def test_one_graph_holds_the_whole_forward(name, task):
    model = zoo.build(f"{name}@tiny:num_hidden_layers=2", task, vocab_size=20, num_labels=3)
    inputs = {"input_ids": IDS}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = IDS[:, :5].contiguous()
    torch.compiler.reset()
    torch.compile(model, fullgraph=True, backend="eager")(**inputs)
