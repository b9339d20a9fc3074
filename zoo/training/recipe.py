"""Recipes: all settings of a training run, in one file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from zoo.base.errors import ConfigError, UnknownNameError
from zoo.base.synonyms import LENGTHS
from zoo.building.proportions import OF_HEAD, OF_WIDTH
from zoo.data.tasks import TASKS, DataTask, Outputs, find_task, split_name
from zoo.registry import VARIANTS, parse_name, split_options

FOLDER = Path(__file__).parent / "recipes"
USUAL_TASKS = {
    "seq2seq-lm": "translation",
    "causal-lm": "language-modeling",
    "masked-lm": "masked-language-modeling",
    "sequence-classification": "text-classification",
    "token-classification": "token-classification",
}
"""The data task of a model's task where none is given, in the order in which a variant's tasks are tried."""

SUFFIXES = (".yaml", ".yml", ".json")


class RecipeLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's safe loader, in C if possible, that reads 5e-4 as a number (YAML 1.2) and refuses repeated keys."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.checked: set[Any] = set()

    def flatten_mapping(self, node: Any) -> None:
        """Put merged keys (`<<`) into a mapping, after a check of its own ones. PyYAML may call it again."""
        if node not in self.checked:
            self.checked.add(node)
            found: set[tuple[str, str]] = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if (key.tag, key.value) in found:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is there twice", key.start_mark
                    )
                found.add((key.tag, key.value))
        super().flatten_mapping(node)


RecipeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


@dataclass(frozen=True)
class Recipe:
    """Data, model and training arguments of a run.

    Attributes:
        task: A name in [`zoo.data.tasks.TASKS`][].
        task_options: The task's options, such as the `block_size` of language modelling.
        tokenizer: `kind`, `joint` and the options of the kind, as for [`zoo.data.tasks.train_tokenizers`][]; or the
            `folder` of trained ones.
        model: Fields of [`zoo.models.ZooConfig`][] that every variant gets, unless its name has others.
        arguments: Fields of transformers' `Seq2SeqTrainingArguments`.
        generation: Arguments of `generate` when outputs are scored.
        explicit: Fields of `model` that were given besides the recipe: they win over a name's preset and quirks.
        init: The weights that training starts from: their name, a folder or a repository; None for random ones.
    """

    task: str
    task_options: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)
    explicit: Sequence[str] = ()
    init: str | None = None

    def changed(
        self,
        *,
        task_options: Mapping[str, Any] | None = None,
        tokenizer: str | Path | Mapping[str, Any] | None = None,
        model: Mapping[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None,
        generation: Mapping[str, Any] | None = None,
    ) -> Recipe:
        """Change single values.

        Another kind of tokenizer starts from its own options; settings of the model are `explicit` from then on. Epochs
        take the place of a number of updates.
        """
        check_length(arguments or {})
        replaced = "max_steps" if "num_train_epochs" in (arguments or {}) else ""
        kept = {name: value for name, value in self.arguments.items() if name != replaced}
        lengths = {*LENGTHS} if {*LENGTHS} & {*(generation or {})} else set()
        written = {name: value for name, value in self.generation.items() if name not in lengths}
        return replace(
            self,
            task_options={**self.task_options, **(task_options or {})},
            tokenizer=changed_tokenizer(self.tokenizer, tokenizer),
            model={**self.model, **(model or {})},
            arguments={**kept, **(arguments or {})},
            generation={**written, **(generation or {})},
            explicit=tuple(dict.fromkeys((*self.explicit, *(model or {})))),
        )

    def data_task(self) -> DataTask:
        """The task, with the recipe's options."""
        return find_task(self.task, self.task_options)

    def check_name(self, name: str) -> None:
        """Raise ConfigError if a setting in a variant's name has another value in the explicit settings."""
        for setting, value in parse_name(name).overrides.items():
            if setting in self.explicit and self.model.get(setting, value) != value:
                raise ConfigError(
                    f"{name!r} sets {setting}={value}, and {setting}={self.model[setting]} was given as well; "
                    "give one of them"
                )

    def check_generation(self, given: Mapping[str, Any] | None) -> None:
        """Refuse arguments of `generate` for a task without generated outputs."""
        task = self.data_task()
        if given and task.outputs != Outputs.GENERATED:
            raise ConfigError(
                f"generation={dict(given)} was given, and no text is generated for {task.name}: leave it out"
            )

    def model_settings(self, name: str) -> dict[str, Any]:
        """Fields of the configuration that the recipe adds to a variant's name.

        Settings in the name, its preset and quirks take precedence, except over explicit settings. Of a recipe with a
        width, sizes that neither gives are those of the definition.
        """
        spec = parse_name(name)
        variant = VARIANTS.get(spec.name)
        implied = set(variant.presets.get(spec.preset or "", {}))
        for quirk in variant.check_quirks(spec.quirks, faithful=spec.faithful):
            implied.update(variant.quirks[quirk].overrides)
        in_name = {*spec.overrides, *implied.difference(self.explicit)}
        sizes = {"sizes": "fixed"} if "hidden_size" in self.model else {}
        return {key: value for key, value in {**sizes, **self.model}.items() if key not in in_name}

    def kept_sizes(self, name: str) -> dict[str, Any]:
        """Sizes of the recipe that stay although the name or an explicit setting gives another width."""
        given = {*parse_name(name).overrides, *self.explicit}
        sizes = (size for size in (*OF_WIDTH, *OF_HEAD) if "hidden_size" in given and size not in given)
        return {size: self.model[size] for size in sizes if size in self.model}


