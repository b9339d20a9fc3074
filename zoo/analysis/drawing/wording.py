"""Labels and details of modules in a drawing."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from zoo.models import (
    ATTENTIONS,
    Attention,
    DynamicTanh,
    FeedForward,
    GatedFeedForward,
    Mixer,
    MixtureOfExperts,
    Position,
    RMSNorm,
    TokenEmbedding,
    TokenTypeEmbedding,
    UnitNorm,
    ZooConfig,
)
from zoo.models.fields import stated
from zoo.models.pretrained import ZooPreTrainedModel
from zoo.models.residual import LearnedScale, Scale

from .parts import Kind

KINDS: dict[Kind, tuple[type, ...]] = {
    "mixer": (Mixer,),
    "feed-forward": (FeedForward, MixtureOfExperts),
    "norm": (nn.LayerNorm, RMSNorm, DynamicTanh, UnitNorm),
    "embedding": (nn.Embedding,),
    "linear": (nn.Linear,),
    "dropout": (nn.Dropout,),
    "scale": (Scale, LearnedScale),
}
"""Classes with names that describe the kind of module."""

BIASES = {(False, False): ["no biases"], (True, False): ["no output bias"], (False, True): ["only an output bias"]}
"""Details of attention by whether its projections in, and out, have biases."""

EVERY_LAYER = "in every layer"  # Place of positions that act inside of attention, if all layers have them


def label_and_detail(module: nn.Module, config: ZooConfig) -> tuple[str, str]:
    if isinstance(module, Attention):
        kind = "cross" if module.is_cross else "causal self" if module.is_causal else "self"
        return f"{kind}-attention", attention_detail(module)
    if isinstance(module, FeedForward):
        return feed_forward_words(module, config)
    if isinstance(module, Position):
        return f"{'no' if config.position == 'none' else config.position} positions", position_detail(module, config)
    if isinstance(module, nn.Dropout):
        return f"dropout {module.p:g}", ""
    if isinstance(module, Scale):
        return f"× {module.factor:.4g}", ""
    if isinstance(module, LearnedScale):
        weights = "a weight a channel" if module.weight.numel() > 1 else "one weight"
        return "× learned", f"{weights}, initially {module.initial:g}"
    if isinstance(module, nn.Embedding):
        scaled = isinstance(module, TokenEmbedding) and module.embed_scale != 1.0
        detail = f"{module.num_embeddings} × {module.embedding_dim}"
        label = "token types" if isinstance(module, TokenTypeEmbedding) else "token embedding"
        return label, f"{detail}, times sqrt({module.embedding_dim})" if scaled else detail
    if isinstance(module, nn.Linear):
        return "linear", f"{module.in_features} → {module.out_features}{'' if module.bias is None else ', bias'}"
    return getattr(module, "drawn_as", (type(module).__name__, ""))


def kind_of(module: nn.Module) -> Kind:
    if isinstance(module, Attention):
        return "cross-attention" if module.is_cross else "attention"
    if isinstance(module, Position):
        return "position" if type(module).embed is not Position.embed else "inner-position"
    return next((kind for kind, classes in KINDS.items() if isinstance(module, classes)), "other")


def attention_detail(module: Attention) -> str:
    config: ZooConfig = module.config
    words = ["reads the encoder's output"] if module.is_cross else []
    named = ATTENTIONS.get(config.attention)
    if named is not Attention and isinstance(module, named) and not module.attends_as_usual:
        words.append(config.attention)
    words += [f"{config.num_attention_heads} heads of {module.head_dim}", *stated(config, "attention", drawing=True)]
    if module.sliding_window is not None:
        words.append(f"window {module.sliding_window}")
    if module.dropout:
        words.append(f"dropout {module.dropout:g}")
    return ", ".join([*words, *BIASES.get((config.attention_bias, config.attention_out_bias), [])])


def feed_forward_words(module: FeedForward, config: ZooConfig) -> tuple[str, str]:
    inner = module.up_proj.out_features
    words = [f"{module.up_proj.in_features} → {inner} → {module.down_proj.out_features}", config.hidden_act]
    if module.dropout.p:
        words.append(f"dropout {module.dropout.p:g}")
    words += stated(config, "feed_forward", drawing=True)
    return "gated feed-forward" if isinstance(module, GatedFeedForward) else "feed-forward", ", ".join(words)


def position_detail(module: Position, config: ZooConfig) -> str:
    kind = type(module)
    placed = [layer is not None for layer in config.placed_types_of_layers()]
    where = EVERY_LAYER if all(placed) else f"in {sum(placed)} of {len(placed)} layers"
    acts = {
        "added to the embeddings": kind.embed is not Position.embed,
        f"on queries and keys {where}": kind.rotation is not Position.rotation,
        f"on the scores {where}": module.has_bias,
    }
    places = [place for place, is_one in acts.items() if is_one]
    if module.max_length is not None and places:
        places.append(f"at most {module.max_length}")
    return ", ".join(places)


def note(thing: Any) -> str:
    """First line of the docstring of a class or function of a variant."""
    definition = thing if inspect.isfunction(thing) else type(thing)
    common = definition.__module__.startswith(("zoo.models.", "zoo.fast.", "torch.", "transformers."))
    if common or isinstance(thing, ZooPreTrainedModel) or not definition.__doc__:
        return ""
    return inspect.cleandoc(definition.__doc__).partition("\n")[0].partition(" Arguments as ")[0]
