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
    """Logits, the state after these tokens, and each block's self- and cross-attention weights.

    *Shape:* logits (B, T, V), self (B * H, T, cached + T), cross (B * H, T, S)
    """

    logits: Tensor
    state: DecoderState
    self_attention_weights: list[Tensor]
    cross_attention_weights: list[Tensor]


def encoder(state_dict: StateDict, ids: Tensor, valid_lens: Tensor | None, *, num_heads: int) -> EncoderOutput:
    """The encoder stack; attention biases are used where the state_dict has them.

    Args:
        state_dict: Weights of the original TransformerEncoder.
        ids: *Shape:* (batch_size, num_steps)
        valid_lens: Keys to attend to, per row or per query. *Shape:* (batch_size,) or (batch_size, num_steps)
        num_heads: Heads of every attention.
    """
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
    """The decoder stack on one call's tokens, whose positions start at zero whatever the state holds.

    Args:
        state_dict: Weights of the original TransformerDecoder.
        ids: *Shape:* (batch_size, num_steps)
        state: From `init_state` or from the call before; it is not changed.
        num_heads: Heads of every attention.
        training: Query t sees the first t + 1 keys, cached ones first. Otherwise every query sees every key.
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
    state_dict: StateDict,
    src: Tensor,
    tgt: Tensor,
    valid_lens: Tensor | None,
    *,
    num_heads: int,
    training: bool = False,
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


def predict(
    state_dict: StateDict,
    src: Tensor,
    valid_lens: Tensor,
    *,
    num_heads: int,
    num_steps: int,
    bos: int = BOS,
    eos: int = EOS,
) -> list[int]:
    """Greedy ids for one source: from bos, until eos (not returned) or `num_steps` ids. *Shape:* src (1, S)."""
    tgt = torch.tensor([[bos]])
    while tgt.shape[1] <= num_steps:
        best = stepwise(state_dict, src, tgt, valid_lens, num_heads=num_heads)[:, -1:].argmax(dim=-1)
        if best.item() == eos:
            break
        tgt = torch.cat((tgt, best), dim=1)
    return tgt[0, 1:].tolist()


def loss(logits: Tensor, labels: Tensor, valid_lens: Tensor) -> Tensor:
    """Cross-entropy of the valid steps, divided by all steps. *Shape:* (B, T, V), (B, T), (B,) -> (B,)."""
    surprisal = torch.logsumexp(logits, dim=-1) - logits.gather(-1, labels[..., None])[..., 0]
    valid = torch.arange(labels.shape[1]) < valid_lens[:, None]
    return (surprisal * valid).sum(dim=1) / labels.shape[1]


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
    src_vocab_size: int = 17,
    tgt_vocab_size: int = 13,
    num_hiddens: int = 12,
    ffn_num_hiddens: int = 20,
    num_layers: int = 2,
    use_bias: bool = False,
    encoder_norm_shape: Sequence[int] | None = None,
    decoder_norm_shape: Sequence[int] | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> StateDict:
    """Random weights of an EncoderDecoder under the original's keys; its `part`s are the two stacks' own.

    Norm shapes default to (num_hiddens,); `use_bias` gives the encoder's attentions biases, the decoder never has any.
    """
    made = RandomStateDict(seed, dtype)
    width, inner = num_hiddens, ffn_num_hiddens
    shape = encoder_norm_shape or (width,)
    _add_stack(made, "encoder", ("attention",), src_vocab_size, width, inner, num_layers, shape, use_bias)
    shape = decoder_norm_shape or (width,)
    _add_stack(made, "decoder", ("attention1", "attention2"), tgt_vocab_size, width, inner, num_layers, shape, False)
    made.affine("decoder.dense", tgt_vocab_size, width)
    return made.tensors


def random_inputs(
    *,
    batch_size: int = 4,
    src_steps: int = 9,
    tgt_steps: int = 7,
    src_vocab_size: int = 17,
    tgt_vocab_size: int = 13,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """A padded batch of source ids, target ids and source lengths. *Shape:* (B, src_steps), (B, tgt_steps), (B,)."""
    generator = torch.Generator().manual_seed(seed)
    src, valid_lens = padded_ids(batch_size, src_steps, src_vocab_size, PAD, generator)
    tgt, _ = padded_ids(batch_size, tgt_steps, tgt_vocab_size, PAD, generator)
    return src, tgt, valid_lens


def _add_stack(
    made: RandomStateDict,
    stack: str,
    attentions: tuple[str, ...],
    vocab_size: int,
    width: int,
    inner: int,
    num_layers: int,
    norm_shape: Sequence[int],
    use_bias: bool,
) -> None:
    made.embedding(f"{stack}.embedding", vocab_size, width)
    add = made.affine if use_bias else made.linear
    for block in (f"{stack}.blks.block{number}" for number in range(num_layers)):
        for i, attention in enumerate(attentions, 1):
            for kind in "qkvo":
                add(f"{block}.{attention}.W_{kind}", width, width)
            made.norm(f"{block}.addnorm{i}.ln", *norm_shape)
        made.affine(f"{block}.ffn.dense1", inner, width)
        made.affine(f"{block}.ffn.dense2", width, inner)
        made.norm(f"{block}.addnorm{len(attentions) + 1}.ln", *norm_shape)
