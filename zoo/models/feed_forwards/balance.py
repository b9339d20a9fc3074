"""The load-balancing loss of routers, in the outputs of language models."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import ModelOutput

from zoo.fast.chunked_loss import up_to_last_label
from zoo.models.configuration import ZooConfig
from zoo.models.parts import FEED_FORWARDS, option

Output = TypeVar("Output", bound=ModelOutput)


def has_router_loss(config: ZooConfig) -> bool:
    """Whether a configuration has routers trained by a loss of their own."""
    return bool(getattr(FEED_FORWARDS.get(config.feed_forward), "has_auxiliary_loss", False))


def routed_tokens(config: ZooConfig, attention_mask: Any, labels: Tensor) -> dict[str, Tensor]:
    """`is_token` for routers of a causal stack without a padding mask: 1 up to the last label of each row."""
    has_routers = hasattr(FEED_FORWARDS.get(config.feed_forward), "router_class")
    return {"is_token": up_to_last_label(labels)} if has_routers and attention_mask is None else {}


def with_router_loss(
    output: Output, body: Any, attention_mask: Any, config: ZooConfig, share: Tensor | float, side: str = ""
) -> Output:
    """Add recorded router logits, and their load-balancing loss, to the output of a language model.

    Args:
        attention_mask: 1 for real tokens; padding is not balanced. *Shape:* (batch_size, seq_len), or of every layer,
            (num_layers, batch_size, seq_len)
        share: The batch's share of the labels of an update, which its loss is weighted by.
        side: "encoder_" or "decoder_" in an encoder-decoder, "mtp_" for the layers of further tokens.
    """
    router_logits = body[f"{side}router_logits"]
    output[f"{side}router_logits"] = router_logits
    if has_router_loss(config):
        part = FEED_FORWARDS.get(config.feed_forward)
        found = load_balancing_loss(router_logits, option(config, part, "num_experts_per_tok"), attention_mask)
        output["aux_loss"] = output.get("aux_loss", 0) + found
        if output.get("loss") is not None:
            output["loss"] = output["loss"] + option(config, part, "router_aux_loss_coef") * share * found
    return output


def load_balancing_loss(
    router_logits: tuple[Tensor, ...], num_chosen: int, attention_mask: Tensor | None = None
) -> Tensor:
    """`num_experts * sum(share of tokens * mean probability)` over experts (Fedus et al. 2022, equations 4 to 6).

    As transformers computes it: over all layers together, and a token counts for each of its experts. It is the number
    of experts per token if all are used equally.
    """
    scores = torch.stack([logits.to(router_logits[0].device) for logits in router_logits])
    probabilities = scores.softmax(dim=-1)
    chosen = F.one_hot(probabilities.topk(num_chosen, dim=-1).indices, scores.shape[-1]).sum(dim=-2)
    real = torch.ones_like(scores[..., 0])
    if attention_mask is not None:
        if attention_mask.ndim == 2:  # cached positions are not routed again
            attention_mask = attention_mask[:, -(scores.shape[1] // len(attention_mask)) :]
        real = attention_mask.reshape(-1, scores.shape[1]).to(real).expand_as(real)
    weights = (real / real.sum().clamp(min=1))[..., None]
    share = (chosen.to(weights.dtype) * weights).sum(dim=(0, 1))
    mean = (probabilities * weights).sum(dim=(0, 1))
    return scores.shape[-1] * (share * mean).sum()
