"""A model cut into graphs of flat tensors, as ONNX wants them.

An encoder-decoder becomes two graphs: the encoder, which also projects the keys and values that cross attention reads;
and the decoder, which takes those and the cache of earlier target positions, of any length including none. A causal
language model is one graph with a cache. Everything else is one graph without.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from zoo.base.errors import first_line
from zoo.models import ATTENTIONS, POSITIONS, ZooConfig, ZooPreTrainedModel
from zoo.registry import Task

from ..errors import ExportError, require
from ..target import Obstacle, Reason
from ..weights import save_settings, task_of, traceable

Pairs = list[tuple[Tensor, Tensor]]  # Keys and values of every layer


def filled_cache(pairs: Pairs) -> DynamicCache:
    """A cache of given keys and values, of any length; sliding layers keep all keys, which masks hide."""
    cache = DynamicCache()
    for key, value in pairs:
        layer = DynamicLayer()
        layer.dtype, layer.device = key.dtype, key.device
        layer.keys, layer.values, layer.is_initialized = key, value, True
        cache.layers.append(layer)
    return cache


def content(cache: Any) -> tuple[Tensor, ...]:
    return tuple(tensor for layer in cache.layers for tensor in (layer.keys, layer.values))


class Part(nn.Module):
    """Base of the parts."""

    def __init__(self, model: ZooPreTrainedModel) -> None:
        super().__init__()
        self.model = model


class Whole(Part):
    """A model without a cache, by the names of its output and of its third input, if any."""

    def __init__(self, model: ZooPreTrainedModel, output: str, third: str = "") -> None:
        super().__init__(model)
        self.output, self.third = output, third
        self.options = {} if model.config.stack == "encoder" else {"use_cache": False}

    def forward(self, input_ids: Tensor, attention_mask: Tensor, third: Tensor | None = None) -> Tensor:
        given = {} if third is None else {self.third: third}
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, **given, **self.options)
        return getattr(outputs, self.output)


class Causal(Part):
    """A causal language model with a cache."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, past: Pairs
    ) -> tuple[Tensor, ...]:
        """Logits, then keys and values of all positions; the mask includes earlier ones."""
        cache = filled_cache(past)
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        return self.model(**given, past_key_values=cache, use_cache=True).logits, *content(cache)


