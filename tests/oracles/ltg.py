"""Oracle for LTG-BERT (Samuel et al. 2023) and GPT-BERT (Charpentier and Samuel 2024): a position at a time, in loops.

Written from the papers: the score of a query and a key is the sum of three products, content with content, content of
the query with the position of the key relative to it, and position with content of the key, over sqrt(3 d).
"""

import math

import torch
from torch import Tensor

from .ops import affine, gelu, head_columns, layer_norm, linear, softmax
from .weights import RandomStateDict, StateDict, part, parts

WIDTH, INNER, VOCABULARY, BUCKETS, LONGEST = 24, 20, 31, 8, 40


def random_state_dict(
    gates: bool, num_hidden_layers: int = 2, seed: int = 0, dtype: torch.dtype = torch.float64
) -> StateDict:
    """A random checkpoint, of GPT-BERT with gates and of LTG-BERT without."""
    made = RandomStateDict(seed, dtype)
    made.embedding("embedding.word_embedding", VOCABULARY, WIDTH)
    made.tensors["embedding.relative_embedding"] = made.normal(2 * BUCKETS - 1, WIDTH)
    made.norm("embedding.relative_layer_norm", WIDTH)
    for layer in range(num_hidden_layers):
        attention = f"transformer.attention_layers.{layer}" if gates else f"transformer.layers.{layer}.attention"
        feed_forward = f"transformer.mlp_layers.{layer}.mlp" if gates else f"transformer.layers.{layer}.mlp.mlp"
        made.affine(f"{attention}.in_proj_qk", 2 * WIDTH, WIDTH)
        made.affine(f"{attention}.in_proj_vg" if gates else f"{attention}.in_proj_v", (1 + gates) * WIDTH, WIDTH)
        made.affine(f"{attention}.out_proj", WIDTH, WIDTH)
        if not gates:
            made.norm(f"{attention}.post_layer_norm", WIDTH)
        made.linear(f"{feed_forward}.1", 2 * INNER, WIDTH)
        made.linear(f"{feed_forward}.4", WIDTH, INNER)
        for place in range(2 * layer, 2 * layer + 2) if gates else ():
            made.tensors[f"transformer.dwa_modules.alphas.{place}"] = made.normal(place + 2)
    made.affine("classifier.nonlinearity.1", WIDTH, WIDTH)
    made.alias("classifier.nonlinearity.5", "embedding.word_embedding")
    made.tensors["classifier.nonlinearity.5.bias"] = made.normal(VOCABULARY)
    return made.tensors


def plain_norm(x: Tensor, eps: float) -> Tensor:
    """Standardise the last dimension."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps)


def row_of(distance: int) -> int:
    """The row of a distance in the table: one each up to half of the buckets, then one for logarithmically more."""
    half, far = BUCKETS // 2, min(abs(distance), LONGEST - 1)
    bucket = abs(distance)
    if bucket > half:
        bucket = half + math.ceil(math.log(far / half) / math.log((LONGEST - 1) / half) * (half - 1))
    return BUCKETS - 1 + (bucket if distance > 0 else -bucket)


def attend(
    x: Tensor, weights: StateDict, table: Tensor, seen: Tensor, heads: int, eps: float, other_rows: bool
) -> Tensor:
    """One attention. *Shape:* (length, width), and seen: (length, length)."""
    gates, length = "in_proj_vg.weight" in weights, len(x)
    normed = plain_norm(x, eps)
    queries, keys = affine(normed, weights, "in_proj_qk").chunk(2, dim=-1)
    projected = affine(table, weights, "in_proj_qk")
    places, relative = projected.chunk(2, dim=-1)
    values = affine(normed, weights, "in_proj_vg" if gates else "in_proj_v")
    values, gate = values.chunk(2, dim=-1) if gates else (values, None)
    mixed = torch.zeros_like(x)
    for columns in head_columns(WIDTH, heads):
        size = columns.stop - columns.start
        root = math.sqrt(3 * size)
        if other_rows:  # of a head 2 * size columns, half of them for queries and half for keys
            mine = projected[:, 2 * columns.start : 2 * columns.stop]
            places, relative = (
                torch.zeros_like(table).index_copy(1, torch.arange(columns.start, columns.stop), half)
                for half in mine.split(size, dim=1)
            )
        for i in range(length):
            scores = []
            for j in range(length):
                row = row_of(i - j)
                score = queries[i, columns] @ keys[j, columns]
                score = score + queries[i, columns] @ relative[row, columns] + places[row, columns] @ keys[j, columns]
                scores.append(score / root)
            kept = [j for j in range(length) if seen[i, j]]
            shares = softmax(torch.stack([scores[j] for j in kept]))
            mixed[i, columns] = sum(share * values[j, columns] for share, j in zip(shares, kept, strict=True))
    if gate is not None:
        return affine(plain_norm(mixed * gelu(gate), eps), weights, "out_proj")
    return layer_norm(affine(mixed, weights, "out_proj"), weights, "post_layer_norm", eps)


def feed(x: Tensor, weights: StateDict, eps: float) -> Tensor:
    """One feed-forward network, with GELU's approximation by tanh."""
    inner, gate = linear(plain_norm(x, eps), weights, "1").chunk(2, dim=-1)
    gate = gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) / 2
    return linear(plain_norm(inner * gate, eps), weights, "4")


def logits(state: StateDict, ids: Tensor, seen: Tensor, heads: int, eps: float, other_rows: bool = False) -> Tensor:
    """Scores of all tokens of a sequence, (length,); `seen`, (length, length), and `other_rows` as in `attend`."""
    table = layer_norm(state["embedding.relative_embedding"], state, "embedding.relative_layer_norm", eps)
    x = plain_norm(state["embedding.word_embedding.weight"][ids], eps)
    attentions = parts(state, "transformer.attention_layers.")
    if not attentions:
        for layer in parts(state, "transformer.layers."):
            x = x + attend(x, part(layer, "attention"), table, seen, heads, eps, other_rows)
            x = x + feed(x, part(layer, "mlp.mlp"), eps)
    states, blocks = [x], zip(attentions, parts(state, "transformer.mlp_layers."), strict=True)
    for attention, feed_forward in blocks:
        for block in (
            lambda x, own=attention: attend(x, own, table, seen, heads, eps, False),
            lambda x, own=feed_forward: feed(x, part(own, "mlp"), eps),
        ):
            states.append(x + block(x))
            shares = state[f"transformer.dwa_modules.alphas.{len(states) - 2}"]
            x = sum(share * one for share, one in zip(shares, states, strict=True))
    x = affine(plain_norm(x, eps), state, "classifier.nonlinearity.1")
    x = plain_norm(gelu(x), eps)
    return affine(x, state, "classifier.nonlinearity.5")
