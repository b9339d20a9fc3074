"""Symmetries that move factors from one place to another, and those of position encodings."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zoo.models import POSITIONS, ZooConfig
from zoo.models.attention import attention_scaling
from zoo.models.residual import deepnorm_constants
from zoo.registry import Task

from ..transforms import evens_then_odds, pairs_to_halves, permute
from .base import (
    DENSE_PARTS,
    NORM_WEIGHTS,
    SYMMETRIES,
    State,
    Symmetry,
    change,
    change_by_stack,
    scale,
    settled,
    stacks,
)

PLAIN_ATTENTIONS = ("multi-head", "masked-rows-uniform", "masked-rows-nan")  # Parts with four projections of the stream

QUERY_KEY_VALUE = r"\.(self_attn|cross_attn)\.[qkv]_proj\.weight$"
QUERY = r"\.(self_attn|cross_attn)\.q_proj\.(weight|bias)$"
FEED_FORWARD_IN = r"\.mlp\.(up|gate)_proj\.weight$"
WRITERS = r"\.(o_proj|down_proj)\.(weight|bias)$"
LAYER_NORMS = r"\.norm_(in|branch|out)\.(weight|bias)$"
EMBEDDING_NORM = r"\.embedding_norm\.(weight|bias)$"
FINAL_NORM = r"^model(\.encoder|\.decoder)?\.norm\.(weight|bias)$"
EMBEDDINGS = r"\.embed_tokens\.weight$"


def has_plain_layers(config: ZooConfig) -> bool:
    """Whether the weights in layers that read or write the residual stream are those of the patterns above alone."""
    plain = config.attention in PLAIN_ATTENTIONS and config.mixer_layer_type is None
    return plain and config.feed_forward in DENSE_PARTS and config.residual == "plain"


def layer_readers(cross: bool = True) -> list[str]:
    """The weights in layers with columns for the channels of the residual stream."""
    if cross:
        return [QUERY_KEY_VALUE, FEED_FORWARD_IN]
    return [r"\.self_attn\.[qkv]_proj\.weight$", r"\.cross_attn\.q_proj\.weight$", FEED_FORWARD_IN]


def head_readers(state: State) -> list[str]:
    """The weights after the last layer with columns for the channels of the residual stream."""
    pairs = (("transform.dense.weight", "lm_head.weight"), ("pooler.dense.weight", "classifier.weight"))
    return [f"^{re.escape(first if first in state else last)}$" for first, last in pairs]


def tables(config: ZooConfig) -> str:
    """The tables of vectors that are summed before the first layer."""
    positions = "|position" if config.position.startswith("learned") else ""
    return rf"\.(embed_tokens|token_types{positions})\.weight$"


class PermuteResidual(Symmetry, name="permute-residual", rank=120, field="position"):
    """Reorder the channels of the residual stream, so that alternating sines and cosines become two halves."""

    summary = "channels of the residual stream reordered: sines first, then cosines"

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """From "sinusoidal" to "sinusoidal-halves". Hidden states are permuted, so only heads make up for it."""
        possible = config.hidden_size % 2 == 0 and task != Task.FEATURE_EXTRACTION and has_plain_layers(config)
        return possible and (config.position, wanted) == ("sinusoidal", "sinusoidal-halves")

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        order = evens_then_odds(config.hidden_size)
        columns, rows = permute(order), permute(order, dim=0)
        state = change(state, [*layer_readers(), *head_readers(state), tables(config)], columns)
        state = change(state, [WRITERS, LAYER_NORMS, EMBEDDING_NORM, FINAL_NORM, r"_residual\.scale\.weight$"], rows)
        if "transform.dense.weight" in state:
            # The output projection may be tied to the permuted embedding, so what it reads is permuted as well.
            state = change(state, [r"^transform\.(dense|norm)\."], rows)
            state = change(state, [r"^lm_head\.weight$"], columns)
        return state


class StoreTable(Symmetry, name="store-table", rank=120, field="position"):
    """Keep the rows of a computed encoding, or zeros for none, as if they had been learned."""

    summary = "positions stored as a table of max_position_embeddings rows"

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """From either sinusoidal layout or "none" to "learned"."""
        return wanted == "learned" and config.position in (*COMPUTED_TABLES, "none")

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        added = {}
        positions = torch.arange(config.max_position_embeddings)[None]
        for prefix in stacks(config):
            embedding = state[f"{prefix}embed_tokens.weight"]
            zeros = torch.zeros(1, len(positions[0]), config.embedding_width)
            rows = POSITIONS.get(config.position)(config.embedding_config()).embed(zeros, positions)[0]
            added[f"{prefix}position.weight"] = rows.to(embedding.dtype)
        return {**state, **added}


@dataclass(frozen=True)
class RotaryLayout(Symmetry):
    """Reorder the columns of rotated heads, so that other columns form pairs."""

    name: str
    summary: str
    layouts: tuple[str, str]  # The position before and after
    field: str = "position"
    rank: int = 120

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """From one layout to the other, unless queries are normalised after their projection, or rotated in part."""
        possible = config.qk_norm is None and config.attention != "latent"
        return possible and (config.position, wanted) == self.layouts

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        factor = config.rope_parameters.get("partial_rotary_factor", 1.0)

        def reorder(stack: ZooConfig, tensor: Tensor) -> Tensor:
            halves = pairs_to_halves(len(tensor) // stack.head_dim, int(stack.head_dim * factor))
            return (halves if wanted == "rotary" else halves.inverse)(tensor)

        return change_by_stack(state, r"self_attn\.[qk]_proj\.(weight|bias)$", config, reorder)


for name, word, layouts in (
    ("split-rotary-halves", "half-split", ("rotary-interleaved", "rotary")),
    ("interleave-rotary-pairs", "interleaved", ("rotary", "rotary-interleaved")),
):
    summary = f"columns of queries and keys reordered for the {word} rotary layout"
    SYMMETRIES.register(name, RotaryLayout(name, summary, layouts), module=__name__)

COMPUTED_TABLES = ("sinusoidal", "sinusoidal-halves")
"""Positions that are added to embeddings and cannot be scaled, as nothing of them is stored."""

SCALE_FREE_NORMS = ("layernorm", "rmsnorm")
"""Norms with an output that does not depend on the scale of the input, but for their epsilon."""


class MoveAttentionScale(Symmetry, name="move-attention-scale", rank=130, field="attention_scale"):
    """Multiply queries by what scores are to be divided by instead."""

    summary = "attention's scale moved into the query projections"

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """To any other scale, unless queries are normalised after their projection, or rotated in part (latent)."""
        return config.qk_norm is None and config.attention != "latent"

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        def rescale(stack: ZooConfig, tensor: Tensor) -> Tensor:
            return tensor * (attention_scaling(stack) / attention_scaling(settled(stack, {"attention_scale": wanted})))

        return change_by_stack(state, QUERY, config, rescale)


class MoveEmbeddingScale(Symmetry, name="move-embedding-scale", rank=80, field="scale_embedding", unties=True):
    """Store token embeddings with, or without, the factor sqrt(hidden_size)."""

    summary = "sqrt(hidden_size) moved between the embedding and its table"

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        factor = math.sqrt(config.embedding_width)
        return change(state, EMBEDDINGS, scale(factor if config.scale_embedding else 1 / factor))


class MoveLogitScale(Symmetry, name="move-logit-scale", rank=70, field="logit_scale", unties=True):
    """Move the factor on the logits into the output projection, or out of it."""

    summary = "the logits' factor moved into the output projection"

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        return change(state, r"^lm_head\.", scale(config.logit_scale / wanted))


class FoldResidualScale(Symmetry, name="fold-residual-scale", rank=90, field="residual_scaling"):
    """Multiply LayerScale's or ReZero's weights into the projections before them."""

    summary = "learned scales on the branches folded into the projections before them"

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """From any to none, unless a norm is between projection and scale, or experts are."""
        between = config.norm_placement in ("sandwich", "res-post") or config.parallel_residual
        return wanted is None and not between and config.feed_forward in DENSE_PARTS

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        scales = [name for name in state if name.endswith("_residual.scale.weight")]
        changed = {name: tensor for name, tensor in state.items() if name not in scales}
        for name in scales:
            sublayer, factors = re.escape(name.removesuffix("_residual.scale.weight")), state[name]
            last = rf"^{sublayer}\.(down_proj|o_proj|out_proj)\.(weight|bias)$"
            changed = change(changed, last, scale(factors if factors.numel() > 1 else factors.item()))
        return changed


class DivideByDeepNormAlpha(Symmetry, name="divide-by-deepnorm-alpha", rank=100, field="norm_placement"):
    """`norm(alpha x + f(x))` is `norm(x + f(x) / alpha)` with an epsilon divided by alpha squared."""

    summary = "DeepNorm's factor on the skip connections turned into one on the branches"

    def settings(self, config: ZooConfig, wanted: Any, task: str) -> dict[str, Any] | None:
        """From "deepnorm" to "post" in a single stack (the two stacks of an encoder-decoder have different alphas)."""
        other_norms = config.final_norm or config.qk_norm or config.mlp_inner_norm or config.lm_head_transform
        scale_free = config.norm in SCALE_FREE_NORMS and not other_norms
        possible = config.stack != "encoder-decoder" and scale_free and has_plain_layers(config)
        if not possible or (config.norm_placement, wanted) != ("deepnorm", "post"):
            return None
        alpha = deepnorm_constants(config)[0]
        return {"norm_placement": "post", "layer_norm_eps": config.layer_norm_eps / alpha**2}

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        return change(state, WRITERS, scale(1 / deepnorm_constants(config)[0]))


class ShiftNormWeights(Symmetry, name="shift-norm-weights", rank=105, field="norm"):
    """Store the factors of RMSNorm as they are, or as differences from one."""

    summary = "weights of RMSNorm stored as differences from one, or as they are"

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """Between "rmsnorm" and "zero-centered-rmsnorm"."""
        return {config.norm, wanted} == {"rmsnorm", "zero-centered-rmsnorm"}

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        shift = 1.0 if wanted == "rmsnorm" else -1.0
        return change(state, NORM_WEIGHTS, lambda weight: weight + shift)


class RescaleStream(Symmetry, name="rescale-stream", rank=180, field="layer_norm_eps", unties=True):
    """Another epsilon in the layers' norms: scale what they read, as `x / sqrt(var + eps)` is scale-free otherwise."""

    summary = "residual stream rescaled for the class's epsilon"
    half_precision = False

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """From and to any epsilon but 0, where the stream can be scaled and only its norms have this epsilon."""
        transforms = config.lm_head_transform and task in (Task.CAUSAL_LM, Task.MASKED_LM)
        other_norms = config.qk_norm or config.mlp_inner_norm or transforms
        scalable = (config.embedding_norm or config.position not in COMPUTED_TABLES) and config.layer_norm_eps * wanted
        kept = config.final_norm or task != Task.FEATURE_EXTRACTION
        norms = config.norm_placement in ("pre", "post") and config.norm in SCALE_FREE_NORMS
        return bool(norms and has_plain_layers(config) and scalable and kept and not other_norms)

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        """Scale everything that is written onto the stream, and undo it where the stream is read without a norm."""
        factor = math.sqrt(wanted / config.layer_norm_eps)
        state = change(state, [EMBEDDING_NORM if config.embedding_norm else tables(config), WRITERS], scale(factor))
        read_scaled: list[str] = []
        if config.norm_placement == "post":
            state = change(state, LAYER_NORMS, scale(factor))
            read_scaled += layer_readers(cross=not config.final_norm)
        elif not config.final_norm:
            read_scaled.append(r"\.cross_attn\.[kv]_proj\.weight$")
        if not config.final_norm:
            read_scaled += head_readers(state)
        return change(state, read_scaled, scale(1 / factor)) if read_scaled else state


class RescaleEmbeddings(Symmetry, name="rescale-embeddings", rank=190, field="embedding_norm_eps", unties=True):
    """Another epsilon in the embeddings' norm: scale the tables that it reads."""

    summary = "embeddings rescaled for the class's epsilon"
    half_precision = False

    def fits(self, config: ZooConfig, wanted: Any, task: str) -> bool:
        """From and to any epsilon but 0, where all that is summed can be scaled."""
        scalable = config.position not in COMPUTED_TABLES and config.norm in SCALE_FREE_NORMS
        return bool(scalable and config.embedding_norm_eps * wanted)

    def weights(self, state: State, config: ZooConfig, wanted: Any) -> State:
        return change(state, tables(config), scale(math.sqrt(wanted / config.embedding_norm_eps)))
