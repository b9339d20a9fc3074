"""Initialisation schemes.

A scheme is called for every module of a new model, children before parents, after transformers' own initialisation
(normal with `initializer_range` for linear layers and embeddings, zeros for biases, ones for norms). All of them write
through `transformers.initialization`, which leaves weights alone that a checkpoint has filled.
"""

import math

from torch import Tensor, nn
from transformers import initialization as init

from .attention import Attention
from .choices import AttentionScale
from .configuration import ZooConfig
from .feed_forwards.mixture import Experts
from .layers import EncoderLayer, FeedForward, ParallelEncoderLayer
from .mixers.base import Mixer
from .residual import deepnorm_constants

OUTPUTS = {Attention: "o_proj.weight", Mixer: "out_proj.weight", FeedForward: "down_proj.weight", Experts: "down_proj"}
"""The weights of each kind of sublayer that project onto the residual stream."""


def matrices(module: nn.Module) -> list[Tensor]:
    """The weights of a linear layer or of experts; none of other modules."""
    if isinstance(module, Experts):
        return [module.gate_up_proj, module.down_proj]
    return [module.weight] if isinstance(module, nn.Linear) else []


def normal(module: nn.Module, config: ZooConfig) -> None:
    """Normal with `initializer_range`, which is what transformers has done already but for experts (BERT, Llama)."""
    if isinstance(module, Experts):
        for weight in matrices(module):
            init.normal_(weight, mean=0.0, std=config.initializer_range)


def depth_scaled(module: nn.Module, config: ZooConfig) -> None:
    """Normal, with the projections onto the residual stream divided by sqrt(2 * depth) (GPT-2, section 2.3)."""
    normal(module, config)
    std = config.initializer_range / math.sqrt(2 * config.num_hidden_layers)
    for kind, name in OUTPUTS.items():
        if isinstance(module, kind):
            init.normal_(module.get_parameter(name), mean=0.0, std=std)


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
        for weight in matrices(module):
            init.uniform_(weight, -(weight.shape[-1] ** -0.5), weight.shape[-1] ** -0.5)
    elif isinstance(module, nn.Embedding):
        init.normal_(module.weight)


def t5(module: nn.Module, config: ZooConfig) -> None:
    """Normal with variance 1 / fan_in, queries of unscaled attention divided by sqrt(head_dim), embeddings of 1 (T5).

    The authors divide the output of tied embeddings by sqrt(width). Where that is not so, or where embeddings are
    multiplied by it, they have variance 1 / width.
    """
    for weight in matrices(module):
        init.normal_(weight, mean=0.0, std=weight.shape[-1] ** -0.5)
    if isinstance(module, nn.Embedding):
        is_small = config.scale_embedding or (config.tie_word_embeddings and config.logit_scale == 1.0)
        init.normal_(module.weight, mean=0.0, std=config.embedding_width**-0.5 if is_small else 1.0)
    elif isinstance(module, Attention) and config.attention_scale == AttentionScale.NONE:
        queries = module.q_proj
        init.normal_(queries.weight, mean=0.0, std=(queries.in_features * module.key_width(config)) ** -0.5)


def layer_scaled(module: nn.Module, config: ZooConfig) -> None:
    """Truncated normal with variance 2 / (5 * width); feed-forwards divided by sqrt(2 * layer) (LTG-BERT)."""
    std = math.sqrt(2 / (5 * config.hidden_size))
    weights = [module.weight] if isinstance(module, nn.Embedding) else matrices(module)
    if isinstance(module, (EncoderLayer, ParallelEncoderLayer)):
        std /= math.sqrt(2 * (1 + getattr(module.self_attn, "layer_idx", 0)))
        networks = [network for network in module.mlp.modules() if isinstance(network, (FeedForward, Experts))]
        weights = [weight for network in networks for part in network.modules() for weight in matrices(part)]
    for weight in weights:
        init.trunc_normal_(weight, mean=0.0, std=std, a=-2 * std, b=2 * std)


def xavier_uniform_experts(experts: Experts, gain: float = 1.0) -> None:
    """Xavier-uniform weights for every expert, as if each of its three maps were a linear layer."""
    _, width, inner = experts.down_proj.shape
    bound = gain * math.sqrt(6 / (width + inner))
    for weight in matrices(experts):
        init.uniform_(weight, -bound, bound)
