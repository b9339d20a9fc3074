"""TrainingArguments of transformers by names and values, and experiment trackers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import Seq2SeqTrainingArguments, Trainer
from transformers.integrations import TensorBoardCallback, get_available_reporting_integrations
from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType
from transformers.training_args import OptimizerNames
from transformers.utils import ExplicitEnum

from zoo.base.errors import ConfigError, InvalidChoiceError, UnknownOverrideError, raised_as
from zoo.models import ZooConfig
from zoo.models.roles import DECAY

TRACKERS = {"tensorboard": ("tensorboard", "tensorboardX"), "trackio": ("trackio",), "wandb": ("wandb",)}
"""Experiment trackers, and the packages that they run on, any one of them each."""


def check_trackers(report_to: Any) -> None:
    several = () if report_to is None else report_to
    for name in map(str, several if isinstance(several, (list, tuple)) else (several,)):
        packages = TRACKERS.get(name, ())
        if packages and not any(map(find_spec, packages)):
            raise ConfigError(f"report_to={name} was given, but {name} is not installed: pip install {packages[0]}")
        if not packages and name not in ("none", "all", *get_available_reporting_integrations()):
            raise InvalidChoiceError(name, TRACKERS, kind="report_to")


def keep_logs(trainer: Trainer, output_dir: str | Path) -> None:
    """Keep TensorBoard's files next to the model, in the folder `output_dir`-logs."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.logging_dir is None:
            callback.logging_dir = f"{Path(output_dir).absolute()}-logs"


MUON = "muon"  # The value of `optim` that transformers does not know

BY_CLASS = "transformers"
"""The value of `decay` for the rule of transformers' trainer: all but biases and what it knows as norms."""

DECAYS = (*DECAY, BY_CLASS)  # Values of `decay`

DEFAULTS: dict[str, Any] = {
    "save_strategy": "no",
    "eval_strategy": "no",
    "logging_steps": 20,
    "logging_nan_inf_filter": False,
    "report_to": "none",
    "restore_callback_states_from_checkpoint": True,
}
"""Where the zoo differs from transformers."""

RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("max_steps", "early_stopping_patience", "average_steps"), (1, math.inf)),
    **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size"), (1, math.inf)),
    **dict.fromkeys(("gradient_accumulation_steps", "eval_accumulation_steps"), (1, math.inf)),
    **dict.fromkeys(("num_train_epochs", "learning_rate", "weight_decay", "warmup_steps"), (0, math.inf)),
    **dict.fromkeys(("dataloader_num_workers", "eval_delay", "neftune_noise_alpha"), (0, math.inf)),
    **dict.fromkeys(("max_grad_norm", "adam_epsilon", "eval_steps", "save_steps", "z_loss"), (0, math.inf)),
    **dict.fromkeys(("label_smoothing_factor", "adam_beta1", "adam_beta2", "average_last", "average_decay"), (0, 1)),
    **dict.fromkeys(("seed", "data_seed"), (0, 2**32 - 1)),
}
"""The smallest and the largest valid value of numbers that transformers does not look at before it uses them."""

POSITIVE = ("num_train_epochs",)  # Numbers that must be above the smallest value of their range

REFUSED: dict[str, tuple[Any, str]] = {
    "push_to_hub": (
        True,
        "is transformers' own push, which uploads all files of the folder; name the repository for the zoo's instead "
        "(--push REPO, push='org/name')",
    ),
    "auto_find_batch_size": (
        True,
        "begins again with smaller batches and weights that are trained already, where memory is short: give "
        "per_device_train_batch_size and gradient_accumulation_steps",
    ),
    "prediction_loss_only": (True, "leaves out the outputs, which are scored at the end: leave it out"),
    "eval_do_concat_batches": (False, "leaves outputs in batches, which are scored together: leave it out"),
    "remove_unused_columns": (False, "gives models what only the zoo reads, such as lengths of examples: leave it out"),
    "greater_is_better": (True, "would keep the checkpoint with the highest loss: leave it out"),
    "do_train": (False, "has no effect: to score a model without training it, see zoo evaluate"),
    "do_eval": (False, "has no effect: models are scored at the end; eval_strategy=no leaves out evaluations before"),
    "predict_with_generate": (False, "has no effect: outputs are scored at the end (scored=False leaves them out)"),
    **dict.fromkeys(
        ("generation_config", "generation_max_length", "generation_num_beams"),
        (..., "has no effect: outputs are written by the recipe's section 'generation', or generation={...}"),
    ),
    "resume_from_checkpoint": (..., "has no effect: --resume (resume=True) goes on from the last checkpoint"),
}
"""Values, or any (...), with which a run would do something else, nothing, or fail at its end, and why."""

