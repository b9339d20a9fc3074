"""Loads an export where the zoo cannot be imported, and writes down what it computes.

Run as a script in its own process: `python -I fresh.py REQUEST`. It imports torch and transformers, or, for graphs
of OpenVINO, neither.
"""

import json
import sys
from typing import Any


class NoZoo:
    """An import hook that makes as if the zoo were not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == "zoo":
            raise ModuleNotFoundError(f"No module named {name!r} (an exported model must not need it)", name=name)


def load(request: dict[str, Any], dtype: str) -> Any:
    """Load `class_name` of transformers from `folder` in evaluation mode, and insist on every weight."""
    import transformers

    model_class = getattr(transformers, request["class_name"])
    # Experts are run by a grouped product, which PyTorch does not have in float64.
    experts = {"experts_implementation": "batched_mm"} if dtype == "float64" else {}
    options = {"trust_remote_code": request["trust_remote_code"], "local_files_only": True, **experts}
    model, info = model_class.from_pretrained(request["folder"], dtype=dtype, output_loading_info=True, **options)
    wrong = {word: sorted(map(str, keys)) for word, keys in info.items() if keys}
    if wrong:
        raise RuntimeError(f"not everything was loaded: {wrong}")
    return model.eval()


def compute(model: Any, request: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    import torch
    from transformers import GenerationConfig

    results = {}
    for batch, names in request["batches"].items():
        given = {name: tensors[f"{batch}.{name}"] for name in names}
        # Copies, as a quirk changes its inputs.
        given = {
            name: tensor.to(model.dtype, copy=True) if tensor.is_floating_point() else tensor
            for name, tensor in given.items()
        }
        with torch.no_grad():
            if batch in request["generate"]:
                model.generation_config = GenerationConfig(**request["generate"][batch])
                results[f"{batch}.tokens"] = model.generate(**given)
            elif request["output"] == "hidden_states[-2]":
                results[f"{batch}.output"] = model(**given, output_hidden_states=True).hidden_states[-2]
            else:
                results[f"{batch}.output"] = getattr(model(**given), request["output"])
            if batch in request["steps"]:
                results[f"{batch}.steps"] = read_on(model, given, request["steps"][batch])
    return {name: tensor.contiguous() for name, tensor in results.items()}


def read_on(model: Any, given: dict[str, Any], steps: int) -> Any:
    """Logits of the last tokens, each read on the cache of those before it. *Shape:* (batch_size, steps, size)."""
    import torch

    given = dict(given)
    if "decoder_input_ids" in given:
        given["encoder_outputs"] = model.get_encoder()(input_ids=given.pop("input_ids"))
    text = "decoder_input_ids" if "encoder_outputs" in given else "input_ids"
    past, found, ids = dict[str, Any](), [], given[text]
    for piece in (ids[:, :-steps], *ids[:, -steps:].split(1, dim=1)):
        outputs = model(**{**given, text: piece, **past}, use_cache=True)
        if not (past := {name: outputs[name] for name in {"past_key_values", "cache"} & set(outputs)}):
            return model(**given).logits[:, -steps:]  # a class without a cache
        found.append(outputs.logits[:, -1:])
    return torch.cat(found[1:], dim=1)


def run_transformers(request: dict[str, Any]) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    torch.set_num_threads(1)
    tensors, results = load_file(request["inputs"]), dict[str, Any]()
    for dtype in request["dtypes"]:
        found = compute(load(request, dtype), request, tensors)
        results |= {f"{dtype}.{name}": tensor for name, tensor in found.items()}
    save_file(results, request["results"])


def run_openvino(request: dict[str, Any]) -> None:
    import numpy as np
    import openvino
    from safetensors.numpy import load_file, save_file

    tensors, results, core = load_file(request["inputs"]), dict[str, Any](), openvino.Core()
    for number, graph in enumerate(request["calls"]):
        given = {name.partition(".")[2]: tensor for name, tensor in tensors.items() if name.startswith(f"{number}.")}
        run = core.compile_model(graph, "CPU", request["settings"])
        given[request["order"]] = np.arange(len(given["input_ids"]), dtype=np.int32)
        outputs = run({port.any_name: given[port.any_name] for port in run.inputs})
        results |= {f"{number}.{port.any_name}": outputs[port] for port in run.outputs}
    save_file(results, request["results"])


if __name__ == "__main__":
    sys.meta_path.insert(0, NoZoo())
    with open(sys.argv[1], encoding="utf-8") as file:
        asked = json.load(file)
    (run_openvino if "calls" in asked else run_transformers)(asked)
