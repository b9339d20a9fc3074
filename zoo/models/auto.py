"""Registration with transformers' Auto classes and PEFT, called by the import hooks of the `zoo` package.

PEFT adapts layers of the zoo's models by default, and merges adapters of weights that several modules have.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from zoo.base.errors import UnsupportedOperationError

if TYPE_CHECKING:
    from torch import nn

PROJECTIONS = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})
"""Linear layers of attention and feed-forward networks, with the names of Llama's."""

NORMS = ("norm_in", "norm_branch", "norm_out", "norm")
"""Norms around sublayers, inside of them, and after the last layer."""


def register_config() -> None:
    """Register the configuration with `AutoConfig`."""
    from transformers import AutoConfig

    from .configuration import MODEL_TYPE, ZooConfig

    AutoConfig.register(MODEL_TYPE, ZooConfig, exist_ok=True)


def register_models() -> None:
    """Register the heads with `AutoModel` and its siblings, and with the trainer and pipelines by their task."""
    import transformers

    from zoo.registry import Task

    from . import TASK_CLASSES, ZooConfig
    from .configuration import MODEL_TYPE

    register_config()
    for task, (auto_class_name, model_class) in TASK_CLASSES.items():
        auto_class = getattr(transformers, auto_class_name)
        auto_class.register(ZooConfig, model_class, exist_ok=True)
        # Looked up by class name: `Trainer` shifts labels before smoothing only for models in this table. All stacks
        # have one model type, and models listed as sequence-to-sequence cannot be listed for another task.
        if task != Task.SEQ2SEQ_LM:
            auto_class._model_mapping._model_mapping[MODEL_TYPE] = model_class.__name__


def register_adapters() -> None:
    """Register the layers that PEFT adapts by default, those of Llama, and mend three of its methods.

    Weights of the zoo's models are untied before an adapter of one is merged, and norms without weights not tuned: a
    model that has no others is refused.
    """
    from peft.tuners.ln_tuning import LNTuningModel
    from peft.tuners.tuners_utils import BaseTuner
    from peft.utils import constants

    from .configuration import MODEL_TYPE

    for name, table in vars(constants).items():
        if name.startswith("TRANSFORMERS_MODELS_TO_") and name.endswith("_MODULES_MAPPING"):
            layers = table.get("llama", ())
            if layers and PROJECTIONS.issuperset(layers):
                table.setdefault(MODEL_TYPE, list(layers))
    constants.TRANSFORMERS_MODELS_TO_LNTUNING_TARGET_MODULES_MAPPING.setdefault(MODEL_TYPE, list(NORMS))
    check_merge, replace_norm = BaseTuner._check_merge_allowed, LNTuningModel._create_and_replace
    mark_trainable = LNTuningModel._mark_only_adapters_as_trainable

    @functools.wraps(check_merge)
    def check_merge_and_untie(tuner: Any) -> None:
        check_merge(tuner)
        untie_adapted(tuner.model)

    @functools.wraps(replace_norm)
    def replace_norm_with_weights(
        tuner: Any, config: Any, adapter: str, target: nn.Module, *args: Any, **kwargs: Any
    ) -> None:
        if next(target.parameters(), None) is not None:  # an empty slot has nothing to tune
            replace_norm(tuner, config, adapter, target, *args, **kwargs)

    @functools.wraps(mark_trainable)
    def mark_some_trainable(tuner: Any, model: nn.Module) -> None:
        mark_trainable(tuner, model)
        if not any(tuner.prefix in name for name, _ in model.named_parameters()):
            raise UnsupportedOperationError(
                f"{type(model).__name__} has no norms with weights among the target modules: LNTuning has nothing to "
                "tune; target others, or use another adapter such as LoRA"
            )

    setattr(BaseTuner, "_check_merge_allowed", check_merge_and_untie)  # noqa: B010
    setattr(LNTuningModel, "_create_and_replace", replace_norm_with_weights)  # noqa: B010
    setattr(LNTuningModel, "_mark_only_adapters_as_trainable", mark_some_trainable)  # noqa: B010


def untie_adapted(model: nn.Module) -> None:
    """Copy weights of a zoo model that several modules have, where merging an adapter changes that of one."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from torch import nn

    from .pretrained import ZooPreTrainedModel
    from .unit import UnitHead

    if not isinstance(model, ZooPreTrainedModel):
        return
    # Adapters of tokens may be tied themselves, and then change the weights of both modules alike.
    adapters: dict[nn.Module, Any] = {
        layer.get_base_layer(): getattr(layer, "tied_adapter", None) or layer
        for layer in model.modules()
        if isinstance(layer, BaseTunerLayer)
    }
    if any(isinstance(module, UnitHead) for module in adapters):
        raise UnsupportedOperationError(
            "the output projection has an adapter, and multiplies scores by learned factors, but not the adapter's: "
            "merged they would be other scores; leave the adapter unmerged, or target other layers"
        )
    copies: dict[nn.Parameter, dict[Any, nn.Parameter]] = {}  # Of each weight, one for each adapter and for none
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            own, adapter = copies.setdefault(weight, {}), adapters.get(module, model)
            if adapter not in own:
                own[adapter] = nn.Parameter(weight.detach().clone(), weight.requires_grad) if own else weight
            setattr(module, name, own[adapter])
    model.follow_ties()
