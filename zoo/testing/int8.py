"""Checks of int8 weights: nearly the same outputs, by what a model can do on any weights."""

from __future__ import annotations

import torch

from zoo.building.quantizing import to_int8
from zoo.fast.int8 import Int8Linear

from .cases import check
from .generating import NEW_TOKENS, generate
from .subjects import Subject

TOLERANCE = 0.3
"""How far outputs may be from the float model's, relative to their size: random weights make attention jump."""


@check()
def check_int8_weights_give_nearly_the_same(subject: Subject) -> None:
    """Outputs are near those of the float model, which stays as it is; most of a text is the same without a cache."""
    if subject.model.device.type != "cpu":  # int8 weights are for CPUs
        return
    before = {name: parameter.clone() for name, parameter in subject.model.named_parameters()}
    quantised = to_int8(subject.model)
    exact, rounded = subject.run(), subject.run(quantised)
    error = float((rounded - exact).norm() / exact.norm())
    replaced = any(isinstance(module, Int8Linear) for module in quantised.modules())
    assert replaced and 0 < error < TOLERANCE, f"int8 outputs are {error:.2g} from the float model's"
    for name, parameter in subject.model.named_parameters():
        assert torch.equal(parameter, before[name]), f"{name} of the float model has changed"
    if quantised.can_generate():
        texts = [generate(subject, quantised, use_cache=use_cache).sequences for use_cache in (True, False)]
        same = float((texts[0] == texts[1]).float().mean())
        assert same > 0.5, f"with a cache {same:.0%} of the {NEW_TOKENS} tokens are those without one"
