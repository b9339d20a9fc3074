"""Optimisers that transformers does not have, and what its own are given."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, Trainer
from transformers.training_args import OptimizerNames
from transformers.utils.generic import strtobool

from zoo.base.errors import ConfigError, raised_as, suggest
from zoo.models import learning_rate_factors
from zoo.models.roles import DECAY, decayed_names, hidden_matrices

from .arguments import MUON, ZooTrainingArguments


def named_in_errors(**options: object) -> AbstractContextManager[None]:
    """Name the training arguments that an error of transformers or of a package is about."""
    values = {name: getattr(value, "value", value) for name, value in options.items() if value is not None}
    given = ", ".join(f"{name}={value}" for name, value in values.items())
    return raised_as(ConfigError, lambda error: f"{given} cannot be used: {error}", ImportError, ValueError, TypeError)


def check_optim_args(args: ZooTrainingArguments, model: nn.Module) -> None:
    """Refuse what `optim_args` holds besides KEY=VALUE, and keys that the optimizer does not read."""
    given = [one.strip() for one in (args.optim_args or "").split(",") if one.strip()]
    if malformed := [one for one in given if one.count("=") != 1]:
        raise ConfigError(f"optim_args={args.optim_args!r} has {malformed[0]!r}; valid: KEY=VALUE, several with commas")
    if not given or "layerwise" in args.optim:
        return  # each call would let one more optimiser step from hooks of the weights, without the schedule
    whole = class_and_options(args, model)[1]
    for one in given:
        rest = copy.copy(args)
        rest.optim_args = ",".join(other for other in given if other != one)
        if args.uses_muon or class_and_options(rest, model)[1] == whole:
            name = MUON if args.uses_muon else OptimizerNames(args.optim).value
            key = one.partition("=")[0].strip()
            is_unknown = name == OptimizerNames.ADAFACTOR.value and key not in ADAFACTOR
            hint = f"; valid: {', '.join(ADAFACTOR)}{suggest(key, ADAFACTOR)}" if is_unknown else ""
            raise ConfigError(f"optim_args={args.optim_args!r} was given: {one} has no effect with optim={name}{hint}")


ADAFACTOR: dict[str, Callable[[str], object]] = {
    "scale_parameter": lambda text: bool(strtobool(text)),
    **dict.fromkeys(("clip_threshold", "decay_rate"), float),
}
"""Options of Adafactor, which transformers' trainer fixes or leaves at their defaults, and how a text is read."""


def class_and_options(args: Any, model: Any = None) -> tuple[Any, dict[str, Any]]:
    """Find the class of an optimizer and its options as transformers does, for Adafactor with those of `optim_args`."""
    kind, options = Trainer.get_optimizer_cls_and_kwargs(args, model)
    if args.optim == OptimizerNames.ADAFACTOR:
        given = [one.partition("=") for one in (args.optim_args or "").replace(" ", "").split(",")]
        options |= {name: ADAFACTOR[name](value) for name, _, value in given if name in ADAFACTOR}
    return kind, options


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for matrices, AdamW for everything else (Jordan et al. 2024, Muon; Liu et al. 2025, section 2.2).

    Muon's updates are scaled to the size of AdamW's, so that both share one learning rate.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        others: Iterable[dict[str, Any]],
        *,
        lr: float,
        weight_decay: float,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        self.parts: dict[str, torch.optim.Optimizer] = {
            "muon": torch.optim.Muon(list(matrices), lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"),
            "adamw": torch.optim.AdamW(list(others), lr=lr, betas=betas, eps=eps),
        }
        super().__init__([group for part in self.parts.values() for group in part.param_groups], {})
        self._share_groups()

    def _share_groups(self) -> None:
        """Let both optimisers see what a schedule writes into the groups."""
        self.param_groups = [group for part in self.parts.values() for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts.values():
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, part in self.parts.items():
            part.load_state_dict(state_dict[name])
        self._share_groups()


def build_muon(model: PreTrainedModel, decayed: Iterable[str], args: ZooTrainingArguments) -> MuonWithAdamW:
    """Give the weights inside of layers to Muon; what is no linear map of hidden states, and all else, is AdamW's."""
    refuse_mup(model, "Muon")
    matrices = {*map(id, hidden_matrices(model))}
    names = set(decayed)
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    others = [(name, parameter) for name, parameter in trained if id(parameter) not in matrices]
    hidden = [parameter for _, parameter in trained if id(parameter) in matrices]
    groups = [
        {"params": [parameter for name, parameter in others if name in names], "weight_decay": args.weight_decay},
        {"params": [parameter for name, parameter in others if name not in names], "weight_decay": 0.0},
    ]
    lr, decay, betas = args.learning_rate, args.weight_decay, (args.adam_beta1, args.adam_beta2)
    return MuonWithAdamW(hidden, groups, lr=lr, weight_decay=decay, betas=betas, eps=args.adam_epsilon)


UNLIKE_ADAM = ("sgd", "schedule_free_sgd", "lomo")
"""Optimisers with updates as large as gradients, so that the learning rates of muP are others."""


def refuse_mup(model: PreTrainedModel, optimizer: str) -> None:
    """Refuse a model in muP for an optimiser with updates of other sizes than Adam's."""
    if getattr(model.config, "initializer", None) == "mup":
        raise ConfigError(
            f"parametrization='mup' was given with {optimizer}; its learning rates are those of Adam: give "
            "optim='adamw_torch', or leave the parametrization out"
        )


def decayed_parameters(model: nn.Module, decay: str) -> list[str]:
    if decay in DECAY:
        return list(decayed_names(model, decay))
    return Trainer.get_decay_parameter_names(None, model)


def scaled_groups(
    model: PreTrainedModel, decayed: Iterable[str], lr: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Groups of parameters with the learning rates of a model's parametrization."""
    factors, names = learning_rate_factors(model), set(decayed)
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups.setdefault((factors[name], name in names), []).append(parameter)
    return [
        {"params": parameters, "lr": lr * factor, "weight_decay": weight_decay if decays else 0.0}
        for (factor, decays), parameters in groups.items()
    ]
