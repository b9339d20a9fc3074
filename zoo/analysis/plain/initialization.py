"""Initial values."""

from __future__ import annotations

import math

import torch
from torch import nn

from .config import Config, NoPlainForm


@torch.no_grad()
def normalize(model: nn.Module) -> None:
    """Divide weight vectors by their lengths, after each step of an optimizer as well (nGPT, section 2.6)."""
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            outward = name.endswith(("o_proj.weight", "down_proj.weight"))
            weight.copy_(nn.functional.normalize(weight, dim=0 if outward else -1))


@torch.no_grad()
def initialize(model: nn.Module, config: Config) -> None:
    """Draw the weights of projections and tables; norms have ones already."""
    for name, weight in model.named_parameters():
        if config.initializer == "torch":
            # As PyTorch's modules do: the original's defect where embeddings are scaled up in addition.
            if "embed_tokens" in name:
                nn.init.normal_(weight)
            elif "position" in name:
                nn.init.normal_(weight, std=config.initializer_range)
            continue
        if name.endswith(".bias"):
            nn.init.zeros_(weight)
        if config.attention == "sinks" and name.endswith("sinks"):
            nn.init.normal_(weight, std=config.initializer_range)
        if config.residual == "hyper-connections" and "residual.weights" in name:
            continue
        if weight.ndim < 2 or (config.mixer != "attention" and "conv" in name):
            continue
        if config.feed_forward.startswith("moe") and config.initializer != "normal":
            raise NoPlainForm("initializer")
        if config.initializer in ("normal", "depth-scaled"):
            nn.init.normal_(weight, std=config.initializer_range)
            if config.initializer == "depth-scaled" and name.endswith(("o_proj.weight", "down_proj.weight")):
                # Projections onto the stream, of which there are two in each layer (GPT-2, section 2.3).
                nn.init.normal_(weight, std=config.initializer_range / math.sqrt(2 * config.num_hidden_layers))
        elif config.initializer in ("xavier-uniform", "deepnorm"):
            if "embed_tokens" in name and config.scale_embedding:
                nn.init.normal_(weight, std=config.hidden_size**-0.5)
            elif "embed_tokens" in name or "position" in name or "step" in name:
                nn.init.normal_(weight, std=config.initializer_range)
            elif config.initializer == "deepnorm" and not name.endswith(
                ("q_proj.weight", "k_proj.weight", "head.weight")
            ):
                # Branches start small (Wang et al. 2022, DeepNet, figure 2).
                nn.init.xavier_uniform_(weight, gain=config.deepnorm_beta)
            else:
                nn.init.xavier_uniform_(weight)
        else:
            raise NoPlainForm("initializer")
        if config.position == "t5" and name.endswith("position.weight"):
            nn.init.normal_(weight, std=config.hidden_size**-0.5)
    if config.variant == "ngpt":
        normalize(model)
