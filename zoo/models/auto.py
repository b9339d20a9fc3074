"""Registration with transformers' Auto classes and PEFT. Called by the import hooks of the `zoo` package."""

from __future__ import annotations

PROJECTIONS = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})
"""Linear layers of attention and of feed-forward networks, which have the names that Llama's have."""


def register_config() -> None:
    """Let `AutoConfig` know the configuration."""
    from transformers import AutoConfig

    from .configuration import MODEL_TYPE, ZooConfig

    AutoConfig.register(MODEL_TYPE, ZooConfig, exist_ok=True)


def register_models() -> None:
    """Let `AutoModel` and its siblings know the heads, and the trainer and pipelines what each head is for."""
    import transformers

    from zoo.registry import Task

    from . import TASK_CLASSES, ZooConfig
    from .configuration import MODEL_TYPE

    register_config()
    for task, (auto_class_name, model_class) in TASK_CLASSES.items():
        auto_class = getattr(transformers, auto_class_name)
        auto_class.register(ZooConfig, model_class, exist_ok=True)
        # Asked for by class name: `Trainer` shifts labels before smoothing them only for models that stand here. All
        # stacks have one model type, and what stands among sequence-to-sequence models is taken for nothing else.
        if task != Task.SEQ2SEQ_LM:
            auto_class._model_mapping._model_mapping[MODEL_TYPE] = model_class.__name__


def register_adapters() -> None:
    """Let PEFT know which layers adapters go to where their configuration names none: those that it picks in Llama.

    Its tables are looked up by their form, for every method has its own. Those of norms are left alone: where norms
    stand is what the variants differ in.
    """
    from peft.utils import constants

    from .configuration import MODEL_TYPE

    for name, table in vars(constants).items():
        if name.startswith("TRANSFORMERS_MODELS_TO_") and name.endswith("_MODULES_MAPPING"):
            layers = table.get("llama", ())
            if layers and PROJECTIONS.issuperset(layers):
                table.setdefault(MODEL_TYPE, list(layers))
