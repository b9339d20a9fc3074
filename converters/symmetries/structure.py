"""Symmetries of what a model consists of: copies, missing biases, padding."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from zoo.models import ZooConfig

from .base import DENSE_PARTS, SYMMETRIES, State, Symmetry, change, change_by_stack, pad, stacks


class CopySharedLayers(Symmetry, name="copy-shared-layers", rank=20, field="share_layers"):
    """Give every layer its own copy of the weights that all of them share."""

    summary = "shared layers copied"

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        kinds_differ = getattr(config, "first_k_dense_replace", 0)  # unless they are shared
        return wanted is False and not kinds_differ

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        for prefix, stack in stacks(config).items():
            first = {name: tensor for name, tensor in state.items() if name.startswith(f"{prefix}layers.0.")}
            for layer in range(1, stack.num_hidden_layers):
                of_layer = f"{prefix}layers.{layer}."
                state = state | {name.replace(f"{prefix}layers.0.", of_layer): one for name, one in first.items()}
        return state


@dataclass(frozen=True)
class SettingOnly(Symmetry):
    """A change of a setting for which the weights are ready, as they are listed under every name."""

    name: str
    field: str
    given: tuple[Any, ...]
    result: Any
    summary: str
    rank: int = 0

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """From one of the given values to the result."""
        return getattr(config, self.field) in self.given and bool(wanted == self.result)

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        return state


SHARED, MASKED = "share_encoder_decoder_embeddings", ("masked-rows-uniform", "masked-rows-nan")
UNTIED = "output projection stored apart from the embedding"
BLIND = "queries that see no key at all are left to the class, everything else stays"  # which promises nothing there
for _one in (
    SettingOnly("untie-output", "tie_word_embeddings", (True,), False, UNTIED),
    SettingOnly("separate-embeddings", SHARED, (True,), False, "source and target embedding stored apart", 30),
    SettingOnly("ignore-blind-rows", "attention", MASKED, "multi-head", BLIND, 10),
):
    SYMMETRIES.register(_one.name, _one, module=__name__)


class ZeroTokenTypes(Symmetry, name="zero-token-types", rank=15, field="type_vocab_size"):
    """Add token types that all have the same vector, zero."""

    summary = "token types of zeros"

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        return config.type_vocab_size is None and bool(wanted)

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        types = state["model.embed_tokens.weight"].new_zeros(wanted, config.embedding_width)
        return {**state, "model.token_types.weight": types}


@dataclass(frozen=True)
class ZeroBias(Symmetry):
    """Add a bias of zeros."""

    name: str
    field: str
    layers: str  # Regular expression of the weights of the layers that lack it
    summary: str
    rank: int

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        lacking = {"attention_bias": config.attention == "latent", "mlp_bias": config.feed_forward not in DENSE_PARTS}
        return wanted is True and not lacking.get(self.field)

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        lacking = [name for name in state if re.search(self.layers, name)]
        added = {name.removesuffix("weight") + "bias": state[name].new_zeros(len(state[name])) for name in lacking}
        return {**state, **added}


GATE_OR_QKV = r"_attn\.([qkv]|gate)_proj\.weight$"
DENSE = r"^transform\.dense\.weight$"
OUT, NETWORK = r"_attn\.o_proj\.weight$", r"\.mlp\.\w+_proj\.weight$"
for _place, _field, _rank, _layers, _summary in (
    ("attention", "attention_bias", 140, GATE_OR_QKV, "biases of zeros for queries, keys and values"),
    ("attention-out", "attention_out_bias", 150, OUT, "biases of zeros for attention's output"),
    ("feed-forward", "mlp_bias", 160, NETWORK, "biases of zeros for the feed-forward network"),
    ("transform", "lm_head_transform_bias", 165, DENSE, "a bias of zeros for the transform of the output"),
    ("output", "lm_head_bias", 40, r"^lm_head\.weight$", "a bias of zeros for the output projection"),
    ("classifier", "classifier_bias", 200, r"^classifier\.weight$", "a bias of zeros for the classifier"),
):
    _bias = ZeroBias(f"zero-{_place}-bias", _field, _layers, _summary, _rank)
    SYMMETRIES.register(_bias.name, _bias, module=__name__)


class RepeatKeyValueHeads(Symmetry, name="repeat-key-value-heads", rank=110, field="num_key_value_heads"):
    """Turn grouped queries into plain multi-head attention: every query head gets its own copy of keys and values."""

    summary = "key and value heads repeated for every query head"

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """To that of queries, unless a norm on all of a token's keys has a weight for each of their channels."""
        return bool(wanted == config.num_attention_heads and config.qk_norm != "full")

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        def repeat(stack: ZooConfig, tensor: Tensor) -> Tensor:
            heads, groups = stack.num_key_value_heads, stack.num_attention_heads // stack.num_key_value_heads
            return tensor.unflatten(0, (heads, -1)).repeat_interleave(groups, dim=0).flatten(0, 1)

        return change_by_stack(state, r"_attn\.[kv]_proj\.(weight|bias)$", config, repeat)


class PadSourceVocabulary(Symmetry, name="pad-source-vocabulary", rank=50, field="vocab_size"):
    """Append source embeddings that no id asks for."""

    summary = "source embedding padded to the larger vocabulary"

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        return bool(wanted > config.vocab_size)

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        return change(state, r"^model\.encoder\.embed_tokens\.weight$", pad(wanted))


class PadTargetVocabulary(Symmetry, name="pad-target-vocabulary", rank=60, field="decoder_vocab_size"):
    """Append target ids that are never predicted."""

    summary = "target ids padded to the larger vocabulary, the new ones with an output bias of -1e9"
    half_precision = False

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """To a larger vocabulary, if an output bias can switch the new ids off."""
        return bool(wanted > config.decoder_vocab_size and config.lm_head_bias)

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        state = change(state, [r"^model\.decoder\.embed_tokens\.weight$", r"^lm_head\.weight$"], pad(wanted))
        return change(state, r"^lm_head\.bias$", pad(wanted, -1e9))


class PadFeedForward(Symmetry, name="pad-feed-forward", rank=170, field="intermediate_size"):
    """Append inner channels of the feed-forward network that nothing reads."""

    summary = "feed-forward network padded to a larger inner width"

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """To a larger width of one dense network; an encoder-decoder's stacks may differ, so it is left alone."""
        one_network = config.stack != "encoder-decoder" and config.feed_forward in DENSE_PARTS
        return bool(one_network and wanted > config.intermediate_size and not config.mlp_inner_norm)

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        state = change(state, r"\.mlp\.(up|gate)_proj\.(weight|bias)$", pad(wanted))
        return change(state, r"\.mlp\.down_proj\.weight$", pad(wanted, dim=1))
