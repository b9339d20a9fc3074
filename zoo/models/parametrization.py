"""Maximal update parametrization (muP), meant to make the best learning rate of a narrow model that of a wide one.

Yang et al. 2022, "Tensor Programs V", table 8, for Adam. At the base width it is the standard parametrization, with
attention divided by head_dim instead of its root. It is data: an initialiser, a scale of attention and one of logits,
and a factor on the learning rate of every weight.

A module declares as `input_grows` which of its parameters read the width where their roles do not show it, and which
linear layers do not: a mapping from their names.
"""

from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init

from zoo.base.errors import ConfigError

from .attention import attention_scaling
from .choices import AttentionScale
from .configuration import ZooConfig
from .embedding import TokenTypeEmbedding, ValueEmbedding
from .initialization import matrices
from .parts import ATTENTIONS, PART_FIELDS
from .roles import Role, parameter_roles
from .transformer import transformer_of
from .unit import UnitHead
from .validation import require_at_least, require_type
from .widths import BASE_WIDTH, matrix_std, width_factor

BASE_HEAD_DIM = 64  # The width of a head at which attention has its usual scale


def mup_settings(config: ZooConfig) -> dict[str, Any]:
    """The settings that make a model's parametrization maximal update."""
    base_width = getattr(config, "mup_base_width", BASE_WIDTH)
    require_type("mup_base_width", base_width, "int")
    require_at_least(1, mup_base_width=base_width)
    decoder = config.get_text_config(decoder=True)
    if decoder.head_dim != config.head_dim:
        raise ConfigError(
            f"heads of {config.head_dim} in the encoder and of {decoder.head_dim} in the decoder were given; "
            "parametrization='mup' has one scale for both: give head_dim"
        )
    if transformer_of(config).head is UnitHead or "normalized" in (getattr(config, field) for field in PART_FIELDS):
        raise ConfigError(
            "parametrization='mup' was given for normalized weights, which have one size at every width; leave it out"
        )
    narrow = 1 / width_factor(config)
    if config.embedding_size is not None and config.lm_head_transform and config.stack != "encoder-decoder":
        narrow = 1.0  # the output projection reads the width of the embeddings
    elif config.tie_word_embeddings and config.scale_embedding:
        narrow = narrow**0.5
    key_width = ATTENTIONS.get(config.attention).key_width(config)
    scaling = key_width**-0.5 if config.attention_scale == AttentionScale.HEAD_DIM else attention_scaling(config)
    return {
        "initializer": "mup",
        "attention_scale": (key_width / BASE_HEAD_DIM) ** 0.5 / scaling,
        "logit_scale": config.logit_scale * narrow,
    }


class MaximalUpdate:
    """Normal, with hidden matrices divided by the root of the width and classifiers by the width (muP, table 8)."""

    options = {"mup_base_width": BASE_WIDTH}
    least = {"mup_base_width": 1}

    def __new__(cls, module: nn.Module, config: ZooConfig) -> None:  # type: ignore[misc]
        std = matrix_std(config)
        for weight in [module.weight] if is_scaled_embedding(module, config) else matrices(module):
            init.normal_(weight, mean=0.0, std=std)
        if isinstance(module, PreTrainedModel):
            for name, head in heads(module).items():
                factor = 1.0 if name == "lm_head" else 1 / width_factor(config)
                init.normal_(head.weight, mean=0.0, std=config.initializer_range * factor)
        for name, grows in getattr(module, "input_grows", {}).items():
            if not grows and name in (named := dict(module.named_parameters())):
                init.normal_(named[name], mean=0.0, std=config.initializer_range)


def is_scaled_embedding(module: nn.Module, config: ZooConfig) -> bool:
    """Whether the embedding is scaled by sqrt(hidden_size). A given `embedding_size` does not grow with that."""
    if not config.scale_embedding or config.embedding_size is not None:
        return False
    return isinstance(module, nn.Embedding) and not isinstance(module, (TokenTypeEmbedding, ValueEmbedding))


def heads(model: nn.Module) -> dict[str, nn.Linear]:
    """The projections that a model's output comes from, by name."""
    found = {name: getattr(model, name, None) for name in ("lm_head", "classifier")}
    return {name: head for name, head in found.items() if isinstance(head, nn.Linear)}


def learning_rate_factors(model: PreTrainedModel) -> dict[str, float]:
    """Factors of the learning rate of every parameter.

    Args:
        model: A model with an initialiser that its configuration names.

    Returns:
        Factors by name; 1 for all where the initialiser is not "mup".

    Raises:
        ConfigError: If it is "mup" and the model has adapters of PEFT.
    """
    config = model.config
    names = [name for name, _ in model.named_parameters()]
    factors = dict.fromkeys(names, 1.0)
    if config.initializer != "mup":
        return factors
    if hasattr(model, "peft_config"):
        raise ConfigError(
            "a model with adapters was given; learning rates of parametrization='mup' are those of its own weights: "
            "give adapters one learning rate"
        )
    narrow = 1 / width_factor(config)
    output, roles = heads(model).get("lm_head"), parameter_roles(model)
    for path, module in model.named_modules():
        own = [name for name in names if name.rpartition(".")[0] == path]
        if is_scaled_embedding(module, config):
            factors |= dict.fromkeys(own, narrow**0.5)
        elif module is not output and not isinstance(module, (nn.Conv1d, nn.Conv2d)):  # these sum over positions alone
            factors |= dict.fromkeys((name for name in own if roles[name] == Role.MATRIX), narrow)
    for path, module in model.named_modules():
        for name, grows in getattr(module, "input_grows", {}).items():
            if (full := f"{path}.{name}".lstrip(".")) in factors:
                factors[full] = narrow if grows else 1.0
    return factors
