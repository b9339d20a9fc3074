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
WIDTH, INNER, SRC_VOCAB, TRG_VOCAB, CLASSES = 12, 20, 17, 13, 5


def transformer(
    state_dict: StateDict, src: Tensor, trg: Tensor, *, n_heads: int, src_pad_idx: int, trg_pad_idx: int
) -> Tensor:
    """Logits for every target position. *Shape:* ids (batch_size, len) -> (batch_size, trg_len, trg_vocab_size)."""
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
    """Logits of the encoder classifier: the largest value of each feature over all positions, pads included."""
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

    *Shape:* (batch_size, len, embed_dim); the mask is True where a query may look, (batch_size, 1 or len, len)
    """
    queries = affine(x, weights, "queries")
    keys, values = (affine(memory, weights, name) for name in ("keys", "values"))
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
    """True at keys that are neither padding nor later than the query. *Shape:* (batch_size, trg_len, trg_len)."""
    steps = torch.arange(trg.shape[1])
    return (steps[None, :] <= steps[:, None]) & (trg != pad_idx)[:, None, :]


def random_state_dict(*, seed: int = 0, dtype: torch.dtype = torch.float64, n_layers: int = 2) -> StateDict:
    """Random weights of a Transformer under the original's keys, the dead ones included."""
    made = RandomStateDict(seed, dtype)
    _add_stack(made, "encoder", ("attention",), SRC_VOCAB, n_layers)
    _add_stack(made, "decoder", ("attention", "joint_attention"), TRG_VOCAB, n_layers)
    made.affine("decoder.fc", TRG_VOCAB, WIDTH)
    return made.tensors


def random_classifier_state_dict(
    *, seed: int = 0, dtype: torch.dtype = torch.float64, n_layers: int = 2, max_length: int = 11
) -> StateDict:
    """Random weights of an EncoderClassifier under the original's keys."""
    made = RandomStateDict(seed, dtype)
    _add_stack(made, "encoder", ("attention",), SRC_VOCAB, n_layers, max_length)
    made.affine("linear", CLASSES, WIDTH)
    return made.tensors


def dead_keys(state_dict: StateDict) -> set[str]:
    """Keys with values that cannot change any output: ten a decoder block."""
    return {key for key in state_dict if ".joint_attention." in key or ".norm_3." in key}


def random_inputs(*, batch_size: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Source and target ids, padded by 1 and 2; either alone is a batch for the classifier. *Shape:* (B, 9), (B, 7)."""
    generator = torch.Generator().manual_seed(seed)
    return padded_ids(batch_size, 9, SRC_VOCAB, 1, generator)[0], padded_ids(batch_size, 7, TRG_VOCAB, 2, generator)[0]


def _add_stack(
    made: RandomStateDict, stack: str, attentions: tuple[str, ...], vocab_size: int, layers: int, max_length: int = 11
) -> None:
    made.embedding(f"{stack}.tok_emb", vocab_size, WIDTH)
    made.embedding(f"{stack}.pos_emb", max_length, WIDTH)
    for block in (f"{stack}.blocks.{layer}" for layer in range(layers)):
        for attention in attentions:
            for projection in ("keys", "queries", "values", "proj"):
                made.affine(f"{block}.{attention}.{projection}", WIDTH, WIDTH)
        for norm in range(1, len(attentions) + 2):
            made.norm(f"{block}.norm_{norm}", WIDTH)
        made.affine(f"{block}.mlp.0", INNER, WIDTH)
        made.affine(f"{block}.mlp.3", WIDTH, INNER)
