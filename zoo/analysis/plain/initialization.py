"""Initial values."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .config import Config, NoPlainForm


@torch.no_grad()
def normalize(model: nn.Module) -> None:
    """Divide weight vectors by their lengths, also after each optimizer step (nGPT, section 2.6)."""
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            outward = name.endswith(("o_proj.weight", "down_proj.weight"))
            weight.copy_(nn.functional.normalize(weight, dim=0 if outward else -1))


def is_narrow(name: str, config: Config) -> bool:
    """Whether weights make few numbers of a wide vector: those of a router, or of connections between streams."""
    return (config.has_experts and "router" in name) or (
        config.residual == "manifold-hyper-connections" and "weights.weight" in name
    )


def draw_by_layer(weight: Tensor, name: str, config: Config) -> None:
    """Draw from a truncated normal distribution, feed-forward networks smaller in later layers (LTG-BERT)."""
    std = math.sqrt(2 / (5 * config.hidden_size))
    if is_narrow(name, config):
        nn.init.normal_(weight, std=config.initializer_range)
        return
    # In "model.layers.3.mlp.up_proj.weight", the layer is 3.
    before, _, after = name.partition(".mlp.")
    if after and "expert_gate" not in after:
        layer = before.rpartition(".")[2]
        in_stack = not config.num_nextn_predict_layers or layer.isdigit()
        std = std / math.sqrt(2 * (int(layer) + 1 if in_stack else config.num_hidden_layers))
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


def draw_expert(weight: Tensor, config: Config) -> None:
    """Draw the stacked weights of experts."""
    if config.initializer == "mup":
        nn.init.normal_(weight, std=config.initializer_range / config.mup_width_factor**0.5)
    elif config.initializer in ("torch", "d2l"):
        nn.init.uniform_(weight, -(weight.shape[-1] ** -0.5), weight.shape[-1] ** -0.5)
    elif config.initializer == "t5":
        nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    else:
        # Xavier-uniform, with each matrix of each expert as a separate layer.
        bound = math.sqrt(6 / (config.hidden_size + config.moe_intermediate_size))
        if config.initializer == "deepnorm":
            bound = config.deepnorm_beta * bound
        nn.init.uniform_(weight, -bound, bound)


def draw_table(weight: Tensor, name: str, config: Config) -> None:
    """Draw an embedding table."""
    if config.initializer in ("torch", "d2l"):
        # PyTorch's default; the original's defect where embeddings are also scaled up.
        nn.init.normal_(weight)
    elif config.initializer in ("xavier-uniform", "deepnorm") and config.scale_embedding:
        width = config.hidden_size if config.embedding_size is None else config.embedding_size
        nn.init.normal_(weight, std=width**-0.5)
    elif config.initializer == "t5":
        is_small = config.scale_embedding or (config.tie_word_embeddings and config.logit_scale == 1.0)
        width = config.hidden_size if config.embedding_size is None else config.embedding_size
        nn.init.normal_(weight, std=width**-0.5 if is_small else 1.0)
    elif (
        config.initializer == "mup"
        and config.scale_embedding
        and config.embedding_size is None
        and "embed_tokens" in name
    ):
        nn.init.normal_(weight, std=config.initializer_range / config.mup_width_factor**0.5)
    else:
        nn.init.normal_(weight, std=config.initializer_range)


def draw_matrix(weight: Tensor, name: str, config: Config) -> None:
    """Draw the weights of a projection."""
    if config.initializer in ("xavier-uniform", "d2l"):
        nn.init.xavier_uniform_(weight)
    elif config.initializer == "deepnorm":
        # Branches start small (Wang et al. 2022, DeepNet, figure 2).
        is_branch = name.endswith(("v_proj.weight", "o_proj.weight", "out_proj.weight")) or (
            ("mlp." in name) and name.endswith("_proj.weight")
        )
        nn.init.xavier_uniform_(weight, gain=config.deepnorm_beta if is_branch else 1.0)
        if config.attention == "latent" and name.endswith("kv_b_proj.weight"):
            of_heads = weight.detach().unflatten(0, (config.num_attention_heads, -1))
            of_heads[:, config.qk_nope_head_dim :] *= config.deepnorm_beta
    elif config.initializer == "t5":
        # Scores are not scaled, but queries start smaller (T5).
        is_query = config.attention_scale == "none" and name.endswith("q_proj.weight")
        query_width = config.qk_nope_head_dim + config.head_dim if config.attention == "latent" else config.head_dim
        nn.init.normal_(weight, std=(weight.shape[-1] * (query_width if is_query else 1)) ** -0.5)
    elif config.initializer == "mup":
        # Hidden matrices are divided by the root of the width, classifiers by the width (muP, table 8).
        is_from_fixed = name.endswith(("embedding_projection.weight", "gates.up_proj.weight", "_b_proj.weight"))
        if name == "lm_head.weight" or (is_from_fixed and not name.endswith("kv_b_proj.weight")):
            nn.init.normal_(weight, std=config.initializer_range)
        elif name == "classifier.weight":
            nn.init.normal_(weight, std=config.initializer_range / config.mup_width_factor)
        else:
            nn.init.normal_(weight, std=config.initializer_range / config.mup_width_factor**0.5)
    else:
        raise NoPlainForm("initializer")


def initialize(model: nn.Module, config: Config) -> None:
    """Draw projections and tables; norms are ones already."""
    for name, weight in model.named_parameters():
        if config.has_biases and config.initializer not in ("torch", "d2l") and name.endswith(".bias"):
            nn.init.zeros_(weight)
        if config.attention == "sinks" and name.endswith("sinks"):
            nn.init.normal_(weight, std=config.initializer_range)
        if config.residual == "hyper-connections" and "residual.weights" in name:
            continue
        if config.residual == "gated-hyper-connections" and "gates.norm" in name:
            continue
        if config.has_experts and config.mlp_bias and name.endswith("_proj_bias"):
            continue
        if weight.ndim < 2:
            continue
        if config.mixer != "attention" and "conv" in name:
            # Convolutions keep the initial values of PyTorch.
            continue
        if config.initializer in ("normal", "depth-scaled"):
            nn.init.normal_(weight, std=config.initializer_range)
            # Output projections, two per layer (GPT-2).
            if (
                config.initializer == "depth-scaled"
                and not (config.residual == "gated-hyper-connections" and "gates" in name)
                and (
                    (config.mixer != "attention" and "out_proj" in name)
                    or (config.has_experts and name.endswith("experts.down_proj"))
                    or name.endswith(("o_proj.weight", "down_proj.weight"))
                )
            ):
                nn.init.normal_(weight, std=config.initializer_range / (2 * config.num_hidden_layers) ** 0.5)
        elif config.initializer == "layer-scaled":
            draw_by_layer(weight, name, config)
        elif (
            "embed_tokens" in name
            or (config.type_vocab_size is not None and "token_types" in name)
            or (config.attention == "value-embeddings" and "value_embedding" in name)
        ):
            draw_table(weight, name, config)
        elif (config.has_position_table and "position.weight" in name) or (
            config.step_embeddings and "step_embedding" in name
        ):
            nn.init.normal_(weight, std=config.initializer_range)
        elif is_narrow(name, config):
            narrow = 1 / config.mup_width_factor if config.initializer == "mup" else 1.0
            nn.init.normal_(weight, std=config.initializer_range * narrow**0.5)
        elif config.has_experts and weight.ndim == 3:
            draw_expert(weight, config)
        elif config.initializer != "torch":
            draw_matrix(weight, name, config)
        if config.position == "t5" and name.endswith("position.weight"):
            if config.initializer == "mup":
                nn.init.normal_(weight, std=(config.hidden_size / config.mup_width_factor) ** -0.5)
            else:
                nn.init.normal_(weight, std=config.hidden_size**-0.5)
        if (
            config.position == "disentangled"
            and config.initializer != "layer-scaled"
            and name.endswith("position.weight")
        ):
            std = math.sqrt(2 / (5 * config.hidden_size))
            if config.initializer == "mup":
                std = std * config.mup_width_factor**0.5
            nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)
    if config.unit_weights:
        normalize(model)
