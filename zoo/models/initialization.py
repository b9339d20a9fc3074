"""Initialisation schemes.

A scheme is called for every module of a new model, children before parents, after transformers' own initialisation
(normal with `initializer_range` for linear layers and embeddings, zeros for biases, ones for norms). All of them write
through `transformers.initialization`, which leaves weights alone that a checkpoint has filled.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from transformers import initialization as init

from .attention import Attention
from .configuration import ZooConfig
from .feed_forwards.experts import Experts
from .layers import EncoderLayer, FeedForward, ParallelEncoderLayer
from .mixers.base import Mixer
from .residual import deepnorm_constants


def normal(module: nn.Module, config: ZooConfig) -> None:
    """Normal with `initializer_range`, which is what transformers has done already but for experts (BERT, Llama)."""
    if isinstance(module, Experts):
        for weight in (module.gate_up_proj, module.down_proj):
            init.normal_(weight, mean=0.0, std=config.initializer_range)


def depth_scaled(module: nn.Module, config: ZooConfig) -> None:
    """Normal, with the projections onto the residual stream divided by sqrt(2 * depth) (GPT-2, section 2.3)."""
    normal(module, config)
    std = config.initializer_range / math.sqrt(2 * config.num_hidden_layers)
    if isinstance(module, Attention):
        init.normal_(module.o_proj.weight, mean=0.0, std=std)
    elif isinstance(module, Mixer):
        init.normal_(module.out_proj.weight, mean=0.0, std=std)
    elif isinstance(module, FeedForward):
        init.normal_(module.down_proj.weight, mean=0.0, std=std)
    elif isinstance(module, Experts):
        init.normal_(module.down_proj, mean=0.0, std=std)


def xavier_uniform(module: nn.Module, config: ZooConfig) -> None:
    """Xavier-uniform linear layers; embeddings normal, with variance 1 / width where they are scaled up again."""
    if isinstance(module, nn.Linear):
        init.xavier_uniform_(module.weight)
    elif isinstance(module, Experts):
        xavier_uniform_experts(module)
    elif isinstance(module, nn.Embedding) and config.scale_embedding:
        init.normal_(module.weight, mean=0.0, std=config.embedding_width**-0.5)


def deepnorm(module: nn.Module, config: ZooConfig) -> None:
    """Xavier-uniform, with gain beta on values, outputs and the feed-forward network (Wang et al. 2022, figure 2)."""
    xavier_uniform(module, config)
    gain = deepnorm_constants(config)[1]
    if isinstance(module, Attention):
        module.init_values(gain)
        init.xavier_uniform_(module.o_proj.weight, gain=gain)
    elif isinstance(module, Mixer):
        init.xavier_uniform_(module.out_proj.weight, gain=gain)
    elif isinstance(module, FeedForward):
        for linear in module.children():
            if isinstance(linear, nn.Linear):
                init.xavier_uniform_(linear.weight, gain=gain)
    elif isinstance(module, Experts):
        xavier_uniform_experts(module, gain)


def torch_default(module: nn.Module, config: ZooConfig) -> None:
    """PyTorch's own: uniform linear layers bounded by 1 / sqrt(fan_in), standard normal embeddings."""
    if isinstance(module, nn.Linear):
        bound = 1 / math.sqrt(module.in_features)
        init.uniform_(module.weight, -bound, bound)
        if module.bias is not None:
            init.uniform_(module.bias, -bound, bound)
    elif isinstance(module, Experts):
        for weight in (module.gate_up_proj, module.down_proj):
            init.uniform_(weight, -(weight.shape[-1] ** -0.5), weight.shape[-1] ** -0.5)
    elif isinstance(module, nn.Embedding):
        init.normal_(module.weight)


def layer_scaled(module: nn.Module, config: ZooConfig) -> None:
    """Truncated normal with variance 2 / (5 * width); feed-forwards divided by sqrt(2 * layer) (LTG-BERT)."""
    std = math.sqrt(2 / (5 * config.hidden_size))
    if isinstance(module, (nn.Linear, nn.Embedding)):
        init.trunc_normal_(module.weight, mean=0.0, std=std, a=-2 * std, b=2 * std)
    elif isinstance(module, Experts):
        for weight in (module.gate_up_proj, module.down_proj):
            init.trunc_normal_(weight, mean=0.0, std=std, a=-2 * std, b=2 * std)
    elif isinstance(module, (EncoderLayer, ParallelEncoderLayer)):
        std /= math.sqrt(2 * (1 + getattr(module.self_attn, "layer_idx", 0)))
        for network in module.mlp.modules():
            weights: list[Tensor] = []
            if isinstance(network, FeedForward):
                weights = [linear.weight for linear in network.children() if isinstance(linear, nn.Linear)]
            elif isinstance(network, Experts):
                weights = [network.gate_up_proj, network.down_proj]
            for matrix in weights:
                init.trunc_normal_(matrix, mean=0.0, std=std, a=-2 * std, b=2 * std)


def xavier_uniform_experts(experts: Experts, gain: float = 1.0) -> None:
    """Xavier-uniform weights for every expert, as if each of its three maps were a linear layer."""
    _, width, inner = experts.down_proj.shape
    bound = gain * math.sqrt(6 / (width + inner))
    for weight in (experts.gate_up_proj, experts.down_proj):
        init.uniform_(weight, -bound, bound)