def check_length(arguments: Mapping[str, Any], place: str = "") -> None:
    """Refuse two lengths of a run: transformers would take the updates, and ignore the epochs."""
    steps, epochs = arguments.get("max_steps"), arguments.get("num_train_epochs")
    if steps not in (None, -1) and epochs is not None:
        raise ConfigError(f"{place}max_steps={steps} and num_train_epochs={epochs} were given; give one of both")


def changed_tokenizer(tokenizer: Mapping[str, Any], change: str | Path | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if change is None:
        return tokenizer
    if isinstance(change, Path) or (isinstance(change, str) and Path(change).is_dir()):
        return {"folder": str(Path(change).absolute())}
    change = {"kind": change} if isinstance(change, str) else change
    if "folder" in change:
        return dict(change)
    if "kind" in change:
        kind, in_name = split_options(change["kind"], "tokenizer")
        change = {**change, "kind": kind, **in_name}
    if change.get("kind", tokenizer.get("kind")) == tokenizer.get("kind"):
        return {**tokenizer, **change}
    return {**change, "joint": change.get("joint", tokenizer.get("joint", True))}


def load_recipe(recipe: str | Path) -> Recipe:
    """Load a recipe.

    Args:
        recipe: The name of one that ships with the zoo, or a YAML or JSON file.

    Raises:
        UnknownNameError: When its name or one of its sections is unknown.
        ConfigError: When the file cannot be read.
    """
    file = Path(recipe)
    if file.suffix.lower() not in SUFFIXES:
        file = FOLDER / f"{recipe}.yaml"
        if not file.is_file():
            raise UnknownNameError(str(recipe), shipped_recipes(), kind="recipe")
    read = read_yaml(file)
    sections = [section.name for section in fields(Recipe)]
    if not isinstance(read, dict) or not isinstance(read.get("task"), str):
        raise ConfigError(f"{file} is no recipe: it must name its task; sections: {', '.join(sections)}")
    UnknownNameError.check(*read, valid=sections, kind="section", owner=file)
    for section, value in read.items():
        if section not in ("task", "explicit", "init") and not isinstance(value, dict):
            raise ConfigError(f"{file}: section {section!r} must hold names and values, not {type(value).__name__}")
        if section == "explicit" and not isinstance(value, list):
            raise ConfigError(f"{file}: section 'explicit' must be a list of names, not {value!r}")
    check_length(read.get("arguments", {}), f"{file}: ")
    return Recipe(**read)


def read_yaml(file: Path) -> Any:
    try:
        return yaml.load(file.read_text(encoding="utf-8"), Loader=RecipeLoader)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file} is not valid YAML: {' '.join(str(error).split())}") from error


def usual_task(model_tasks: Iterable[str], default: str = "translation") -> str:
    return next((data_task for task, data_task in USUAL_TASKS.items() if task in model_tasks), default)


def recipe_for(task: str | None, recipe: str | Path | Recipe | None = None, variant: str | None = None) -> Recipe:
    """Find the recipe of a run: of a variant's usual task if neither a task nor a recipe is given."""
    if task is None and recipe is not None:
        chosen = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
        chosen.data_task()
        return chosen
    if task is None:
        task = usual_task(() if variant is None else VARIANTS.get(parse_name(variant).name).tasks)
    name, options = split_name(task)
    data_task = TASKS.get(name)
    if recipe is None:
        own = data_task.recipe or name
        recipe = load_recipe(own) if own in shipped_recipes() else Recipe(name)
    elif not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe)
    given = recipe.task_options if recipe.task == name else {}
    chosen = replace(recipe, task=name, task_options={**given, **options})
    chosen.data_task()
    return chosen


def shipped_recipes() -> list[str]:
    """Names of the recipes that ship with the zoo."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))