NEEDED = {
    "average_last": "average",
    "average_steps": "average",
    "average_decay": "average",
    "checkpoint_in": "checkpoint_at",
    "early_stopping_threshold": "early_stopping_patience",
}
"""Arguments without an effect, and those that they need."""

WITHOUT_BETAS = ("adafactor", "adagrad", "adalomo", "lomo", "rmsprop", "schedule_free_sgd", "sgd")
"""Optimisers that do not read the betas and the epsilon of Adam."""

IDLE: dict[str, tuple[str, tuple[object, ...]]] = {
    **dict.fromkeys(("adam_beta1", "adam_beta2", "adam_epsilon"), ("optim", WITHOUT_BETAS)),
    "average_decay": ("average", ("lawa",)),
    "dataloader_persistent_workers": ("dataloader_num_workers", (0, None)),
    "decay": ("weight_decay", (0, None)),
    "eval_steps": ("eval_strategy", ("no", "epoch")),
    "logging_steps": ("logging_strategy", ("no", "epoch")),
    "lr_scheduler_kwargs": ("lr_scheduler_type", ("constant", "constant_with_warmup")),
    "save_steps": ("save_strategy", ("no", "epoch", "best")),
    "warmup_steps": ("lr_scheduler_type", ("constant", "greedy", "reduce_lr_on_plateau")),
}
"""Arguments, each with another one and the values of that with which it has no effect; None where it is not given."""

BATCHES = {"split_batches": True, "dispatch_batches": True, "even_batches": False}
"""Values in `accelerator_config` with which batches are miscounted, or a run of several processes fails."""

CHOICES: dict[str, type[ExplicitEnum]] = {
    "optim": OptimizerNames,
    "lr_scheduler_type": SchedulerType,
    "eval_strategy": IntervalStrategy,
    "save_strategy": SaveStrategy,
}
"""Arguments with a fixed set of values in transformers; an error names the nearest one."""

METRICS = ("loss", "eval_loss")  # Scores that choose the best checkpoint

SAMPLING = ("random", "sequential", "group_by_length")  # Values of `train_sampling_strategy` that have an effect

TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "optim_args": ((str,), "KEY=VALUE, several with commas"),
    **dict.fromkeys(("accelerator_config", "gradient_checkpointing_kwargs"), ((dict, str), "names and values")),
}
"""Types of arguments that transformers does not look at, and what they are."""

STRATEGIES = ("eval_strategy", "save_strategy")

ABSENT = {"max_steps": -1}  # Values outside of these ranges that switch an argument off


@dataclass
class ZooTrainingArguments(Seq2SeqTrainingArguments):
    """transformers' training arguments, with early stopping among them, and Muon among the optimisers."""

    # How many evaluations without a better one end the run; None for no such end
    early_stopping_patience: int | None = None
    early_stopping_threshold: float = 0.0  # By how much an evaluation must be better to count
    # Parameters with weight decay: "matrices", "matrices-and-embeddings" (tables of positions too), "all", or
    # "transformers", the rule of transformers' trainer, which depends on classes and names
    decay: str = "matrices"
    # Weight of the squared log of the softmax's normalizer in the training loss of a language model (Chowdhery et al.
    # 2022, PaLM, section 5: 1e-4).
    z_loss: float = 0.0
    # "ema" or "lawa", averages of the weights of the last part of the run, which are saved and evaluated as well; None
    # for none
    average: str | None = None
    average_last: float = 0.2  # Share of the updates that are averaged over
    average_steps: int = 1  # Updates from one to the next that is taken into the average
    average_decay: float = 0.999  # Share of itself that the moving average keeps at each update
    # Numbers of tokens or words, such as "1M,2M,10M", after which the model is saved in the folder
    # `output_dir`-revisions, as chck_1M for instance
    checkpoint_at: str | None = None
    # Their unit, "tokens" or "words", as many as the texts to train on have on average in as many tokens
    checkpoint_in: str = "tokens"

    def __post_init__(self) -> None:
        self.optim: OptimizerNames | str
        self.uses_muon = self.optim == MUON
        if self.uses_muon:
            self.optim = OptimizerNames.ADAMW_TORCH_FUSED  # for the parameters that are no matrices
        super().__post_init__()

    @property
    def order_seed(self) -> int:
        """Seed of the order of examples, and of what is masked in them."""
        return self.seed if self.data_seed is None else self.data_seed


