"""vLLM: its Transformers backend runs the zoo's decoders and encoders, once it knows their names.

vLLM loads `register` in each of its processes, through the entry point `vllm.general_plugins` of this distribution. A
bundle brings its own names and needs neither.
"""

from importlib import import_module

BACKEND = "vllm.model_executor.models.transformers"  # vLLM's module of wrappers around transformers' models

ARCHITECTURES = {
    "ZooForCausalLM": "TransformersForCausalLM",
    "ZooDecoder": "TransformersEmbeddingModel",
    "ZooEncoder": "TransformersEmbeddingModel",
}
"""Classes that a checkpoint names, and what runs them there."""


def register() -> None:
    """Make vLLM and transformers know the zoo's checkpoints."""
    import_module("zoo.models")
    registry = import_module("vllm").ModelRegistry
    for name, wrapper in ARCHITECTURES.items():
        registry.register_model(name, f"{BACKEND}:{wrapper}")