class Encoder(Part):
    """The encoder alone."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model.model.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class Memory(Part):
    """The keys and values of the decoder's cross attention, computed from the encoder's output."""

    def forward(self, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Keys and values, of the source, of every decoder layer that caches them."""
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        first = torch.zeros_like(encoder_attention_mask[:, :1])
        # A step of the decoder fills the cache by the variant's own rule; nothing else of it remains in the graph.
        self.model.model.decoder(
            input_ids=first,
            attention_mask=torch.ones_like(first),
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        return content(cache.cross_attention_cache)


class Encode(nn.Module):
    """The encoder, with the keys and values of the decoder's cross attention, computed from its output."""

    def __init__(self, model: ZooPreTrainedModel) -> None:
        super().__init__()
        self.encoder, self.memory = Encoder(model), Memory(model)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        encoded = self.encoder(input_ids, attention_mask)
        return encoded, *self.memory(encoded, attention_mask)


class Decode(Part):
    """The decoder with both caches."""

    def forward(
        self,
        input_ids: Tensor,
        encoder_attention_mask: Tensor,
        encoder_hidden_states: Tensor,
        decoder_attention_mask: Tensor,
        memory: Pairs,
        past: Pairs,
    ) -> tuple[Tensor, ...]:
        """Continue target sequences: logits, then keys and values of all target positions, which the mask counts."""
        own, cross = filled_cache(past), filled_cache(memory)
        cache = EncoderDecoderCache(own, cross)
        cache.is_updated = dict.fromkeys(range(len(memory)), True)
        outputs = self.model(
            attention_mask=encoder_attention_mask,
            decoder_input_ids=input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=BaseModelOutput(last_hidden_state=encoder_hidden_states),
            past_key_values=cache,
            use_cache=True,
        )
        return outputs.logits, *content(cache.self_attention_cache)


LARGEST_IN_ONE_FILE = 1_500_000_000
"""Bytes of weights that stay in a graph's own file, which Protocol Buffers limit to 2 GB."""


def write_onnx(model: ZooPreTrainedModel, folder: Path) -> None:
    require("onnx", "onnx", "onnxscript", "onnxruntime")
    write_graphs(model, folder)
    save_settings(model, folder)


def write_graphs(model: ZooPreTrainedModel, folder: Path) -> None:
    for graph in graphs_of(traceable(model)):
        write_graph(graph, folder, model.config.variant)


def write_graph(graph: Graph, folder: Path, variant: str) -> None:
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            # It reports that torchvision is not installed, which no graph of ours needs.
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)
            options: dict[str, Any] = {"dynamic_shapes": graph.axes, "dynamo": True, "verbose": False}
            options |= {"input_names": list(graph.input_names), "output_names": list(graph.output_names)}
            program = torch.onnx.export(graph.module, graph.inputs, **options)
    except Exception as error:
        # Any error of tracing a variant's code: the export is refused with the reason.
        reason = first_line(error.__cause__ or error)
        raise ExportError(f"{graph.name} of variant {variant!r} cannot be traced for onnx: {reason}") from error
    if program is None:
        raise ExportError(f"{graph.name} of variant {variant!r} cannot be traced for onnx")
    size = sum(parameter.numel() * 4 for parameter in graph.module.parameters())
    program.save(str(folder / f"{graph.name}{GRAPH_ENDING}"), external_data=size > LARGEST_IN_ONE_FILE)


ENCODER, DECODER, WHOLE = "encoder_model", "decoder_model", "model"

GRAPH_ENDING = ".onnx"


def obstacles(model: ZooPreTrainedModel) -> tuple[str, ...]:
    """Explain why graphs do not hold a model: they are written with no caches but keys and values."""
    attention = model.config.attention
    if model.can_generate() and not ATTENTIONS.get(attention).caches_heads:
        cached = f"attention={attention!r} caches no keys and values of every layer's heads, which are what graphs take"
        return (Obstacle(cached, Reason.WRITER),)
    length = POSITIONS.get(model.config.position).changes_after(model.config)
    if model.can_generate() and length is not None:
        rotated = f"its rope_parameters rotate cached keys again in texts of more than {length} tokens, graphs do not"
        return (Obstacle(rotated, Reason.ENGINE),)
    if model.config.mixer_layer_type is not None:
        state = f"mixer={model.config.mixer!r} keeps a state, and graphs take keys and values of heads"
        return (Obstacle(state, Reason.WRITER),)
    return ()


BATCH, LENGTH, SEEN, TARGET = 2, 5, 4, 3  # Sizes of the example that is traced, no two alike; all of them stay free

Axes = dict[int, str]
"""Names of the free axes of a tensor, as Hugging Face Optimum calls them; runtimes look some of them up."""


@dataclass(frozen=True)
class Graph:
    """One graph."""

    name: str  # Its file's name without the ending
    module: nn.Module
    # Example arguments of the module, nested as it takes them; no tensor twice, or it is traced as one input
    inputs: tuple[Any, ...]
    axes: tuple[Any, ...]  # Names of their free axes, nested alike; outputs have those that follow
    input_names: tuple[str, ...]  # A name for every tensor among them
    output_names: tuple[str, ...]


def names_of_cache(prefix: str, layers: int, inner: str = "") -> list[str]:
    return [f"{prefix}.{layer}.{inner}{part}" for layer in range(layers) for part in ("key", "value")]


