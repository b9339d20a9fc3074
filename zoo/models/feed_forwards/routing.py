"""Routers: choice and weights of the experts of a token; their load-balancing loss in the outputs of models."""

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.fast.chunked_loss import up_to_last_label
from zoo.models.configuration import ZooConfig
from zoo.models.parts import FEED_FORWARDS, option
from zoo.models.precision import PreciseBuffers, at_least_float32
from zoo.models.widths import matrix_std

Routes = tuple[Tensor, Tensor, Tensor]
"""Scores of all experts, *Shape:* (num_tokens, num_experts); weights and indices of the chosen ones, *Shape:*
(num_tokens, num_experts_per_tok)."""


class Router(nn.Module):
    """Scores experts by a linear map of the token."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        part = FEED_FORWARDS.get(config.feed_forward)
        self.num_experts: int = option(config, part, "num_experts")
        self.num_experts_per_tok: int = option(config, part, "num_experts_per_tok")
        self.norm_topk_prob: bool = option(config, part, "norm_topk_prob")
        self.std = matrix_std(config)
        self.weight = nn.Parameter(torch.empty(self.num_experts, config.hidden_size))

    def init_weights(self) -> None:
        """Draw the map from a normal distribution, independent of the scheme of the other weights."""
        init.normal_(self.weight, mean=0.0, std=self.std)

    def score(self, hidden_states: Tensor) -> Tensor:
        """Score every expert, in float32 at least. *Shape:* (num_tokens, hidden_size) to (num_tokens, num_experts)."""
        scores = F.linear(hidden_states, self.weight)
        return scores.to(at_least_float32(scores.dtype))

    def normalised(self, weights: Tensor) -> Tensor:
        """Weights of the chosen experts, normalized to sum one if `norm_topk_prob`."""
        return weights / (weights.sum(dim=-1, keepdim=True) + 1e-20) if self.norm_topk_prob else weights


class SoftmaxRouter(Router):
    """The experts of the highest probabilities (Shazeer et al. 2017; Jiang et al. 2024, section 2.1)."""

    def forward(self, hidden_states: Tensor) -> Routes:
        """Choose experts. *Shape:* (num_tokens, hidden_size)."""
        logits = self.score(hidden_states)
        weights, experts = logits.softmax(dim=-1).topk(self.num_experts_per_tok, dim=-1)
        return logits, self.normalised(weights).to(hidden_states.dtype), experts


class SigmoidRouter(PreciseBuffers, Router):
    """Router by the highest affinities plus a bias that balances the use of experts.

    The bias affects which experts are chosen, not their weights (DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2). It is
    not learned from the loss: [`balance_experts`][] updates it after every optimizer step.
    """

    buffers_of_process = ("load",)  # Every process counts its own tokens, until `move_bias` adds them up
    load: Tensor
    balance_bias: Tensor

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        part = FEED_FORWARDS.get(config.feed_forward)
        self.num_groups: int = option(config, part, "n_group")
        self.num_groups_per_tok: int = option(config, part, "topk_group")
        self.routed_scaling_factor: float = option(config, part, "routed_scaling_factor")
        self.rate: float = option(config, part, "balance_rate")
        precise = at_least_float32(torch.get_default_dtype())
        self.register_buffer("balance_bias", torch.zeros(self.num_experts, dtype=precise))
        # Whole numbers, which stay exact in a model of 16 bits.
        self.register_buffer("load", torch.zeros(self.num_experts, dtype=torch.long), persistent=False)

    def init_weights(self) -> None:
        super().init_weights()
        init.zeros_(self.balance_bias)
        init.zeros_(self.load)

    def forward(self, hidden_states: Tensor, is_token: Tensor | None = None) -> Routes:
        """Choose experts, and in training count how often each is used, except by padding (`is_token` 0)."""
        logits = self.score(hidden_states)
        affinities = logits.sigmoid()
        experts = self.admitted(affinities + self.balance_bias).topk(self.num_experts_per_tok, dim=-1).indices
        if self.training:
            with torch.no_grad():
                used = F.one_hot(experts, self.num_experts).sum(dim=1)
                if is_token is not None:
                    used = used * is_token.flatten()[:, None].to(used)
                self.load += used.sum(dim=0)
        weights = self.normalised(affinities.gather(-1, experts)) * self.routed_scaling_factor
        return logits, weights.to(hidden_states.dtype), experts

    def admitted(self, scores: Tensor) -> Tensor:
        """Set scores to -inf outside of the best groups, by the sum of each group's two best (section 2.1.2)."""
        if self.num_groups == self.num_groups_per_tok:
            return scores
        groups = scores.unflatten(-1, (self.num_groups, -1))
        best = groups.topk(2, dim=-1).values.sum(dim=-1).topk(self.num_groups_per_tok, dim=-1).indices
        ruled_out = torch.ones_like(groups[..., 0], dtype=torch.bool).scatter(-1, best, False)
        return groups.masked_fill(ruled_out.unsqueeze(-1), float("-inf")).flatten(-2)

    @torch.no_grad()
    def move_bias(self) -> None:
        """Raise the bias of experts used less than the mean, and lower that of the others (Wang et al. 2024)."""
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(self.load)
        self.balance_bias += self.rate * (self.load.sum() - self.num_experts * self.load).sign()
        self.load.zero_()


