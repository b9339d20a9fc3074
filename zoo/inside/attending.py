"""Attention weights of every layer and head, with their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from zoo.analysis.inputs import is_causal
from zoo.base.errors import UnknownNameError
from zoo.base.printed import Page, Part, Printed
from zoo.models.stack import stacks_of
from zoo.training.generation import load_checkpoint
from zoo.training.generation.checkpoint import TokenizerSource

from .texts import Inputs, inputs_of, shown_name

TITLES = {"encoder": "Encoder self-attention", "decoder": "Decoder self-attention", "cross": "Cross-attention"}
"""Kinds of attention, in the order in which a model runs them, and what pictures call them."""


PAGE_HEIGHT = 720  # Pixels that the page of all heads has in a notebook


@dataclass(frozen=True)
class AttentionMap:
    """One kind of attention in a model, for one example.

    Attributes:
        kind: "encoder", "decoder" or "cross".
        weights: *Shape:* (num_layers, num_heads, num_queries, num_keys)
        queries: The tokens that attend.
        keys: The tokens that are attended to.
        layers: Numbers of the layers in the model, counted from 1: those of a mixer have no attention.
    """

    kind: str
    weights: NDArray[np.float32]
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    layers: tuple[int, ...]

    @property
    def title(self) -> str:
        """Title in pictures."""
        return TITLES[self.kind]

    def to_records(self) -> Iterator[dict[str, Any]]:
        """Write it as plain data: a record a weight, layers and heads counted from 1."""
        for (layer, head, query, key), weight in np.ndenumerate(self.weights):
            yield {
                "kind": self.kind,
                "layer": self.layers[layer],
                "head": head + 1,
                "query_position": query,
                "query": self.queries[query],
                "key_position": key,
                "key": self.keys[key],
                "weight": float(weight),
            }


@dataclass(frozen=True)
class AttentionMaps(Printed):
    """Everything that a model attends to in one example.

    Attributes:
        name: The model.
        source: The text that it reads.
        output: The text that it is made to write, or writes by itself; nothing for a model that only reads.
        maps: Each kind of attention that the model has.
    """

    name: str
    source: str
    output: str
    maps: tuple[AttentionMap, ...]

    def shown(self) -> Iterator[Part]:
        """The page on which every head can be looked at."""
        from .heatmaps import attention_page  # which imports this

        kinds = ", ".join("{} of {} layers with {} heads".format(one.title, *one.weights.shape) for one in self.maps)
        yield Page(attention_page(self), f"{self.name} reads {self.source!r}: {kinds}", PAGE_HEIGHT)

    def __getitem__(self, kind: str) -> AttentionMap:
        found = {one.kind: one for one in self.maps}
        UnknownNameError.check(kind, valid=found, kind="attention", owner=self.name)
        return found[kind]

    def to_records(self) -> list[dict[str, Any]]:
        """Write it as plain data, a record a weight, e.g. for `pandas.DataFrame`."""
        return [record for one in self.maps for record in one.to_records()]

    def bertviz(self) -> dict[str, Any]:
        """Arguments for BertViz (Vig 2019): `head_view(**maps.bertviz())`, `model_view(**maps.bertviz())`.

        Returns:
            The arguments of both: a tensor a layer, *Shape:* (1, num_heads, num_queries, num_keys), and the tokens.
        """
        layers = {one.kind: [torch.tensor(layer)[None] for layer in one.weights] for one in self.maps}
        if len(self.maps) == 1:
            return {"attention": layers[self.maps[0].kind], "tokens": list(self.maps[0].keys)}
        cross = self["cross"]
        tokens = {"encoder_tokens": list(cross.keys), "decoder_tokens": list(cross.queries)}
        return {**{f"{kind}_attention": weights for kind, weights in layers.items()}, **tokens}


def attention(
    model: str | Path | PreTrainedModel,
    source: str,
    target: str | None = None,
    *,
    tokenizer: TokenizerSource | None = None,
    device: str | torch.device | None = None,
) -> AttentionMaps:
    """Find out what a model attends to in one example.

    Args:
        model: A checkpoint's folder, the name of weights ("vanilla.en-pt"), a repository on the Hub ("org/name"), or a
            model.
        source: The text that it reads.
        target: The text that an encoder-decoder is made to write, by default what it writes by itself, greedily; for a
            language model, what follows the source.
        tokenizer: The tokenizer or its folder, by default the checkpoint's.
        device: Where to run, by default on the GPU if available.

    Returns:
        The weights of every layer and head, and the tokens.

    Raises:
        CheckpointError: When the checkpoint does not exist, or has no tokenizer.
        ConfigError: When a target is given to a model that only reads.
        SequenceTooLongError: When a text has more tokens than the model has positions.
    """
    name = type(model).__name__ if isinstance(model, PreTrainedModel) else shown_name(str(model))
    loaded, tokenizers = load_checkpoint(model, tokenizer=tokenizer, device=device, engine="torch")
    inputs = inputs_of(loaded, tokenizers, [source], None if target is None else [target])
    weights = attention_weights(loaded, inputs)
    maps = []
    for kind, array in weights.items():
        queries, keys = (inputs.tokens[side][0] for side in sides_of(kind))
        shown = array[:, 0].float().cpu().numpy()
        maps.append(AttentionMap(kind, shown, queries, keys, layers_of(loaded, kind)))
    return AttentionMaps(name, source, inputs.outputs[0], tuple(maps))


def sides_of(kind: str) -> tuple[str, str]:
    """Texts of the queries and of the keys."""
    return ("decoder", "encoder") if kind == "cross" else (kind, kind)


def layers_of(model: PreTrainedModel, kind: str) -> tuple[int, ...]:
    """Numbers of the layers with a kind of attention, counted from 1."""
    stack = stacks_of(model)["decoder" if kind == "cross" else kind]
    mixers = set() if kind == "cross" else {stack.config.mixer_layer_type}
    return tuple(number for number, type_ in enumerate(stack.layer_types, start=1) if type_ not in mixers)


@torch.no_grad()
def attention_weights(model: PreTrainedModel, inputs: Inputs) -> dict[str, Tensor]:
    """Attention weights by kind. *Shape:* (num_layers, batch_size, num_heads, num_queries, num_keys)."""
    backend = model.config._attn_implementation
    model.set_attn_implementation("eager")  # the only one that has weights to show
    try:
        outputs = model(**inputs.arguments, output_attentions=True)
    finally:
        model.set_attn_implementation(backend)
    if model.config.is_encoder_decoder:
        found = {
            "encoder": outputs.encoder_attentions,
            "decoder": outputs.decoder_attentions,
            "cross": outputs.cross_attentions,
        }
    else:
        found = {"decoder" if is_causal(model) else "encoder": outputs.attentions}
    return {kind: torch.stack(layers) for kind, layers in found.items()}