def example_cache(config: ZooConfig) -> Pairs:
    shape = (BATCH, config.num_key_value_heads, SEEN, config.head_dim)
    return [(torch.zeros(shape), torch.zeros(shape)) for _ in range(config.num_hidden_layers)]


def free(length: str, place: int = 1) -> Axes:
    return {0: "batch_size", place: length}


def graphs_of(model: ZooPreTrainedModel) -> list[Graph]:
    """Cut a model with eager attention into graphs: two of an encoder-decoder's language model, else one."""
    config, task = model.config, task_of(model)
    ids = torch.ones(BATCH, LENGTH, dtype=torch.long)
    target = torch.ones(BATCH, TARGET, dtype=torch.long)
    if task == Task.CAUSAL_LM:
        return [_causal(model, target)]
    if task == Task.SEQ2SEQ_LM:
        return _encoder_and_decoder(model, ids, target)
    output = "last_hidden_state" if task == Task.FEATURE_EXTRACTION else "logits"
    third = {"decoder_input_ids": target} if config.stack == "encoder-decoder" else {}
    if config.stack == "encoder" and config.type_vocab_size:
        third = {"token_type_ids": torch.zeros_like(ids)}
    whole = Whole(model, output, *third)
    inputs, tokens = (ids, ids.clone(), *third.values()), free("sequence_length")
    axes: tuple[Axes, ...] = (tokens,) * len(inputs)
    if config.stack == "encoder-decoder":
        axes = (free("encoder_sequence_length"),) * 2 + (free("decoder_sequence_length"),)
    return [Graph(WHOLE, whole, inputs, axes, ("input_ids", "attention_mask", *third), (output,))]


def _causal(model: ZooPreTrainedModel, ids: Tensor) -> Graph:
    past = example_cache(model.config)
    layers = len(past)
    mask = torch.ones(BATCH, SEEN + TARGET, dtype=torch.long)
    cached = free("past_sequence_length", 2)
    tokens, keys = free("sequence_length"), free("past_sequence_length + sequence_length")
    axes = (tokens, keys, tokens, [(cached, cached)] * layers)
    names = ("input_ids", "attention_mask", "position_ids", *names_of_cache("past_key_values", layers))
    outputs = ("logits", *names_of_cache("present", layers))
    return Graph(WHOLE, Causal(model), (ids, mask, ids.clone(), past), axes, names, outputs)


def _encoder_and_decoder(model: ZooPreTrainedModel, ids: Tensor, target: Tensor) -> list[Graph]:
    encode = Encode(model)
    with torch.no_grad():
        encoded, *memory = encode(ids, ids)
    past = example_cache(model.config.decoder_config())
    crossing = names_of_cache("past_key_values", len(memory) // 2, "encoder.")
    layers = len(past)
    mask = torch.ones(BATCH, SEEN + TARGET, dtype=torch.long)
    pairs = list(zip(memory[::2], memory[1::2], strict=True))
    given = (target, ids, encoded, mask, pairs, past)
    source, own = free("encoder_sequence_length"), free("decoder_sequence_length")
    keys = free("past_decoder_sequence_length + decoder_sequence_length")
    crossed, cached = free("encoder_sequence_length", 2), free("past_decoder_sequence_length", 2)
    axes = (own, source, source, keys, [(crossed, crossed)] * len(pairs), [(cached, cached)] * layers)
    masks = ("input_ids", "encoder_attention_mask", "encoder_hidden_states", "decoder_attention_mask")
    names = (*masks, *crossing, *names_of_cache("past_key_values", layers, "decoder."))
    presents = [name.replace("past_key_values", "present") for name in crossing]
    read, made = ("input_ids", "attention_mask"), ("last_hidden_state", *presents)
    logits = ("logits", *names_of_cache("present", layers, "decoder."))
    return [
        Graph(ENCODER, encode, (ids, ids.clone()), (source, source), read, made),
        Graph(DECODER, Decode(model), given, axes, names, logits),
    ]
