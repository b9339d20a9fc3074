"""From what is compared to the runs that it takes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from zoo.measuring import FlopsPerToken

from ..files import plain
from ..request.budget import LENGTHS, Budget
from .job import Job
from .matching import Match, Sizes, match
from .shared_inputs import SharedInputs, modules_of
from .workload import share_of_warmup, spend

LONGEST_FOLDER_NAME = 100
CURVE_POINTS = 50
"""How often a run logs, unless the recipe says so."""


@dataclass
class JobMaker:
    """Makes runs of variants, all of them with what the budget and the matching give them.

    Attributes:
        ground: What all runs stand on.
        baseline: The variant that the others are made equal to.
        budget: How long every run is, None for the recipe's.
        matching: "none", "params" or "flops".
        match_by: What may be changed, None for whatever leads to it.
        explicit: Training arguments that were given beside the recipe.
        tell: Takes sentences about what was chosen.
        data: As for `Job`: `data`, `heldout`, `columns` and `progress`.
    """

    ground: SharedInputs
    baseline: str
    budget: Budget | None
    matching: str
    match_by: str | None
    explicit: Collection[str]
    tell: Callable[[str], None]
    data: Mapping[str, Any]
    matches: dict[str, Match] = field(default_factory=dict)
    lengths: dict[str, dict[str, Any]] = field(default_factory=dict)
    counted: dict[str, FlopsPerToken] = field(default_factory=dict)

    def flops(self, variant: str) -> FlopsPerToken:
        """Count the operations that a variant needs for a token, once.

        Args:
            variant: Its name, with its sizes.

        Returns:
            Their numbers.
        """
        if variant not in self.counted:
            self.counted[variant] = self.ground.count_flops(variant)
        return self.counted[variant]

    def training_flops(self, variant: str) -> float:
        """Count the operations that training a variant needs for a token.

        Args:
            variant: Its name, with its sizes.

        Returns:
            Their number.
        """
        return self.flops(variant).training

    def matched(self, name: str) -> Match:
        """Make a variant equal to the baseline.

        Args:
            name: Its name.

        Returns:
            The variant, with other sizes where that takes some.
        """
        if name not in self.matches:
            self.matches[name] = self.find_match(name)
        return self.matches[name]

    def find_match(self, name: str) -> Match:
        """Look for the sizes that make a variant equal to the baseline, and tell them."""
        if self.matching == "none" or name == self.baseline:
            return Match(name, 1.0, 1.0)
        ground, params = self.ground, self.matching == "params"
        measure = ground.count_parameters if params else self.training_flops
        sizes = Sizes(name, ground.task.model_task, ground.settings(name))
        found = match(sizes, measure(self.baseline), measure, self.match_by)
        chosen = ", ".join(f"{key}={value}" for key, value in found.settings.items()) or "as it is"
        what = "parameters" if params else "training FLOPs per token"
        self.tell(f"{name}: {chosen}: {found.value:,.0f} {what}, {found.difference:+.2%} from {self.baseline}")
        return found

    def length(self, name: str) -> dict[str, Any]:
        """Turn the budget into training arguments of a variant.

        Args:
            name: Its name.

        Returns:
            The arguments; none for the recipe's budget.
        """
        if self.budget is None:
            return {}
        if name not in self.lengths:
            flops = self.training_flops(self.matched(name).name) if self.budget.kind == "flops" else 1.0
            spent = spend(self.budget, self.ground.work, flops)
            self.lengths[name] = spent
            if self.budget.kind in ("tokens", "flops"):
                steps, each = spent["max_steps"], self.ground.work.tokens_per_step
                self.tell(f"{name}: {self.budget} is {steps:,} steps of {each:,.0f} tokens on average")
        warmup = {} if "warmup_steps" in self.explicit else share_of_warmup(self.ground.arguments, self.ground.work)
        return {**self.lengths[name], **warmup}

    def job(self, name: str, seed: int, values: Mapping[str, Any], *, trial: bool = False) -> Job:
        """Make a run.

        Args:
            name: The variant's name.
            seed: The seed.
            values: What a sweep has chosen, or what it tries.
            trial: Whether it is a sweep's.

        Returns:
            What to do.
        """
        ground, found, length = self.ground, self.matched(name), self.length(name)
        kept = {
            key: value
            for key, value in ground.recipe.arguments.items()
            if key != "seed" and not (length and key in LENGTHS)
        }
        timed = self.budget is not None and self.budget.kind == "seconds"
        steps = None if timed else length.get("max_steps", ground.work.steps)
        arguments = {**logging(kept, steps), **kept, **length, **values}
        recipe = plain(asdict(ground.recipe)) | {
            "arguments": arguments,
            "model": ground.recipe.model_settings(found.name),
        }
        seconds = self.budget.amount if timed and self.budget is not None else None
        modules = modules_of(ground.config(found.name))
        hashed = ground.hash_of(found.name, recipe, modules, seed=seed, seconds=seconds, trial=trial)
        place = f"{'trial' if trial else 'seed'}-{seed}-{hashed[:8]}"
        told = {} if timed else {key: value for key, value in length.items() if key == "max_steps"}
        return Job(
            name=name,
            variant=found.name,
            folder=str(ground.folder / folder_name(name) / place),
            tokenizer=str(ground.folder / "tokenizer"),
            recipe=recipe,
            seed=seed,
            hash=hashed,
            settings=dict(values) if trial else {**found.settings, **told, **values},
            seconds=seconds,
            trial=trial,
            modules=modules,
            **self.data,
        )


def logging(arguments: Mapping[str, Any], steps: int | None) -> dict[str, Any]:
    """Log often enough for a curve.

    Args:
        arguments: The recipe's training arguments.
        steps: How many updates there are, None where the clock ends the run.

    Returns:
        More arguments; none where the recipe says it itself.
    """
    if steps is None or any(name.startswith("logging_") for name in arguments):
        return {}
    return {"logging_steps": max(1, steps // CURVE_POINTS)}


def folder_name(name: str) -> str:
    """Make a variant's name the name of a folder.

    Args:
        name: The variant's name, with its settings.

    Returns:
        The same where it can be; other names in which only the forbidden characters differ get other folders.
    """
    plain = re.sub(r"[^\w.+@=,-]", "_", name)
    return (
        plain
        if plain == name and len(name) < LONGEST_FOLDER_NAME
        else f"{plain[:LONGEST_FOLDER_NAME]}-{zlib.crc32(name.encode()):08x}"
    )
