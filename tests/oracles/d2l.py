"""Oracle for the Transformer chapter of Dive into Deep Learning: encoder, decoder, both together.

Post-norm, no attention biases, masks given as numbers of valid keys. The decoder is causal in training only; fed token
by token it gives every token position zero.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .d2l_text import BOS, EOS, PAD
from .ops import affine, head_columns, layer_norm, linear, relu, sinusoids, softmax
from .weights import RandomStateDict, StateDict, padded_ids, part, parts

MASKED_SCORE = -1e6
WIDTH, INNER, SRC_VOCAB, TGT_VOCAB = 12, 20, 17, 13


class EncoderOutput(NamedTuple):
    """Hidden states, and each block's attention weights. *Shape:* (B, T, D) and (B * H, T, T), batch-major."""

    hidden: Tensor
    attention_weights: list[Tensor]


class DecoderState(NamedTuple):
    """What the decoder reads besides its tokens; a cache is a block's inputs so far. *Shape:* (B, t, D) each."""

    memory: Tensor
    valid_lens: Tensor | None
    caches: tuple[Tensor | None, ...]


class DecoderOutput(NamedTuple):
    """Logits, (B, T, V), the state after these tokens, and each block's self- and cross-attention weights."""

    logits: Tensor
    state: DecoderState
    self_attention_weights: list[Tensor]
    cross_attention_weights: list[Tensor]


def encoder(state_dict: StateDict, ids: Tensor, valid_lens: Tensor | None, *, num_heads: int) -> EncoderOutput:
    """The encoder stack. *Shape:* ids (B, T); `valid_lens` are keys to attend to by row, (B,), or query, (B, T)."""
    x = embed(state_dict, ids)
    recorded = []
    for block in parts(state_dict, "blks.block"):
        attended, weights = attend(part(block, "attention"), x, x, valid_lens, num_heads)
        recorded.append(weights)
        x = layer_norm(attended + x, block, "addnorm1.ln")
        x = layer_norm(feed_forward(block, x) + x, block, "addnorm2.ln")
    return EncoderOutput(x, recorded)


def init_state(state_dict: StateDict, memory: Tensor, valid_lens: Tensor | None) -> DecoderState:
    """A fresh state with empty caches. *Shape:* memory (batch_size, src_steps, num_hiddens)."""
    return DecoderState(memory, valid_lens, (None,) * len(parts(state_dict, "blks.block")))


def decoder(
    state_dict: StateDict, ids: Tensor, state: DecoderState, *, num_heads: int, training: bool
) -> DecoderOutput:
    """The decoder stack on one call's tokens, with positions that start at zero for any state.

    In training query t sees the first t + 1 keys, cached ones first. Otherwise every query sees every key.
    """
    x = embed(state_dict, ids)
    seen = torch.arange(1, ids.shape[1] + 1).expand(ids.shape) if training else None
    caches, self_weights, cross_weights = [], [], []
    for block, cache in zip(parts(state_dict, "blks.block"), state.caches, strict=True):
        keys = x if cache is None else torch.cat((cache, x), dim=1)
        caches.append(keys)
        attended, weights = attend(part(block, "attention1"), x, keys, seen, num_heads)
        self_weights.append(weights)
        x = layer_norm(attended + x, block, "addnorm1.ln")
        attended, weights = attend(part(block, "attention2"), x, state.memory, state.valid_lens, num_heads)
        cross_weights.append(weights)
        x = layer_norm(attended + x, block, "addnorm2.ln")
        x = layer_norm(feed_forward(block, x) + x, block, "addnorm3.ln")
    after = state._replace(caches=tuple(caches))
    return DecoderOutput(affine(x, state_dict, "dense"), after, self_weights, cross_weights)


def encoder_decoder(
    state_dict: StateDict, src: Tensor, tgt: Tensor, valid_lens: Tensor | None, *, num_heads: int, training: bool
) -> Tensor:
    """Logits of a whole target. *Shape:* src (B, S), tgt (B, T), valid_lens (B,) -> (B, T, tgt_vocab_size)."""
    memory = encoder(part(state_dict, "encoder"), src, valid_lens, num_heads=num_heads).hidden
    below = part(state_dict, "decoder")
    state = init_state(below, memory, valid_lens)
    return decoder(below, tgt, state, num_heads=num_heads, training=training).logits


def stepwise(
    state_dict: StateDict, src: Tensor, tgt: Tensor, valid_lens: Tensor, *, num_heads: int, training: bool = False
) -> Tensor:
    """Logits of a target given one token a call, with caches. *Shape:* as `encoder_decoder`."""
    memory = encoder(part(state_dict, "encoder"), src, valid_lens, num_heads=num_heads).hidden
    below = part(state_dict, "decoder")
    state, steps = init_state(below, memory, valid_lens), []
    for token in tgt[:, :, None].unbind(dim=1):
        output = decoder(below, token, state, num_heads=num_heads, training=training)
        state = output.state
        steps.append(output.logits)
    return torch.cat(steps, dim=1)


