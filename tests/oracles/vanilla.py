"""Oracle for "Passo a passo de Transformadores": Transformer and EncoderClassifier.

Post-norm, learned positions, attention scaled by the square root of the model width. The decoder attends to the
encoder with its self-attention weights and normalises its feed-forward with the cross-attention's norm, so that
`joint_attention` and `norm_3` are dead weights.
"""

import math

import torch
from torch import Tensor

from .ops import affine, head_columns, layer_norm, relu, softmax
from .weights import RandomStateDict, StateDict, padded_ids, part, parts

MASKED_SCORE = -1e20


def transformer(
    state_dict: StateDict, src: Tensor, trg: Tensor, *, n_heads: int, src_pad_idx: int, trg_pad_idx: int
) -> Tensor:
    """Logits of the encoder-decoder for every target position.

    Args:
        state_dict: Weights of the original Transformer.
        src: Source ids. *Shape:* (batch_size, src_len)
        trg: Target ids, as fed to the decoder. *Shape:* (batch_size, trg_len)
        n_heads: Heads of every attention.
        src_pad_idx: Id hidden from everyone who attends to the source.
        trg_pad_idx: Id hidden from everyone who attends to the target.

    Returns:
        *Shape:* (batch_size, trg_len, trg_vocab_size)
    """
    decoder = part(state_dict, "decoder")
    src_mask, trg_mask = source_mask(src, src_pad_idx), target_mask(trg, trg_pad_idx)
    memory = encode(part(state_dict, "encoder"), src, src_mask, n_heads)
    y = embed(decoder, trg)
    for block in parts(decoder, "blocks."):
        y = layer_norm(y + attend(part(block, "attention"), y, y, trg_mask, n_heads), block, "norm_1")
        y = layer_norm(y + attend(part(block, "attention"), y, memory, src_mask, n_heads), block, "norm_2")
        y = layer_norm(y + feed_forward(block, y), block, "norm_2")
    return affine(y, decoder, "fc")


def classifier(state_dict: StateDict, x: Tensor, *, n_heads: int, pad_idx: int) -> Tensor:
    """Logits of the encoder classifier: the largest value of each feature over all positions, pads included.

    Args:
        state_dict: Weights of the original EncoderClassifier.
        x: Token ids. *Shape:* (batch_size, seq_len)
        n_heads: Heads of every attention.
        pad_idx: Id hidden from attention.

    Returns:
        *Shape:* (batch_size, n_classes)
    """
    hidden = encode(part(state_dict, "encoder"), x, source_mask(x, pad_idx), n_heads)
    return affine(hidden.max(dim=1).values, state_dict, "linear")


def encode(encoder: StateDict, src: Tensor, mask: Tensor, n_heads: int) -> Tensor:
    """The encoder stack. *Shape:* (batch_size, src_len) -> (batch_size, src_len, embed_dim)."""
    x = embed(encoder, src)
    for block in parts(encoder, "blocks."):
        x = layer_norm(attend(part(block, "attention"), x, x, mask, n_heads) + x, block, "norm_1")
        x = layer_norm(feed_forward(block, x) + x, block, "norm_2")
    return x


def embed(stack: StateDict, ids: Tensor) -> Tensor:
    """Scaled token embeddings plus learned positions. *Shape:* (batch_size, len) -> (batch_size, len, embed_dim)."""
    tokens, positions = stack["tok_emb.weight"], stack["pos_emb.weight"]
    return tokens[ids] * math.sqrt(tokens.shape[1]) + positions[: ids.shape[1]]


def attend(weights: StateDict, x: Tensor, memory: Tensor, mask: Tensor, n_heads: int) -> Tensor:
    """Multi-head attention of `x` to `memory`, scaled by the model width and not by the head's.

    Args:
        weights: keys, queries, values and proj.
        x: *Shape:* (batch_size, query_len, embed_dim)
        memory: *Shape:* (batch_size, key_len, embed_dim)
        mask: True where a query may look. *Shape:* (batch_size, 1 or query_len, key_len)
        n_heads: Number of heads.

    Returns:
        *Shape:* (batch_size, query_len, embed_dim)
    """
    queries, keys, values = (
        affine(x, weights, "queries"),
        affine(memory, weights, "keys"),
        affine(memory, weights, "values"),
    )
    heads = []
    for columns in head_columns(x.shape[-1], n_heads):
        scores = torch.einsum("bqd,bkd->bqk", queries[..., columns], keys[..., columns]) / math.sqrt(x.shape[-1])
        heads.append(softmax(torch.where(mask, scores, MASKED_SCORE)) @ values[..., columns])
    return affine(torch.cat(heads, dim=-1), weights, "proj")


