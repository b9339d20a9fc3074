"""From what is compared to the runs that it takes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from typing import Any

from zoo.base.errors import ConfigError
from zoo.fast.switches import current
from zoo.registry import parse_name

from ..files import TOKENIZER, plain
from ..request.request import Request
from ..request.seeds import LENGTHS, model_fields
from .job import Job
from .matching import TOLERANCE, Match, Measure, Sizes, match, with_settings
from .shared_inputs import SharedInputs, Workload, modules_of, share_of_decay, share_of_warmup, spend

LONGEST_FOLDER_NAME = 100
CURVE_POINTS = 50  # Default number of logs per run

SIZES_OF_UPDATES = ("per_device_train_batch_size", "gradient_accumulation_steps", "dataloader_drop_last")
"""Training arguments that set the number of tokens in an update."""


@dataclass
class JobMaker:
    """Makes runs of variants, all of them with what the budget and the matching give them."""

    inputs: SharedInputs
    request: Request
    match_to: str  # The variant that the others are made equal to
    progress: bool
    tell: Callable[[str], None]  # Takes sentences about what was chosen
    lengths: dict[tuple[str, Workload], dict[str, Any]] = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.flops = cache(self.inputs.count_flops)  # of a variant with its sizes in its name, for a token
        self.matched = cache(self.find_match)

    def find_match(self, name: str) -> Match:
        """Make a variant equal to `match_to`, with other sizes where that takes some."""
        if self.request.match == "none" or name == self.match_to:
            return Match(name, 1.0, 1.0)
        inputs, (measure, what) = self.inputs, self.measure
        sizes = Sizes(name, inputs.task.model_task, inputs.settings(name))
        found = match(sizes, measure(self.match_to), measure, self.request.match_by)
        chosen = ", ".join(f"{key}={value}" for key, value in found.settings.items()) or "as it is"
        self.tell(f"{name}: {chosen}: {found.value:,.0f} {what}, {found.difference:+.2%} from {self.match_to}")
        return found

    @cached_property
    def measure(self) -> tuple[Measure, str]:
        """The size to match: a function of a variant's name, and its name."""
        if self.request.match == "params":
            return cache(self.inputs.count_parameters), "parameters"
        return lambda variant: self.flops(variant).training, "training FLOPs per token"

    def with_swept(self, name: str, fields: Mapping[str, Any]) -> str:
        """Give a matched variant swept fields, and refuse those that undo the match."""
        variant = with_settings(self.matched(name).name, dict(fields))
        if fields and self.request.match != "none":
            measure, what = self.measure
            value, wanted = measure(variant), measure(self.match_to)
            if abs(value / wanted - 1) > TOLERANCE:
                raise ConfigError(
                    f"{variant!r} has {value:,.0f} {what} and {self.match_to!r} {wanted:,.0f}: the sweep of "
                    f"{', '.join(fields)} changes what match={self.request.match} makes equal; give one of both"
                )
        return variant

    def work(self, swept: Mapping[str, Any]) -> Workload:
        """The workload of an update, which swept arguments may change."""
        sizes = {name: swept[name] for name in SIZES_OF_UPDATES if name in swept}
        return self.inputs.work_with(sizes) if sizes else self.inputs.work

    def length(self, variant: str, work: Workload) -> dict[str, Any]:
        """Turn the budget into training arguments of a variant with its sizes; none for the recipe's budget."""
        budget = self.request.spent
        if budget is None:
            return {}
        if (variant, work) not in self.lengths:
            flops = self.flops(variant).training if budget.kind == "flops" else 1.0
            self.lengths[variant, work] = spend(budget, work, flops)
            if budget.kind in ("tokens", "flops"):
                steps = self.lengths[variant, work]["max_steps"]
                self.tell(f"{variant}: {budget} is {steps:,} steps of {work.tokens_per_step:,.0f} tokens on average")
        args, steps = self.inputs.arguments, self.inputs.work.steps
        shares = {**share_of_warmup(args.warmup_steps, steps), **share_of_decay(args.lr_scheduler_kwargs, steps)}
        return self.lengths[variant, work] | without(shares, self.request.arguments)

    def job(self, name: str, seed: int, values: Mapping[str, Any], *, trial: bool = False, share: float = 1.0) -> Job:
        """Make a run with the values that a sweep has chosen or tries, trained for a `share` of a whole one."""
        inputs, source, budget = self.inputs, self.request.source, self.request.spent
        variant, swept = self.with_swept(name, model_fields(values)), without(values, model_fields(values))
        work = self.work(swept)
        length = self.length(variant, work)
        seconds = share * budget.amount if budget is not None and budget.kind == "seconds" else None
        if share < 1 and seconds is None:
            whole = length.get("max_steps", work.steps)
            names = ("warmup_steps", "lr_scheduler_kwargs")
            given = {**{name: getattr(inputs.arguments, name) for name in names}, **length, **swept}
            warmup, options = (given[name] for name in names)
            swept |= {**share_of_warmup(warmup, whole), **share_of_decay(options, whole)}
            length |= {"max_steps": max(1, round(share * whole))}
        kept = without(inputs.recipe.arguments, ("seed", *(LENGTHS if length else ())))
        settings = inputs.recipe.model_settings(variant)  # sizes of matching are in the name
        steps = length.get("max_steps", work.steps) if seconds is None else None
        recipe = plain(asdict(inputs.recipe)) | {
            "arguments": {**logging(kept, steps), **kept, **length, **swept},
            "model": without(settings, parse_name(variant).overrides),
        }
        modules = modules_of(inputs.config(variant))
        fast_paths = {name: mode for name, mode in asdict(current()).items() if mode != "auto"}
        # Other fast paths change results by rounding alone.
        others: dict[str, Any] = {name: mode for name, mode in fast_paths.items() if name == "quick_dropout"}
        if self.request.suite is not None and not trial:
            others["score"] = self.request.suite.to_dict()
        hashed = inputs.hash_of(variant, recipe, seed=seed, seconds=seconds, trial=trial, **others)
        place = f"{'trial' if trial else 'seed'}-{seed}-{hashed[:8]}"
        limit = {key: value for key, value in length.items() if key == "max_steps" and seconds is None}
        return Job(
            name=name,
            variant=variant,
            folder=str(inputs.folder / folder_name(name) / place),
            tokenizer=str(inputs.folder / TOKENIZER),
            recipe=recipe,
            seed=seed,
            hash=hashed,
            settings=dict(values) if trial else {**self.matched(name).settings, **limit, **values},
            seconds=seconds,
            trial=trial,
            data=source.data,
            heldout=source.heldout,
            columns=None if source.columns is None else list(source.columns),
            score=self.request.score,
            fast_paths=fast_paths,
            modules=modules,
            progress=self.progress,
        )

    def ready(self, jobs: Sequence[Job]) -> list[Job]:
        """Refuse variants that cannot be trained on the examples, and count operations once for all runs."""
        for variant in {job.variant: None for job in jobs if job.variant not in self.checked}:
            self.inputs.check(variant)
            self.checked.add(variant)
        return [job if job.trial else replace(job, flops=self.flops(job.variant)) for job in jobs]


def logging(arguments: Mapping[str, Any], steps: int | None) -> dict[str, Any]:
    """Log often enough for a curve, unless the recipe sets how often, or the clock ends the run."""
    if steps is None or any(name.startswith("logging_") for name in arguments):
        return {}
    return {"logging_steps": max(1, steps // CURVE_POINTS)}


def without(values: Mapping[str, Any], others: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in others}


def folder_name(name: str) -> str:
    """Make a variant's name the name of a folder, another one where only forbidden characters differ."""
    plain = re.sub(r"[^\w.+@=,-]", "_", name)
    if plain == name and len(name) < LONGEST_FOLDER_NAME:
        return plain
    return f"{plain[:LONGEST_FOLDER_NAME]}-{zlib.crc32(name.encode()):08x}"