WHOLE = {field.name for field in fields(ZooTrainingArguments) if str(field.type) in (str(int), "int", "int | None")}
"""Arguments that are whole numbers."""


def training_arguments(
    given: Mapping[str, Any], *, output_dir: str | Path, seed: int, progress: bool = True
) -> ZooTrainingArguments:
    valid = [field.name for field in fields(ZooTrainingArguments) if field.init]
    for name in given:
        if name not in valid and name in ZooConfig.__dataclass_fields__:
            raise ConfigError(f"{name} is a setting of models: give settings={{{name!r}: {given[name]!r}}}")
        UnknownOverrideError.check(name, valid=valid, owner="Seq2SeqTrainingArguments")
    for name, (value, reason) in REFUSED.items():
        if name in given and value in (given[name], ...):
            raise ConfigError(f"{name}={given[name]} {reason}")
    for name, needed in NEEDED.items():
        if name in given and needed not in given:
            raise ConfigError(f"{name}={given[name]} was given, which has no effect without {needed}; give both")
    check_choices(given)
    check_numbers({"seed": seed, **given})
    check_trackers(given.get("report_to"))
    settings = {
        "output_dir": str(output_dir),
        "seed": seed,
        "disable_tqdm": not progress,
        **DEFAULTS,
        **device_settings(use_cpu=bool(given.get("use_cpu", False))),
        **completed(given),
    }
    with raised_as(ConfigError, "training arguments are not valid: {}".format, ValueError, TypeError):
        args = ZooTrainingArguments(**settings)
    for name, value in BATCHES.items():
        if getattr(args.accelerator_config, name) is value:
            raise ConfigError(
                f"accelerator_config={{{name!r}: {value}}} gives several processes other batches than "
                "per_device_train_batch_size has, which each of them fills: leave it out"
            )
    if args.fp16 and args.device.type == "cpu":
        raise ConfigError(
            "fp16=True has no effect on a CPU, where accelerate computes in float32; give bf16, or leave it out"
        )
    return args


