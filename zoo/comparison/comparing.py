"""The comparison itself."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zoo.building import config
from zoo.environment import environment
from zoo.errors import ConfigError
from zoo.models import ZooConfig
from zoo.models.parts import NAMED_FIELDS
from zoo.tasks.tables import Column
from zoo.training import Recipe
from zoo.training.arguments import training_arguments
from zoo.training.preflight import check_data
from zoo.training.recipe import recipe_for
from zoo.training.training import build_for, encode, tokenizers_for

from .job import Job
from .results import Comparison, Run
from .running import run

LONGEST_FOLDER_NAME = 100


def compare(
    names: Iterable[str],
    task: str | None = None,
    *,
    data: str | Path | None = None,
    heldout: str | Path | None = None,
    columns: Sequence[Column] | None = None,
    recipe: str | Path | Recipe | None = None,
    tokenizer: str | Path | Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    output_dir: str | Path | None = None,
    seed: int = 0,
    progress: bool = True,
    on_run: Callable[[int, int, str], None] | None = None,
    **arguments: Any,
) -> Comparison:
    """Train variants under the same seed, data and budget, and put their results beside each other.

    Each variant is trained in a process of its own, saved, and loaded again through transformers' Auto class in another
    fresh process. A run that fails does not stop the others.

    Args:
        names: Variants' names, possibly with settings: "vanilla", "vanilla+faithful", "pre-norm:position=rotary".
        task: A name in [`zoo.tasks.TASKS`][], possibly with options: "copy:length=20". By default the recipe's, and
            without a recipe "translation".
        data: As for [`zoo.training.train`][], a path.
        heldout: As for [`zoo.training.train`][].
        columns: As for [`zoo.training.train`][].
        recipe: As for [`zoo.training.train`][].
        tokenizer: As for [`zoo.training.train`][]; all variants share it.
        settings: As for [`zoo.training.train`][].
        generation: As for [`zoo.training.train`][].
        output_dir: Where checkpoints and results.json go; by default "outputs/compare-TASK".
        seed: The seed of every run.
        progress: Whether to show progress bars.
        on_run: Called before every run with its number from 1, the number of runs, and the variant's name.
        arguments: Fields of transformers' `Seq2SeqTrainingArguments`.

    Returns:
        The results, which are in results.json as well.

    Raises:
        ZooError: When a name is unknown or data cannot be used, before anything is trained.
    """
    began = time.perf_counter()
    names = [names] if isinstance(names, str) else list(names)
    chosen = recipe_for(task, recipe).changed(arguments=arguments, model=settings, generation=generation)
    data_task = chosen.data_task()
    folder = Path(output_dir if output_dir is not None else Path("outputs") / f"compare-{data_task.name}").absolute()
    check_names(names)
    training = training_arguments(chosen.arguments, output_dir=folder, seed=seed)
    splits = data_task.load(data, heldout=heldout, columns=columns, seed=seed)
    data_task = data_task.fitted(splits)
    tokenizers = tokenizers_for(data_task, splits.train, tokenizer, chosen)
    fitting = data_task.model_settings(tokenizers)
    modules = {
        name: modules_of(config(name, data_task.model_task, **{**chosen.model_settings(name), **fitting}))
        for name in names
    }
    encoded = encode(data_task, splits, tokenizers, seed=seed)
    for name in names:
        model = build_for(data_task, name, tokenizers, chosen, seed=seed)
        check_data(model, name, data_task, encoded, data_task.collator(tokenizers), training)
    shared_tokenizer = folder / "tokenizer"
    tokenizers.save(shared_tokenizer)
    runs: list[Run] = []
    for number, name in enumerate(names, start=1):
        if on_run is not None:
            on_run(number, len(names), name)
        job = Job(
            name=name,
            folder=str(folder / folder_name(name)),
            tokenizer=str(shared_tokenizer),
            recipe=chosen,
            seed=seed,
            data=None if data is None else place_of(data),
            heldout=None if heldout is None else place_of(heldout),
            columns=None if columns is None else list(columns),
            modules=modules[name],
            progress=progress,
        )
        runs.append(run(job))
    comparison = Comparison(
        task=data_task.name,
        names=names,
        baseline=names[0],
        seeds=[seed],
        budget=None,
        match="none",
        sweep=None,
        main_score=data_task.main_score,
        recipe=asdict(chosen),
        environment=environment(),
        command=[],
        sources=data_task.sources(splits.heldout),
        references=data_task.references(splits.heldout),
        runs=runs,
        folder=folder,
        seconds=time.perf_counter() - began,
    )
    comparison.write()
    return comparison


def place_of(data: str | Path) -> str:
    """Say where data are, for a process that may run elsewhere.

    Args:
        data: A file or folder, or a dataset's name on the Hub.

    Returns:
        A full path, or the name.
    """
    return str(Path(data).absolute()) if Path(data).exists() else str(data)


def check_names(names: Sequence[str]) -> None:
    """Require names to be there, and to differ.

    Args:
        names: What was given.

    Raises:
        ConfigError: When there are none, or one is given twice.
    """
    if not names:
        raise ConfigError("no variant was given; give the names of those to compare")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name!r} was given twice; give each variant once, or variants with different settings")


def modules_of(model_config: ZooConfig) -> tuple[str, ...]:
    """Find the user's own modules that a model needs, which another process must import by itself.

    Args:
        model_config: The model's configuration.

    Returns:
        Names of modules that are neither the zoo's nor loaded as plugins.

    Raises:
        ConfigError: When one of them is a script or a notebook, which cannot be imported.
    """
    modules = []
    for field, registry in NAMED_FIELDS.items():
        name = getattr(model_config, field)
        origin = registry.origin(name)
        if origin.built_in or origin.plugin is not None:
            continue
        if origin.module == "__main__":
            raise ConfigError(
                f"{registry.kind} {name!r} is registered in a script or notebook, which the processes of a comparison "
                "cannot import; move it to a module"
            )
        modules.append(origin.module)
    return tuple(dict.fromkeys(modules))


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
