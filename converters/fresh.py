"""Loads an exported model where the zoo cannot be imported, and writes down what it computes.

Run as a script in a process of its own: `python -I fresh.py REQUEST`. It imports torch and transformers, nothing else.
"""

import json
import sys
from typing import Any


class NoZoo:
    """An import hook that makes as if the zoo were not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Refuse to find the zoo."""
        if name.partition(".")[0] == "zoo":
            raise ModuleNotFoundError(f"No module named {name!r} (an exported model must not need it)", name=name)


def load(request: dict[str, Any], dtype: str) -> Any:
    """Load the model, and insist on every weight.

    Args:
        request: `folder`, `class_name` and `trust_remote_code`.
        dtype: "float32" or "float64".

    Returns:
        The model, in evaluation mode.
    """
    import transformers

    model_class = getattr(transformers, request["class_name"])
    # Experts are run by a grouped product, which PyTorch does not have in float64.
    experts = {"experts_implementation": "batched_mm"} if dtype == "float64" else {}
    model, info = model_class.from_pretrained(
        request["folder"],
        dtype=dtype,
        output_loading_info=True,
        trust_remote_code=request["trust_remote_code"],
        local_files_only=True,
        **experts,
    )
    wrong = {word: sorted(map(str, keys)) for word, keys in info.items() if keys}
    if wrong:
        raise RuntimeError(f"not everything was loaded: {wrong}")
    return model.eval()


def compute(model: Any, request: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """Run the model on every batch."""
    import torch
    from transformers import GenerationConfig

    results = {}
    for batch, names in request["batches"].items():
        given = {name: tensors[f"{batch}.{name}"] for name in names}
        with torch.no_grad():
            if batch in request["generate"]:
                model.generation_config = GenerationConfig(**request["generate"][batch])
                results[f"{batch}.tokens"] = model.generate(**given)
            elif request["output"] == "hidden_states[-2]":
                results[f"{batch}.output"] = model(**given, output_hidden_states=True).hidden_states[-2]
            else:
                results[f"{batch}.output"] = getattr(model(**given), request["output"])
    return {name: tensor.contiguous() for name, tensor in results.items()}


def main(path: str) -> None:
    """Do what a request file says."""
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    import torch
    from safetensors.torch import load_file, save_file

    torch.set_num_threads(1)
    tensors = load_file(request["inputs"])
    for dtype in request["dtypes"]:
        save_file(compute(load(request, dtype), request, tensors), request["results"] + "." + dtype)


if __name__ == "__main__":
    sys.meta_path.insert(0, NoZoo())
    main(sys.argv[1])