def feed_forward(block: StateDict, x: Tensor) -> Tensor:
    """Affine, ReLU, affine. *Shape:* (batch_size, len, embed_dim) -> the same."""
    return affine(relu(affine(x, block, "mlp.0")), block, "mlp.3")


def source_mask(src: Tensor, pad_idx: int) -> Tensor:
    """True at keys that are not padding. *Shape:* (batch_size, src_len) -> (batch_size, 1, src_len)."""
    return (src != pad_idx)[:, None, :]


def target_mask(trg: Tensor, pad_idx: int) -> Tensor:
    """True at keys that are neither padding nor later than the query.

    *Shape:* (batch_size, trg_len) -> (batch_size, trg_len, trg_len)
    """
    steps = torch.arange(trg.shape[1])
    return (steps[None, :] <= steps[:, None]) & (trg != pad_idx)[:, None, :]


def random_state_dict(
    *,
    src_vocab_size: int = 17,
    trg_vocab_size: int = 13,
    embed_dim: int = 12,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    **sizes: int,
) -> StateDict:
    """Random weights of a Transformer under the original's keys, the dead ones included."""
    made = RandomStateDict(seed, dtype)
    _add_stack(made, "encoder", ("attention",), 2, src_vocab_size, embed_dim, **sizes)
    _add_stack(made, "decoder", ("attention", "joint_attention"), 3, trg_vocab_size, embed_dim, **sizes)
    made.affine("decoder.fc", trg_vocab_size, embed_dim)
    return made.tensors


def random_classifier_state_dict(
    *,
    vocab_size: int = 17,
    n_classes: int = 5,
    embed_dim: int = 12,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    **sizes: int,
) -> StateDict:
    """Random weights of an EncoderClassifier under the original's keys."""
    made = RandomStateDict(seed, dtype)
    _add_stack(made, "encoder", ("attention",), 2, vocab_size, embed_dim, **sizes)
    made.affine("linear", n_classes, embed_dim)
    return made.tensors


def dead_keys(state_dict: StateDict) -> set[str]:
    """Keys whose values cannot change any output: ten a decoder block."""
    return {key for key in state_dict if ".joint_attention." in key or ".norm_3." in key}


def random_inputs(
    *,
    batch_size: int = 4,
    src_len: int = 9,
    trg_len: int = 7,
    src_vocab_size: int = 17,
    trg_vocab_size: int = 13,
    src_pad_idx: int = 1,
    trg_pad_idx: int = 2,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """A padded batch of source and target ids; either alone is a batch for the classifier.

    Returns:
        src: *Shape:* (batch_size, src_len)
        trg: *Shape:* (batch_size, trg_len)
    """
    generator = torch.Generator().manual_seed(seed)
    src, _ = padded_ids(batch_size, src_len, src_vocab_size, src_pad_idx, generator)
    trg, _ = padded_ids(batch_size, trg_len, trg_vocab_size, trg_pad_idx, generator)
    return src, trg


def _add_stack(
    made: RandomStateDict,
    stack: str,
    attentions: tuple[str, ...],
    n_norms: int,
    vocab_size: int,
    embed_dim: int,
    n_layers: int = 2,
    ff_hid_dim: int = 20,
    max_length: int = 11,
) -> None:
    made.embedding(f"{stack}.tok_emb", vocab_size, embed_dim)
    made.embedding(f"{stack}.pos_emb", max_length, embed_dim)
    for layer in range(n_layers):
        block = f"{stack}.blocks.{layer}"
        for attention in attentions:
            for projection in ("keys", "queries", "values", "proj"):
                made.affine(f"{block}.{attention}.{projection}", embed_dim, embed_dim)
        for norm in range(1, n_norms + 1):
            made.norm(f"{block}.norm_{norm}", embed_dim)
        made.affine(f"{block}.mlp.0", ff_hid_dim, embed_dim)
        made.affine(f"{block}.mlp.3", embed_dim, ff_hid_dim)
