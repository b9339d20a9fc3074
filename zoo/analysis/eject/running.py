"""Run an ejected file where there is no zoo: the process that the proof compares with. Imports torch alone."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

FORBIDDEN = ("zoo", "transformers")
TOKENS = 8  # Tokens that are generated


def main(file: str, folder: str, *writes: str) -> None:
    """Load the file, and the weights and inputs of the folder; write what the model computes, a text too, into it."""
    for name in FORBIDDEN:
        sys.modules[name] = None  # type: ignore[assignment]
    import torch
    from safetensors.torch import load_file, save_file

    spec = importlib.util.spec_from_file_location("ejected", file)
    assert spec is not None and spec.loader is not None
    ejected: Any = importlib.util.module_from_spec(spec)
    sys.modules["ejected"] = ejected
    spec.loader.exec_module(ejected)
    inputs = load_file(Path(folder, "inputs", "inputs.safetensors"))
    model, labels = ejected.load(folder), inputs.pop("labels", None)
    for module in model.modules():
        for name in vars(getattr(module, "config", None) or object.__new__(type("", (), {}))):
            if name.endswith("dropout"):
                setattr(module.config, name, 0.0)
    found: dict[str, torch.Tensor] = {}
    for dtype in (torch.float32, torch.float64):
        model.to(dtype).eval()
        with torch.no_grad():
            found[f"outputs {dtype}"] = first(model(**copied(inputs, dtype)))
    if labels is not None:
        given = {name: tensor for name, tensor in inputs.items() if name != "decoder_ids" or tensor.is_floating_point()}
        loss = model.train()(**copied(given | {"labels": labels}, torch.float64))[1]
        loss.backward()
        found["loss"] = loss.detach()
        found |= gradients(model)
        model.zero_grad()
    if writes:
        mask = {name: inputs[name] for name in ("attention_mask",) if name in inputs}
        found["tokens"] = model.eval().generate(inputs["ids"], TOKENS, **mask)
    tensors = {name: tensor.contiguous() for name, tensor in found.items()}
    save_file(tensors, Path(folder, "inputs", "found.safetensors"))


def copied(inputs: dict[str, Any], dtype: Any) -> dict[str, Any]:
    return {name: one.to(dtype, copy=True) if one.is_floating_point() else one for name, one in inputs.items()}


def first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


def gradients(model: Any) -> dict[str, Any]:
    """Each gradient as two numbers: its length, and its sum under weights that differ from place to place."""
    import torch

    found = {}
    for name, weight in model.named_parameters():
        gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
        places = torch.arange(gradient.numel(), dtype=torch.float64)
        total = (gradient.flatten().double() * torch.cos(places)).sum()
        found[f"gradient of {name}"] = torch.stack([gradient.double().norm(), total])
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
