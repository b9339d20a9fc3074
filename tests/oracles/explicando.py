"""Oracle for "Explicando Transformers", a character Transformer from text to text.

Residuals go around the VALUES. The decoder's masked self-attention has neither residual nor norm, and its outcome
enters the next block as values while the encoder gives queries and keys, so the logits are not causal. Encoder and
decoder read the same text; padding is attended to. No gradient reaches the token embedding.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .ops import affine, head_columns, layer_norm, linear, relu, sinusoids, softmax
from .weights import RandomStateDict, StateDict, part, parts, random_lengths

PAD, BOS, EOS, FIRST_CHARACTER = 0, 1, 2, 3
WIDTH, OUTPUTS = 12, 7


def translate(
    state_dict: StateDict, texts: Sequence[str], in_vocab: str, out_vocab: str, **options: float
) -> list[str]:
    """Text in, text out: the likeliest character at each position, the places of bos and eos included.

    Characters are in the order of their ids, or of the output features; repeated ones count once.
    """
    scores = logits(state_dict, token_ids(texts, in_vocab), **options)
    characters = list(dict.fromkeys(out_vocab))
    return [
        "".join(characters[best] for best in row[: len(text) + 2])
        for text, row in zip(texts, scores.argmax(dim=-1).tolist(), strict=True)
    ]


def token_ids(texts: Sequence[str], in_vocab: str) -> Tensor:
    """Ids of bos, characters, eos, padded at the end. *Shape:* (len(texts), longest text + 2)."""
    of_character = {character: FIRST_CHARACTER + i for i, character in enumerate(dict.fromkeys(in_vocab))}
    rows = [[BOS, *(of_character[character] for character in text), EOS] for text in texts]
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def logits(
    state_dict: StateDict, ids: Tensor, *, encoder_heads: int, decoder_heads: int, theta: float = 10000
) -> Tensor:
    """Scores of the output characters at every position; `theta` is the base of the position frequencies.

    *Shape:* (batch_size, seq_len) -> (batch_size, seq_len, out_vocab_size)
    """
    embedding = state_dict["tokenizer.embedding.weight"].detach()
    x = embedding[ids] + sinusoids(ids.shape[1], embedding.shape[1], float(theta))
    later = torch.ones(ids.shape[1], ids.shape[1]).triu(1) > 0

    memory = x
    for layer in parts(state_dict, "encoder.layers."):
        memory = block(layer, memory, memory, encoder_heads)
    y = x
    for layer in parts(state_dict, "decoder.layers."):
        mixed = attend(part(layer, "mha"), y, y, decoder_heads, hidden=later)
        y = block(part(layer, "transformer_layer"), memory, mixed, decoder_heads)
    return affine(y, state_dict, "output_processor.linear")


def block(weights: StateDict, x: Tensor, values: Tensor, n_heads: int) -> Tensor:
    """Attention of `x` to itself that carries `values` and adds them back, norm, feed-forward, norm."""
    h = layer_norm(attend(part(weights, "mha"), x, values, n_heads) + values, weights, "mha_layernorm")
    return layer_norm(affine(relu(affine(h, weights, "ff.0")), weights, "ff.2") + h, weights, "ff_layernorm")


def attend(weights: StateDict, x: Tensor, values: Tensor, n_heads: int, hidden: Tensor | None = None) -> Tensor:
    """Multi-head attention without biases: queries and keys come from `x`, values from `values`.

    *Shape:* (batch_size, seq_len, embed_dim); `hidden` is True where a query may not look, (seq_len, seq_len)
    """
    queries, keys = linear(x, weights, "query_projection"), linear(x, weights, "key_projection")
    carried = linear(values, weights, "value_projection")
    heads = []
    for columns in head_columns(x.shape[-1], n_heads):
        q, k = queries[..., columns], keys[..., columns]
        scores = torch.einsum("bqd,bkd->bqk", q, k) / math.sqrt(q.shape[-1])
        if hidden is not None:
            scores = torch.where(hidden, -math.inf, scores)
        heads.append(softmax(scores) @ carried[..., columns])
    return linear(torch.cat(heads, dim=-1), weights, "output_projection")


def random_state_dict(
    *,
    in_vocab_size: int = 9,
    n_encoder_layers: int = 2,
    n_decoder_layers: int = 3,
    encoder_hidden_dim: int = 20,
    decoder_hidden_dim: int = 16,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> StateDict:
    """Random weights under the original's keys; the token embedding is one tensor under two of them."""
    made = RandomStateDict(seed, dtype)
    made.embedding("tokenizer.embedding", in_vocab_size + FIRST_CHARACTER, WIDTH)
    made.alias("input_processor.tokenizer.embedding", of="tokenizer.embedding")
    for layer in range(n_encoder_layers):
        _add_block(made, f"encoder.layers.{layer}", encoder_hidden_dim)
    for layer in range(n_decoder_layers):
        _add_attention(made, f"decoder.layers.{layer}")
        _add_block(made, f"decoder.layers.{layer}.transformer_layer", decoder_hidden_dim)
    made.affine("output_processor.linear", OUTPUTS, WIDTH)
    return made.tensors


def random_inputs(characters: str, *, batch_size: int, seed: int) -> list[str]:
    """Random texts of different lengths, so that the batch needs padding."""
    generator = torch.Generator().manual_seed(seed)
    return [
        "".join(characters[i] for i in torch.randint(len(characters), (length,), generator=generator).tolist())
        for length in random_lengths(batch_size, 6, generator)
    ]


def _add_attention(made: RandomStateDict, name: str) -> None:
    for kind in ("query", "key", "value", "output"):
        made.linear(f"{name}.mha.{kind}_projection", WIDTH, WIDTH)


def _add_block(made: RandomStateDict, name: str, hidden_dim: int) -> None:
    _add_attention(made, name)
    made.norm(f"{name}.mha_layernorm", WIDTH)
    made.affine(f"{name}.ff.0", hidden_dim, WIDTH)
    made.affine(f"{name}.ff.2", WIDTH, hidden_dim)
    made.norm(f"{name}.ff_layernorm", WIDTH)