def predict(state_dict: StateDict, src: Tensor, valid_lens: Tensor, *, num_heads: int, num_steps: int) -> list[int]:
    """Greedy ids for one source: from bos, until eos (not returned) or `num_steps` ids. *Shape:* src (1, S)."""
    tgt = torch.tensor([[BOS]])
    while tgt.shape[1] <= num_steps:
        best = stepwise(state_dict, src, tgt, valid_lens, num_heads=num_heads)[:, -1:].argmax(dim=-1)
        if best.item() == EOS:
            break
        tgt = torch.cat((tgt, best), dim=1)
    return tgt[0, 1:].tolist()


def embed(stack: StateDict, ids: Tensor) -> Tensor:
    """Scaled token embeddings plus positions from zero. *Shape:* (B, T) -> (B, T, D)."""
    table = stack["embedding.weight"]
    return table[ids] * math.sqrt(table.shape[1]) + sinusoids(ids.shape[1], table.shape[1])


def attend(
    weights: StateDict, x: Tensor, memory: Tensor, valid_lens: Tensor | None, num_heads: int
) -> tuple[Tensor, Tensor]:
    """Multi-head attention of `x` to the first `valid_lens` positions of `memory`, or to all if None.

    *Shape:* x (B, Q, D), memory (B, K, D), valid_lens (B,) or (B, Q) -> (B, Q, D) and weights (B * H, Q, K)
    """
    project = affine if "W_q.bias" in weights else linear
    queries, keys, values = project(x, weights, "W_q"), project(memory, weights, "W_k"), project(memory, weights, "W_v")
    heads, recorded = [], []
    for columns in head_columns(x.shape[-1], num_heads):
        q, k = queries[..., columns], keys[..., columns]
        scores = torch.einsum("bqd,bkd->bqk", q, k) / math.sqrt(q.shape[-1])
        if valid_lens is not None:
            limits = valid_lens[:, None, None] if valid_lens.dim() == 1 else valid_lens[:, :, None]
            scores = torch.where(torch.arange(memory.shape[1]) < limits, scores, MASKED_SCORE)
        recorded.append(softmax(scores))
        heads.append(recorded[-1] @ values[..., columns])
    return project(torch.cat(heads, dim=-1), weights, "W_o"), torch.stack(recorded, dim=1).flatten(0, 1)


def feed_forward(block: StateDict, x: Tensor) -> Tensor:
    """Affine, ReLU, affine. *Shape:* (B, T, D) -> the same."""
    return affine(relu(affine(x, block, "ffn.dense1")), block, "ffn.dense2")


def random_state_dict(
    *,
    num_layers: int = 2,
    use_bias: bool = False,
    encoder_norm_shape: Sequence[int] = (WIDTH,),
    decoder_norm_shape: Sequence[int] = (WIDTH,),
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> StateDict:
    """Random weights of an EncoderDecoder; `use_bias` is for the encoder's attentions, the decoder never has biases."""
    made = RandomStateDict(seed, dtype)
    for stack, attentions, vocab_size, shape in (
        ("encoder", ("attention",), SRC_VOCAB, encoder_norm_shape),
        ("decoder", ("attention1", "attention2"), TGT_VOCAB, decoder_norm_shape),
    ):
        made.embedding(f"{stack}.embedding", vocab_size, WIDTH)
        add = made.affine if use_bias and stack == "encoder" else made.linear
        for block in (f"{stack}.blks.block{number}" for number in range(num_layers)):
            for i, attention in enumerate(attentions, 1):
                for kind in "qkvo":
                    add(f"{block}.{attention}.W_{kind}", WIDTH, WIDTH)
                made.norm(f"{block}.addnorm{i}.ln", *shape)
            made.affine(f"{block}.ffn.dense1", INNER, WIDTH)
            made.affine(f"{block}.ffn.dense2", WIDTH, INNER)
            made.norm(f"{block}.addnorm{len(attentions) + 1}.ln", *shape)
    made.affine("decoder.dense", TGT_VOCAB, WIDTH)
    return made.tensors


def random_inputs(*, batch_size: int = 4, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A padded batch of source ids, target ids and source lengths. *Shape:* (B, 9), (B, 7), (B,)."""
    generator = torch.Generator().manual_seed(seed)
    src, valid_lens = padded_ids(batch_size, 9, SRC_VOCAB, PAD, generator)
    tgt, _ = padded_ids(batch_size, 7, TGT_VOCAB, PAD, generator)
    return src, tgt, valid_lens
