"""Gradients and activations, layer by layer, while a model is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerState, TrainingArguments

from zoo.base.errors import ConfigError, InputError
from zoo.models.stack import stacks_of
from zoo.models.validation import require_at_least

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class LayerNorms:
    """How large one layer's gradient and output were at one step.

    Attributes:
        step: The step, counted from 1.
        stack: "encoder" or "decoder".
        layer: The layer's place, counted from 1.
        gradient: The Euclidean norm of the gradient of all of its weights, before clipping; None for further
            applications of a shared layer.
        activation: The root mean square of the residual stream after it, padding included if a batch keeps it.
    """

    step: int
    stack: str
    layer: int
    gradient: float | None
    activation: float


class NormRecorder(TrainerCallback):
    """Records what [`LayerNorms`][] holds, as `zoo.train(..., callbacks=[recorder])` trains.

    When training begins, the gradient of the last layers does not depend on the depth of a post-norm model, while it
    shrinks with the root of the depth in a pre-norm one: why the first needs a warm-up of the learning rate and the
    second does not (Xiong et al. 2020, On Layer Normalization in the Transformer Architecture, theorem 1 and figure 3).

    Args:
        every: From one recorded step to the next.

    Attributes:
        norms: The recorded norms.
    """

    def __init__(self, every: int = 1) -> None:
        require_at_least(1, every=every)
        self.every = every
        self.norms: list[LayerNorms] = []
        self._hooks: list[Any] = []
        self._active = False
        self._activations: dict[tuple[str, int], Tensor] = {}
        self._gradients: dict[tuple[str, int], dict[int, Tensor]] = {}

    def to_records(self) -> list[dict[str, Any]]:
        """Write what was recorded as plain data, a record a step and layer, e.g. for `pandas.DataFrame`."""
        return [asdict(one) for one in self.norms]

    def on_train_begin(self, args: TrainingArguments, *_: Any, **kwargs: Any) -> None:
        """Start to watch the layers of the model; a ConfigError where their gradients are not the optimiser's."""
        if args.fp16 or args.world_size > 1:
            raise ConfigError(
                "gradients are recorded as the backward pass leaves them, which fp16=True scales and several processes "
                "have not averaged yet; train in one process, and with bf16=True instead"
            )
        for name, stack in stacks_of(kwargs["model"]).items():
            for place, layer in enumerate(stack.layers):
                see = partial(self._see_output, name, place)
                self._hooks.append(layer.register_forward_hook(see, with_kwargs=True))
                see_gradient = partial(self._see_gradient, name, place)
                trained = (parameter for parameter in layer.parameters() if parameter.requires_grad)
                self._hooks += [one.register_post_accumulate_grad_hook(see_gradient) for one in trained]

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, *_: Any, **kwargs: Any) -> None:
        """Decide whether this step is recorded."""
        self._active = state.global_step % self.every == 0

    def on_optimizer_step(self, args: TrainingArguments, state: TrainerState, *_: Any, **kwargs: Any) -> None:
        """Write down what has been seen since the step began."""
        for (stack, layer), activation in self._activations.items():
            squares = self._gradients.get((stack, layer))
            gradient = float(torch.stack(list(squares.values())).sum().sqrt()) if squares else None
            self.norms.append(LayerNorms(state.global_step + 1, stack, layer + 1, gradient, float(activation)))
        self._activations, self._gradients, self._active = {}, {}, False

    def on_train_end(self, *_: Any, **kwargs: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _see_output(
        self, stack: str, place: int, layer: nn.Module, args: Any, kwargs: dict[str, Any], output: Tensor
    ) -> None:
        if self._active and layer.training:
            key = (stack, kwargs.get("step", place))  # a shared layer is applied more than once
            self._activations[key] = output.detach().float().pow(2).mean().sqrt()

    def _see_gradient(self, stack: str, place: int, parameter: Tensor) -> None:
        if self._active and parameter.grad is not None:
            square = parameter.grad.detach().float().pow(2).sum()
            self._gradients.setdefault((stack, place), {})[id(parameter)] = square


def norms_figure(norms: Sequence[LayerNorms], stack: str | None = None) -> Figure:
    """Draw what was recorded: a curve a layer, from the first one (dark) to the last one (light).

    Args:
        norms: Norms of a [`NormRecorder`][].
        stack: "encoder" or "decoder", by default the last one.
    """
    from matplotlib import colormaps

    from .heatmaps import new_figure

    if not norms:
        raise InputError("no norms were recorded, so there is nothing to draw: train for more steps than `every`")
    stack = stack or norms[-1].stack
    layers = sorted({one.layer for one in norms if one.stack == stack})
    figure = new_figure(9.0, 3.6)
    panels = figure.subplots(1, 2)
    labels = {"gradient": "gradient, Euclidean norm", "activation": "residual stream, root mean square"}
    for panel, (key, label) in zip(panels, labels.items(), strict=True):
        for layer in layers:
            seen = [(one.step, getattr(one, key)) for one in norms if (one.stack, one.layer) == (stack, layer)]
            curve = [(step, value) for step, value in seen if value is not None]
            colour = colormaps["viridis"]((layer - 1) / max(len(layers) - 1, 1) * 0.9)
            panel.plot(*zip(*curve, strict=True), color=colour, label=f"layer {layer}") if curve else None
        panel.set_yscale("log")
        panel.set_xlabel("Step")
        panel.set_title(f"{stack}: {label}", fontsize=10)
    panels[1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