def balance_experts(model: nn.Module) -> None:
    """Balance the use of experts that are routed by affinities, after an update of the weights.

    `zoo train` does it; a training loop of your own calls it after `optimizer.step()`. Padding is excluded if the
    attention mask has two dimensions; a mask with four does not identify padding. Without a mask, what follows the last
    label of a row is padding to a causal model.
    """
    for module in model.modules():
        if isinstance(module, SigmoidRouter):
            module.move_bias()


def has_router_loss(config: ZooConfig) -> bool:
    """Whether a configuration has routers trained by a loss of their own."""
    return bool(getattr(FEED_FORWARDS.get(config.feed_forward), "has_auxiliary_loss", False))


def routed_tokens(config: ZooConfig, attention_mask: Any, labels: Tensor, *inputs: Tensor | None) -> dict[str, Tensor]:
    """`is_token` for routers of a causal stack: 1 up to a row's last label, if all inputs have one, without a mask."""
    has_routers = hasattr(FEED_FORWARDS.get(config.feed_forward), "router_class")
    fits = any(one is not None and labels.shape == one.shape[:2] for one in inputs)
    return {"is_token": up_to_last_label(labels)} if has_routers and attention_mask is None and fits else {}


def load_balancing_loss(router_logits: tuple[Tensor, ...], num_chosen: int, attention_mask: Any = None) -> Tensor:
    """`num_experts * sum(share of tokens * mean probability)` over experts (Fedus et al. 2022, equations 4 to 6).

    As transformers computes it: over all layers together, and a token counts for each of its experts. It is the number
    of experts per token if all are used equally.
    """
    scores = torch.stack([logits.to(router_logits[0].device) for logits in router_logits])
    probabilities = scores.softmax(dim=-1)
    chosen = F.one_hot(probabilities.topk(num_chosen, dim=-1).indices, scores.shape[-1]).sum(dim=-2)
    real = torch.ones_like(scores[..., 0])
    if isinstance(attention_mask, Tensor) and attention_mask.ndim < 4:  # others do not identify padding
        if attention_mask.ndim == 2:  # cached positions are not routed again
            attention_mask = attention_mask[:, -(scores.shape[1] // len(attention_mask)) :]
        real = attention_mask.reshape(-1, scores.shape[1]).to(real).expand_as(real)
    weights = (real / real.sum().clamp(min=1))[..., None]
    share = (chosen.to(weights.dtype) * weights).sum(dim=(0, 1))
    mean = (probabilities * weights).sum(dim=(0, 1))
    return scores.shape[-1] * (share * mean).sum()
