"""Exports as classes of transformers: configuration, weights, and the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import save_torch_state_dict
from torch import Tensor

from zoo.models import TASK_CLASSES, ZooConfig, ZooPreTrainedModel
from zoo.models.capabilities import limits_in_vllm_on_cpu
from zoo.registry import Task

from ..errors import ExportError, VerificationError
from ..planning import plan_target
from ..symmetries import Route
from ..target import ExportOptions, Target, TargetPlan
from ..verification import Difference, verify
from ..weights import change_config, save_generation, task_of, weights_of
from .common import narrowed
from .declared import NativeFormat
from .files import TOKENIZER_CONFIG, load_tokenizer

SHARD_SIZE = "5GB"


def write_native(model: ZooPreTrainedModel, workshop: Path, native: NativeFormat, route: Route) -> None:
    task = task_of(model)
    model_class = getattr(transformers, native.classes[task])
    in_float32 = model_class._keep_in_fp32_modules_strict or ()
    state = narrowed(native_weights(model, native, route), next(iter(model.parameters())).dtype, in_float32)
    if task == Task.FEATURE_EXTRACTION:
        state = {name.removeprefix(native.prefix): tensor for name, tensor in state.items()}
    dtype = next(one.dtype for name, one in state.items() if not any(part in name for part in in_float32))
    config = write_settings(model, workshop, native, route, dtype)
    save_weights(without_copies(state, model_class, config), workshop)


def write_settings(
    model: ZooPreTrainedModel, workshop: Path, native: NativeFormat, route: Route, dtype: torch.dtype
) -> Any:
    task = task_of(model)
    model_class = getattr(transformers, native.classes[task])
    fields = native.write_config(route.config, task)
    config = model_class.config_class(**fields)
    config.architectures, config.dtype = [model_class.__name__], dtype
    config.save_pretrained(workshop)
    # As they were meant, where a configuration class has its own idea of one.
    change_config(workshop, {name: value for name, value in fields.items() if isinstance(value, str | int | float)})
    save_generation(model, workshop)
    return config


def native_weights(model: ZooPreTrainedModel, native: NativeFormat, route: Route) -> dict[str, Tensor]:
    """A model's weights as a class of transformers has them, in float32 at least."""
    task, config = task_of(model), route.config
    working = torch.promote_types(next(iter(model.parameters())).dtype, torch.float32)
    state = route({name: tensor.to(working) for name, tensor in weights_of(model).items()})
    return native.write_weights(config, native.key_map(config, task).backward(state), task)


def without_copies(state: dict[str, Tensor], model_class: Any, native_config: Any) -> dict[str, Tensor]:
    """Check weights against a class, and leave out those that it ties by itself."""
    with torch.device("meta"):
        shell = model_class(native_config)
    expected = {name: tuple(tensor.shape) for name, tensor in shell.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in state.items()}
    wrong = [name for name in sorted(expected.keys() | given.keys()) if expected.get(name) != given.get(name)]
    if wrong:
        raise VerificationError(
            f"these weights do not fit {model_class.__name__}: "
            + ", ".join(f"{name} {given.get(name)}, not {expected.get(name)}" for name in wrong[:8])
        )
    tied = shell.all_tied_weights_keys
    copies = {copy for copy, first in tied.items() if torch.equal(state[copy], state[first])}
    return {name: tensor for name, tensor in state.items() if name not in copies}


def save_weights(state: dict[str, Tensor], folder: Path) -> None:
    """Write safetensors files, several where one would be too large."""
    apart = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
    save_torch_state_dict(apart, folder, max_shard_size=SHARD_SIZE)


def require_readable(source: Path, config: ZooConfig) -> None:
    """Refuse a tokenizer by which a classifier of transformers, which has no mask, reads other tokens than ours."""
    tokenizer = load_tokenizer(source) if (source / TOKENIZER_CONFIG).is_file() else None
    if tokenizer is None:
        return
    if config.stack == "encoder" and tokenizer.padding_side == "left":
        raise ExportError("the tokenizer pads on the left, and the class reads the first position, also of padding")
    if config.stack == "decoder" and tokenizer("a")["input_ids"][-1:] == [config.pad_token_id]:
        raise ExportError(f"the tokenizer ends texts with pad_token_id={config.pad_token_id}, which the class skips")


class NativeTarget(Target):
    """A checkpoint of one of transformers' own classes."""

    summary = "a checkpoint of transformers' own class: no zoo, no remote code"

    def __init__(self, native: NativeFormat) -> None:
        self.native, self.name = native, native.name

    def plan(self, model: ZooPreTrainedModel) -> TargetPlan:
        return plan_target(self.native, model.config, weights_of(model), task_of(model))

    def write(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> None:
        assert plan.route is not None
        if task_of(model) == Task.SEQUENCE_CLASSIFICATION and options.source is not None:
            require_readable(options.source, model.config)
        write_native(model, folder, self.native, plan.route)

    def check(self, model: ZooPreTrainedModel, folder: Path, plan: TargetPlan, options: ExportOptions) -> Difference:
        """Load it where the zoo cannot be imported."""
        auto_class, output = TASK_CLASSES[task_of(model)][0], self.output(model, plan)
        ways = {"in_process": not options.fresh_process, "in_double": self.native.computes_in_double}
        return verify(model, folder, auto_class, output, **ways)

    def notes(self, plan: TargetPlan, options: ExportOptions) -> tuple[str, ...]:
        """Add the head size of a decoder that vLLM lacks on CPUs."""
        assert plan.route is not None
        decodes = plan.class_name == self.native.classes.get(Task.CAUSAL_LM)
        return (*plan.notes, *(limits_in_vllm_on_cpu(plan.route.config) if decodes else ()))

    def output(self, model: ZooPreTrainedModel, plan: TargetPlan) -> str:
        assert plan.route is not None
        return self.native.output(plan.route.config, task_of(model))
