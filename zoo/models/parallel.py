"""How a model is cut into pieces for several processes: tensor, pipeline, and fully sharded data parallelism.

The plans are read off the modules that a model has, so that they are right for every variant: parts that are known to
work on a slice of their heads or channels are sliced, replacements by a variant or a plugin stay whole.
"""

import re
from typing import Any

from torch import nn

from .attention import Attention
from .choices import QKNorm
from .configuration import ZooConfig
from .embedding import Position, TokenEmbedding
from .layers import FeedForward, GatedFeedForward
from .parts import ATTENTIONS, POSITIONS


def tensor_parallel_plan(model: nn.Module) -> dict[str, str]:
    """How the weights of a model are sliced over processes that compute one batch together (Shoeybi et al. 2019)."""
    sliced = ((name, styles(module)) for name, module in model.named_modules())
    return {wildcard(f"{name}.{part}".strip(".")): style for name, own in sliced for part, style in own.items()}


def styles(module: nn.Module) -> dict[str, str]:
    """{part: style of transformers} for slicing a sublayer by head or inner channel; empty if it must be whole.

    The part "" is the module itself. A module of another kind declares its `parallel_styles`.
    """
    if type(module) is TokenEmbedding:
        return {"": "embedding_rowwise"}
    if isinstance(module, Attention):
        if not slices_heads(type(module), module.config):
            return {}
        sliced = {"q_proj": "colwise", "k_proj": "colwise", "v_proj": "colwise", "o_proj": "rowwise"}
        if module.config.qk_norm == QKNorm.HEAD:
            sliced |= {"q_norm": "replicated_with_grad_allreduce", "k_norm": "replicated_with_grad_allreduce"}
        return sliced
    if type(module) in (FeedForward, GatedFeedForward) and isinstance(module.norm, nn.Identity):
        gate = {"gate_proj": "colwise"} if isinstance(module, GatedFeedForward) else {}
        return {**gate, "up_proj": "colwise", "down_proj": "rowwise"}
    return getattr(module, "parallel_styles", {})


def slices_heads(attention: type[Attention], config: ZooConfig) -> bool:
    """Whether attention works on a slice of its heads."""
    whole = POSITIONS.get(config.position).has_bias or config.qk_norm == QKNorm.FULL
    return attention is Attention and not whole


def pipeline_parallel_plan(model: Any) -> dict[str, tuple[list[str], list[str]]]:
    """Modules of a model's only stack in the stages of a pipeline, in order: before its layers, these, after them."""
    stack, prefix = model.base_model, "" if model.base_model is model else f"{model.base_model_prefix}."
    children: dict[str, Any] = dict(stack.named_children())
    if not isinstance(children.get("layers"), nn.ModuleList) or "token_types" in children:
        return {}
    attention = ATTENTIONS.get(stack.config.attention)
    if stack.config.share_layers or attention.reads_earlier_layers or attention.reads_token_ids:
        return {}
    between = (children["embedding_norm"], children["embedding_projection"], children["stream"])
    if type(children["position"]).embed is not Position.embed or not all(isinstance(m, nn.Identity) for m in between):
        return {}
    return {f"{prefix}{name}": stages for name, stages in ZooConfig.base_model_pp_plan.items()}


def fully_sharded_plan(model: Any) -> dict[str, str]:
    """Which modules of a model gather their weights by themselves under FSDP; the rest is gathered with the model."""
    plan: dict[str, str] = {}
    embeddings = [name for name, module in model.named_modules() if isinstance(module, TokenEmbedding)]
    if len(embeddings) == 1 or not model.config.share_encoder_decoder_embeddings:
        plan |= dict.fromkeys(embeddings, "free_full_weight")
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] in ("layers", "depths"):
            plan[f"{wildcard(name)}.*"] = "free_full_weight"
        elif name == "lm_head":
            plan[name] = "keep_full_weight"
    return plan


def wildcard(name: str) -> str:
    """Write * for every number in a module's name."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)
