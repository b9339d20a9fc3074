"""Oracle for "Transformers", after Frank Odom's article: Transformer.

Works on vectors, not ids, and without masks. One encoder layer, one decoder layer and one head represent all of them,
each under many keys; attention weights are normalised over the BATCH; the output is a softmax over the features.
"""

import math

import torch
from torch import Tensor

from .ops import affine, layer_norm, relu, softmax
from .weights import RandomStateDict, StateDict, part, parts

INNER = 20


def transformer(state_dict: StateDict, x_1: Tensor, x_2: Tensor) -> Tensor:
    """Probabilities over the features of every decoder position: the softmax of `scores`."""
    return softmax(scores(state_dict, x_1, x_2))


def scores(state_dict: StateDict, x_1: Tensor, x_2: Tensor) -> Tensor:
    """Inputs of the original's last softmax. *Shape:* (batch_size, len, model_dim) of encoder and decoder."""
    memory, y = (x + position_encoding(*x.shape[1:]) for x in (x_1, x_2))
    for encoder in parts(state_dict, "encoders."):
        memory = attention_sublayer(part(encoder, "attention_layer"), memory, memory)
        memory = feed_forward_sublayer(part(encoder, "ff_layer"), memory)
    for decoder in parts(state_dict, "decoders."):
        y = attention_sublayer(part(decoder, "attention_layer_1"), y, y)
        y = attention_sublayer(part(decoder, "attention_layer_2"), y, memory)
        y = feed_forward_sublayer(part(decoder, "ff_layer"), y)
    return affine(y, state_dict, "external_ff")


def attention_sublayer(weights: StateDict, x: Tensor, memory: Tensor) -> Tensor:
    """Residual attention of `x` to `memory`, with weights that sum to one over the batch, not the keys; layer norm."""
    outputs = []
    for head in parts(weights, "sublayer.attention_heads."):
        queries, keys, values = (
            affine(source, head, f"{kind}_linear_layer") for source, kind in ((x, "q"), (memory, "k"), (memory, "v"))
        )
        similarity = torch.einsum("bqd,bkd->bqk", queries, keys) / math.sqrt(keys.shape[-1])
        outputs.append(softmax(similarity, axis=0) @ values)
    return layer_norm(x + affine(torch.cat(outputs, dim=-1), weights, "sublayer.linear_layer"), weights, "norm")


def feed_forward_sublayer(weights: StateDict, x: Tensor) -> Tensor:
    """Residual affine, ReLU, affine, then layer norm. *Shape:* (batch_size, len, model_dim) -> the same."""
    return layer_norm(x + affine(relu(affine(x, weights, "sublayer.0")), weights, "sublayer.2"), weights, "norm")


def position_encoding(length: int, model_dim: int) -> Tensor:
    """Sines in even columns and cosines in odd ones, in float32; column j turns by 10000^(-j / model_dim) a position.

    The paper gives columns 2i and 2i + 1 one frequency; here each column has its own.
    """
    columns = torch.arange(model_dim, dtype=torch.float32)
    angles = torch.arange(length, dtype=torch.float32)[:, None] / torch.pow(10000.0, columns / model_dim)
    table = angles.cos()
    table[:, 0::2] = angles.sin()[:, 0::2]
    return table


def random_state_dict(
    *,
    num_encoder_layers: int = 3,
    num_decoder_layers: int = 2,
    model_dim: int = 12,
    num_heads: int = 3,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> StateDict:
    """Random weights under the original's keys; the many names of one layer or head hold one tensor object."""
    made, head_dim = RandomStateDict(seed, dtype), max(model_dim // num_heads, 1)
    for stack, attentions, n_layers in (
        ("encoders", ("attention_layer",), num_encoder_layers),
        ("decoders", ("attention_layer_1", "attention_layer_2"), num_decoder_layers),
    ):
        for attention in (f"{stack}.0.{name}" for name in attentions):
            heads = f"{attention}.sublayer.attention_heads"
            for kind in "qkv":
                made.affine(f"{heads}.0.{kind}_linear_layer", head_dim, model_dim)
            for head in range(1, num_heads):
                made.alias(f"{heads}.{head}", of=f"{heads}.0")
            made.affine(f"{attention}.sublayer.linear_layer", model_dim, num_heads * head_dim)
            made.norm(f"{attention}.norm", model_dim)
        made.affine(f"{stack}.0.ff_layer.sublayer.0", INNER, model_dim)
        made.affine(f"{stack}.0.ff_layer.sublayer.2", model_dim, INNER)
        made.norm(f"{stack}.0.ff_layer.norm", model_dim)
        for layer in range(1, n_layers):
            made.alias(f"{stack}.{layer}", of=f"{stack}.0")
    made.affine("external_ff", model_dim, model_dim)
    return made.tensors


def random_inputs(
    *, batch_size: int = 3, model_dim: int = 12, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Random vectors for both sides. *Shape:* (batch_size, 6, model_dim), (batch_size, 5, model_dim)."""
    drawn = RandomStateDict(seed, dtype)
    return drawn.normal(batch_size, 6, model_dim), drawn.normal(batch_size, 5, model_dim)
