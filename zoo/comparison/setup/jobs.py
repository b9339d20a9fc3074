"""From what is compared to the runs that it takes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from zoo.analysis.measuring import FlopsPerToken
from zoo.fast.switches import current
from zoo.registry import parse_name

from ..files import TOKENIZER, plain
from ..request.request import Request
from ..request.seeds import LENGTHS, model_fields
from .job import Job
from .matching import Match, Sizes, match, with_settings
from .shared_inputs import SharedInputs, modules_of, share_of_warmup, spend

LONGEST_FOLDER_NAME = 100
CURVE_POINTS = 50  # Default number of logs per run


@dataclass
class JobMaker:
    """Makes runs of variants, all of them with what the budget and the matching give them."""

    inputs: SharedInputs
    request: Request
    match_to: str  # The variant that the others are made equal to
    progress: bool
    tell: Callable[[str], None]  # Takes sentences about what was chosen
    matches: dict[str, Match] = field(default_factory=dict)
    lengths: dict[str, dict[str, Any]] = field(default_factory=dict)
    counted: dict[str, FlopsPerToken] = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)

    def flops(self, variant: str) -> FlopsPerToken:
        """Count the operations that a variant, with its sizes in its name, needs for a token, once."""
        if variant not in self.counted:
            self.counted[variant] = self.inputs.count_flops(variant)
        return self.counted[variant]

    def training_flops(self, variant: str) -> float:
        return self.flops(variant).training

    def matched(self, name: str) -> Match:
        """Make a variant equal to `match_to`, with other sizes where that takes some."""
        if name not in self.matches:
            self.matches[name] = self.find_match(name)
        return self.matches[name]

    def find_match(self, name: str) -> Match:
        if self.request.match == "none" or name == self.match_to:
            return Match(name, 1.0, 1.0)
        inputs, params = self.inputs, self.request.match == "params"
        measure = inputs.count_parameters if params else self.training_flops
        sizes = Sizes(name, inputs.task.model_task, inputs.settings(name))
        found = match(sizes, measure(self.match_to), measure, self.request.match_by)
        chosen = ", ".join(f"{key}={value}" for key, value in found.settings.items()) or "as it is"
        what = "parameters" if params else "training FLOPs per token"
        self.tell(f"{name}: {chosen}: {found.value:,.0f} {what}, {found.difference:+.2%} from {self.match_to}")
        return found

    def length(self, name: str) -> dict[str, Any]:
        """Turn the budget into training arguments of a variant; none for the recipe's budget."""
        budget, work = self.request.spent, self.inputs.work
        if budget is None:
            return {}
        if name not in self.lengths:
            flops = self.training_flops(self.matched(name).name) if budget.kind == "flops" else 1.0
            self.lengths[name] = spend(budget, work, flops)
            if budget.kind in ("tokens", "flops"):
                steps = self.lengths[name]["max_steps"]
                self.tell(f"{name}: {budget} is {steps:,} steps of {work.tokens_per_step:,.0f} tokens on average")
        is_given = "warmup_steps" in self.request.arguments
        return {**self.lengths[name], **({} if is_given else share_of_warmup(self.inputs.arguments, work))}

    def job(self, name: str, seed: int, values: Mapping[str, Any], *, trial: bool = False, share: float = 1.0) -> Job:
        """Make a run with the values that a sweep has chosen or tries, trained for a `share` of a whole one."""
        inputs, source, budget = self.inputs, self.request.source, self.request.spent
        matched, length = self.matched(name), self.length(name)
        found = replace(matched, name=with_settings(matched.name, model_fields(values)))
        seconds = share * budget.amount if budget is not None and budget.kind == "seconds" else None
        if share < 1 and seconds is None:
            length = self.shortened(length, share)
        kept = {
            key: value
            for key, value in inputs.recipe.arguments.items()
            if key != "seed" and not (length and key in LENGTHS)
        }
        settings = inputs.recipe.model_settings(found.name)  # sizes of matching are in the name
        steps = length.get("max_steps", inputs.work.steps) if seconds is None else None
        recipe = plain(asdict(inputs.recipe)) | {
            "arguments": {**logging(kept, steps), **kept, **length, **without(values, model_fields(values))},
            "model": {key: value for key, value in settings.items() if key not in parse_name(found.name).overrides},
        }
        modules = modules_of(inputs.config(found.name))
        suite = None if self.request.suite is None or trial else self.request.suite.to_dict()
        hashed = inputs.hash_of(
            found.name, recipe, seed=seed, seconds=seconds, trial=trial, **({} if suite is None else {"score": suite})
        )
        place = f"{'trial' if trial else 'seed'}-{seed}-{hashed[:8]}"
        limit = {key: value for key, value in length.items() if key == "max_steps" and seconds is None}
        return Job(
            name=name,
            variant=found.name,
            folder=str(inputs.folder / folder_name(name) / place),
            tokenizer=str(inputs.folder / TOKENIZER),
            recipe=recipe,
            seed=seed,
            hash=hashed,
            settings=dict(values) if trial else {**found.settings, **limit, **values},
            seconds=seconds,
            trial=trial,
            data=source.data,
            heldout=source.heldout,
            columns=None if source.columns is None else list(source.columns),
            score=self.request.score,
            fast_paths={name: mode for name, mode in asdict(current()).items() if mode != "auto"},
            modules=modules,
            progress=self.progress,
        )

    def shortened(self, length: Mapping[str, Any], share: float) -> dict[str, Any]:
        """Training arguments of a share of a run, warm-up included."""
        work = self.inputs.work
        steps = max(1, round(share * length.get("max_steps", work.steps)))
        return {**share_of_warmup(self.inputs.arguments, work), **length, "max_steps": steps}

    def ready(self, jobs: Sequence[Job]) -> list[Job]:
        """Refuse variants that cannot be trained on the examples, and count operations once for all runs."""
        for variant in {job.variant: None for job in jobs if job.variant not in self.checked}:
            self.inputs.check(variant)
            self.checked.add(variant)
        return [job if job.trial else self.with_flops(job) for job in jobs]

    def with_flops(self, job: Job) -> Job:
        forward, training = self.flops(job.variant)
        return replace(job, flops=(forward, training))


def logging(arguments: Mapping[str, Any], steps: int | None) -> dict[str, Any]:
    """Log often enough for a curve, unless the recipe sets how often, or the clock ends the run."""
    if steps is None or any(name.startswith("logging_") for name in arguments):
        return {}
    return {"logging_steps": max(1, steps // CURVE_POINTS)}


def without(values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of values those of other names."""
    return {name: value for name, value in values.items() if name not in others}


def folder_name(name: str) -> str:
    """Make a variant's name the name of a folder, another one where only forbidden characters differ."""
    plain = re.sub(r"[^\w.+@=,-]", "_", name)
    return (
        plain
        if plain == name and len(name) < LONGEST_FOLDER_NAME
        else f"{plain[:LONGEST_FOLDER_NAME]}-{zlib.crc32(name.encode()):08x}"
    )