def device_settings(*, use_cpu: bool) -> dict[str, Any]:
    """Settings for a GPU, unless none is available or `use_cpu` is given."""
    cuda = torch.cuda.is_available() and not use_cpu
    return {
        # transformers does not see by itself that several processes on CPUs are one run.
        "use_cpu": use_cpu or not torch.accelerator.is_available(),
        "bf16": cuda and torch.cuda.is_bf16_supported(including_emulation=False),
        "tf32": True if cuda and torch.cuda.get_device_capability() >= (8, 0) else None,
        # accelerate has a batch ahead on its way: from pinned memory while the one before is computed with.
        "dataloader_pin_memory": cuda,
        "accelerator_config": {"non_blocking": cuda},
    }


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Add what follows from steps between evaluations or checkpoints, and from the wish to keep the best checkpoint."""
    by_steps = {f"{kind}_strategy": "steps" for kind in ("eval", "save") if given.get(f"{kind}_steps") is not None}
    given = {**by_steps, **given}
    patience, evaluates, saves = (given.get(key) for key in ("early_stopping_patience", *STRATEGIES))
    keeps_best = given.get("load_best_model_at_end", patience is not None)
    if patience is not None and not keeps_best:
        raise ConfigError(
            f"early_stopping_patience={patience} and load_best_model_at_end=False were given, and early stopping keeps "
            "the best checkpoint: leave one out"
        )
    if saves == "best":
        given = {"metric_for_best_model": "loss", **given}
        if evaluates in (None, "no") and not keeps_best:
            raise ConfigError(
                "save_strategy=best was given, which has no effect without evaluations: give eval_strategy"
            )
    if not keeps_best:
        if saves != "best" and (metric := given.get("metric_for_best_model")) is not None:
            raise ConfigError(
                f"metric_for_best_model={metric} was given, which has no effect where the best checkpoint is not kept: "
                "give load_best_model_at_end=True, or leave it out"
            )
        return given
    for name in STRATEGIES:
        if given.get(name) == "no":
            raise ConfigError(f"{name}=no was given, and the best checkpoint of the evaluations is kept: leave one out")
    if None not in (evaluates, saves) and saves not in (evaluates, "best"):
        raise ConfigError(
            f"eval_strategy={evaluates} and save_strategy={saves} were given, and the best one of the evaluations may "
            "not be saved: give both alike"
        )
    strategy = evaluates or (saves if saves != "best" else None) or "epoch"
    steps = {key: given[key] for key in ("eval_steps", "save_steps") if key in given}
    interval = next(iter(steps.values()), None)
    if any(value != interval for value in steps.values()):
        raise ConfigError(
            f"eval_steps={interval} and save_steps={steps['save_steps']} were given, and the best one of the "
            "evaluations may not be saved: give both alike"
        )
    return {
        "load_best_model_at_end": True,
        "metric_for_best_model": "loss",
        "save_total_limit": 2,
        **({"eval_steps": interval, "save_steps": interval} if interval is not None else {}),
        **{key: value for key, value in given.items() if key not in STRATEGIES},
        "eval_strategy": strategy,
        "save_strategy": saves or strategy,
    }


def check_idle(given: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Refuse given arguments without an effect next to all arguments of a run, those of its recipe included."""
    for name, (other, values) in IDLE.items():
        if given.get(name) and arguments.get(other) in values:
            value = getattr(arguments.get(other), "value", arguments.get(other))
            why = f"with {other}={value}; leave out one of the two" if value is not None else f"without {other}"
            raise ConfigError(f"{name}={given[name]} was given, which has no effect {why}")


def check_numbers(given: Mapping[str, Any]) -> None:
    """Refuse numbers with which a run would fail after a while, or not learn, and what is of another type."""
    for name, (types, meaning) in TYPES.items():
        if not isinstance(given.get(name), (*types, type(None))):
            raise ConfigError(f"{name}={given[name]!r} is not valid; it is {meaning}")
    for name, (least, most) in RANGES.items():
        value = given.get(name)
        kinds = int if name in WHOLE else (int, float)
        if value not in (None, ABSENT.get(name)) and not (
            isinstance(value, kinds)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and least <= value <= most
            and not (name in POSITIVE and value == least)
        ):
            valid = f"{least} and more" if most == math.inf else f"{least} to {most}"
            valid = f"above {least}" if name in POSITIVE else valid
            valid += ", whole numbers" if name in WHOLE else ""
            raise ConfigError(f"{name}={value!r} is not valid; valid: {valid}")


def check_choices(given: Mapping[str, Any]) -> None:
    """Refuse an unknown optimiser, schedule, strategy or rule of weight decay."""
    for name, kind in CHOICES.items():
        valid = [*((MUON,) if name == "optim" else ()), *(one.value for one in kind)]
        if isinstance(value := given.get(name), str):
            InvalidChoiceError.check(value, valid=valid, kind=name)
    InvalidChoiceError.check(given.get("decay", DECAYS[0]), valid=DECAYS, kind="decay")
    strategy = given.get("train_sampling_strategy", SAMPLING[0])
    InvalidChoiceError.check(strategy, valid=SAMPLING, kind="train_sampling_strategy")
    if (metric := given.get("metric_for_best_model")) is not None:
        InvalidChoiceError.check(metric, valid=METRICS, kind="metric_for_best_model")
