"""Graphs as transformers.js wants them: of an encoder-decoder, the decoder makes keys and values of the source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from zoo.base.folders import scratch_folder
from zoo.models import ZooPreTrainedModel
from zoo.registry import Task

from ..onnx.graphs import (
    ENCODER,
    GRAPH_ENDING,
    Decode,
    Encoder,
    Graph,
    Memory,
    Pairs,
    graphs_of,
    write_graph,
    write_graphs,
)
from ..onnx.models import BRANCH, PAST, PRESENT
from ..weights import task_of, traceable

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

MERGED = "decoder_model_merged"  # The name of the decoder's graph

LENGTH_AXIS = 2


class DecodeWhole(Decode):
    """The decoder for targets without padding, which transformers.js does not mask."""

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        encoder_attention_mask: Tensor,
        encoder_hidden_states: Tensor,
        memory: Pairs,
        past: Pairs,
    ) -> tuple[Tensor, ...]:
        mask = input_ids.new_ones(input_ids.shape[0], past[0][0].shape[LENGTH_AXIS] + input_ids.shape[1])
        return super().forward(input_ids, encoder_attention_mask, encoder_hidden_states, mask, memory, past)


def write_browser_graphs(model: ZooPreTrainedModel, folder: Path) -> None:
    if task_of(model) != Task.SEQ2SEQ_LM:
        write_graphs(model, folder)
        return
    import onnx

    encoder, memory, decoder = parts_of(traceable(model))
    write_graph(encoder, folder, model.config.variant)
    with scratch_folder() as scratch:
        for part in (memory, decoder):
            write_graph(part, scratch, model.config.variant)
        merged = merge(*(onnx.load(f"{scratch}/{part.name}{GRAPH_ENDING}") for part in (memory, decoder)))
    onnx.save(merged, folder / f"{MERGED}{GRAPH_ENDING}")


def parts_of(model: ZooPreTrainedModel) -> tuple[Graph, Graph, Graph]:
    """Cut an encoder-decoder into the encoder, the keys and values of cross attention, and the decoder."""
    encode, decode = graphs_of(model)
    target, ids, encoded, _, pairs, past = decode.inputs
    own, source, source_too, _, crossed, cached = decode.axes
    made = encode.output_names[1:]
    read = (decode.input_names[0], "encoder_attention_mask", "encoder_hidden_states")
    kept = tuple(name for name in decode.input_names if name.startswith(PAST) and ".decoder." in name)
    return (
        Graph(ENCODER, Encoder(model), encode.inputs, encode.axes, encode.input_names, encode.output_names[:1]),
        Graph("memory", Memory(model), (encoded, ids), (source_too, source), read[:0:-1], made),
        replace(
            decode,
            module=DecodeWhole(model),
            inputs=(target, ids, encoded, pairs, past),
            axes=(own, source, source_too, crossed, cached),
            input_names=(*read, *made, *kept),
        ),
    )


def merge(memory: ModelProto, decoder: ModelProto) -> ModelProto:
    """Let the decoder make keys and values of the source at the first step, and keep them at later ones."""
    from onnx import TensorProto, checker, compose, helper

    names = [output.name for output in memory.graph.output]
    if not names:
        return decoder
    graph = decoder.graph
    taken = {entry.name: entry for entry in graph.input if entry.name in names}
    for name in names:
        graph.input.remove(taken[name])
    given = [renamed(taken[name], name.replace(PRESENT, PAST), f"past_{SOURCE}") for name in names]

    inner = compose.add_prefix(memory, "memory/", rename_inputs=False).graph
    kept = [renamed(taken[name], f"kept/{name}", f"past_{SOURCE}") for name in names]
    keep = [helper.make_node("Identity", [old.name], [new.name]) for old, new in zip(given, kept, strict=True)]
    branches = {
        "then_branch": helper.make_graph(keep, "keep", [], kept),
        "else_branch": helper.make_graph(inner.node, "project", [], inner.output),
    }
    graph.node.insert(0, helper.make_node("If", [BRANCH], names, name="memory", **branches))
    graph.initializer.extend(inner.initializer)
    graph.input.extend([*given, helper.make_tensor_value_info(BRANCH, TensorProto.BOOL, [1])])
    graph.output.extend(renamed(taken[name], name, f"{SOURCE}_out") for name in names)
    checker.check_model(decoder)
    return decoder


SOURCE = "encoder_sequence_length"  # Name of the axis of source positions


def renamed(value: ValueInfoProto, name: str, length: str) -> Any:
    copied = type(value)()
    copied.CopyFrom(value)
    copied.name = name
    copied.type.tensor_type.shape.dim[LENGTH_AXIS].dim_param = length
    return copied
