"""Registration with transformers' Auto classes and PEFT, called by the import hooks of the `zoo` package."""

from .adapters import register_adapters

__all__ = ["register_adapters", "register_config", "register_models"]


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
