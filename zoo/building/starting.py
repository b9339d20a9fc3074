"""Sizes with which a new model starts, where they make learning slow and comparisons unequal."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from zoo.base.errors import ZooWarning
from zoo.fast.experts import has_values
from zoo.models import TokenEmbedding, ZooPreTrainedModel
from zoo.models.stack import ZooStack

LARGEST = 4.0
"""Size of positions relative to the tokens' embeddings, and of logits, above which a start is called unequal."""

ROWS = 1000  # Rows of a table that are read


class UnequalStartWarning(ZooWarning):
    """A new model starts with positions above its tokens, or with large logits."""


def unequal_starts(model: ZooPreTrainedModel) -> Iterator[str]:
    """Phrases about a new model whose positions drown its tokens, or whose first predictions are far from uniform."""
    for stack in (module for module in model.modules() if isinstance(module, ZooStack)):
        embedding = stack.embed_tokens
        if isinstance(embedding, TokenEmbedding) and has_values(embedding.weight.detach()):
            tokens = rms(embedding.weight[:ROWS]) * embedding.embed_scale
            with torch.no_grad():
                place = torch.zeros(1, 1, dtype=torch.long, device=embedding.weight.device)
                positions = rms(stack.position.embed(torch.zeros_like(embedding.weight[None, :1]), place))
            if positions > LARGEST * tokens:
                yield (
                    f"positions of {positions:.2g} are added to embeddings that start with {tokens:.2g}: "
                    "scale_embedding=true multiplies the embeddings by the root of their width"
                )
                break
    head, config = getattr(model, "lm_head", None), model.config
    if head is not None and config.tie_word_embeddings and has_values(head.weight.detach()):
        logits = rms(head.weight[:ROWS]) * head.weight.shape[-1] ** 0.5 * abs(config.logit_scale)
        if logits > LARGEST:
            yield (
                f"tied output weights start with logits of {logits:.2g}, far from equal probabilities: give "
                "tie_word_embeddings=false, a smaller initializer_range, or a logit_scale"
            )


def rms(values: Tensor) -> float:
    """Root mean square."""
    return values.detach().float().square().mean().sqrt().item()
