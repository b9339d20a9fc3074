"""Oracle for "Transformer Anatomy", after chapter 3 of NLP with Transformers: encoder, classifier and masked attention.

Pre-norm without a final norm, learned positions, embeddings normalised with an eps of 1e-12, exact GELU, no masks at
all in the modules: padding is attended to like anything else.
"""

import math

import torch
from torch import Tensor

from .ops import affine, gelu, layer_norm, softmax
from .weights import RandomStateDict, StateDict, padded_ids, part, parts

EMBEDDING_EPS = 1e-12
WIDTH, INNER, VOCABULARY, LABELS = 12, 20, 17, 3


def encoder(state_dict: StateDict, input_ids: Tensor) -> Tensor:
    """Hidden states after the last layer. *Shape:* (batch_size, seq_len) -> (batch_size, seq_len, hidden_size)."""
    tokens = state_dict["embeddings.token_embeddings.weight"][input_ids]
    positions = state_dict["embeddings.position_embeddings.weight"][: input_ids.shape[1]]
    x = layer_norm(tokens + positions, state_dict, "embeddings.layer_norm", EMBEDDING_EPS)
    for layer in parts(state_dict, "layers."):
        x = x + attend(part(layer, "attention"), layer_norm(x, layer, "layer_norm_1"))
        inner = affine(layer_norm(x, layer, "layer_norm_2"), layer, "feed_forward.linear_1")
        x = x + affine(gelu(inner), layer, "feed_forward.linear_2")
    return x


def classifier(state_dict: StateDict, input_ids: Tensor) -> Tensor:
    """Logits from the first position's hidden state. *Shape:* (batch_size, seq_len) -> (batch_size, num_labels)."""
    return affine(encoder(part(state_dict, "encoder"), input_ids)[:, 0], state_dict, "classifier")


def attend(weights: StateDict, x: Tensor) -> Tensor:
    """Multi-head self-attention, each head with its own matrices. *Shape:* (batch_size, seq_len, hidden_size)."""
    heads = [
        scaled_dot_product_attention(affine(x, head, "q"), affine(x, head, "k"), affine(x, head, "v"))
        for head in parts(weights, "heads.")
    ]
    return affine(torch.cat(heads, dim=-1), weights, "output_linear")


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention of one head. A query that may look nowhere, by zeros in its mask, gets NaN.

    *Shape:* (batch_size, len, head_dim); the mask fits (batch_size, query_len, key_len)
    """
    scores = torch.einsum("bqd,bkd->bqk", query, key) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = torch.where(mask == 0, -math.inf, scores)
    return softmax(scores) @ value


def random_state_dict(*, seed: int = 0, dtype: torch.dtype = torch.float64, **sizes: int) -> StateDict:
    """Random weights of a TransformerEncoder under the original's keys."""
    made = RandomStateDict(seed, dtype)
    _add_encoder(made, "", **sizes)
    return made.tensors


def random_classifier_state_dict(*, seed: int = 0, dtype: torch.dtype = torch.float64, **sizes: int) -> StateDict:
    """Random weights of a TransformerForSequenceClassification under the original's keys."""
    made = RandomStateDict(seed, dtype)
    _add_encoder(made, "encoder.", **sizes)
    made.affine("classifier", LABELS, WIDTH)
    return made.tensors


def random_inputs(*, batch_size: int = 4, seed: int = 0) -> Tensor:
    """A padded batch of ids. *Shape:* (batch_size, 9)."""
    return padded_ids(batch_size, 9, VOCABULARY, 0, torch.Generator().manual_seed(seed))[0]


def _add_encoder(
    made: RandomStateDict,
    prefix: str,
    *,
    num_hidden_layers: int = 2,
    num_attention_heads: int = 3,
    max_position_embeddings: int = 11,
) -> None:
    made.embedding(f"{prefix}embeddings.token_embeddings", VOCABULARY, WIDTH)
    made.embedding(f"{prefix}embeddings.position_embeddings", max_position_embeddings, WIDTH)
    made.norm(f"{prefix}embeddings.layer_norm", WIDTH)
    for layer in (f"{prefix}layers.{number}" for number in range(num_hidden_layers)):
        made.norm(f"{layer}.layer_norm_1", WIDTH)
        made.norm(f"{layer}.layer_norm_2", WIDTH)
        for head in range(num_attention_heads):
            for kind in "qkv":
                made.affine(f"{layer}.attention.heads.{head}.{kind}", WIDTH // num_attention_heads, WIDTH)
        made.affine(f"{layer}.attention.output_linear", WIDTH, WIDTH)
        made.affine(f"{layer}.feed_forward.linear_1", INNER, WIDTH)
        made.affine(f"{layer}.feed_forward.linear_2", WIDTH, INNER)
