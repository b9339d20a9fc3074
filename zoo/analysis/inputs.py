"""Arguments of a forward for any model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


def is_causal(model: PreTrainedModel) -> bool:
    """Whether a model is a decoder; several configurations of transformers' decoders have no `is_decoder`."""
    return bool(getattr(model.config, "is_decoder", model.can_generate()))


def inputs_of(model: PreTrainedModel, ids: Tensor, decoder_ids: Tensor | None = None) -> dict[str, Tensor]:
    """Ids, (batch_size, seq_len), as what a model reads, or features without a vocabulary."""
    sides = {"": ids}
    if model.config.is_encoder_decoder:
        sides["decoder_"] = ids if decoder_ids is None else decoder_ids
    if isinstance(model.get_input_embeddings(), nn.Embedding):
        return {f"{side}input_ids": one for side, one in sides.items()}
    width = model.config.hidden_size
    features = {side: torch.arange(one.numel() * width, device=one.device) for side, one in sides.items()}
    return {f"{side}inputs_embeds": one.sin().view(*sides[side].shape, width) for side, one in features.items()}
