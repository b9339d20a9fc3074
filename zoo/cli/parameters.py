"""Options and arguments that several verbs take, with their completions."""

import io
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from zoo.base.errors import ConfigError, InvalidChoiceError, NameSyntaxError, ZooError
from zoo.building.weights import is_saved
from zoo.registry import ENGINES, TASKS, list_variants, parse_name, parse_value, require_task
from zoo.registry.corpora import BUILT_IN
from zoo.registry.weights import HUB

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class NamedPath(click.Path):
    """A path that is not empty: an unset variable of a shell would name the current folder."""

    def __init__(self, **options: bool) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("it is empty, and valid is a path", param, ctx)
        return super().convert(value, param, ctx)


PATH = NamedPath()
FILE = NamedPath(dir_okay=False)
EXISTING_FILE = NamedPath(dir_okay=False, exists=True)
FOLDER = NamedPath(file_okay=False)
EXISTING_FOLDER = NamedPath(file_okay=False, exists=True)


class Registered(click.ParamType):  # type: ignore[type-arg]
    """The name of something registered."""

    def __init__(self, name: str, check: Callable[[str], str], names: Callable[[], Iterable[str]]) -> None:
        self.name, self.check, self.names = name, check, names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return self.check(str(value))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]


def readable(name: str) -> str:
    """Check that a variant's name, possibly with settings, can be read."""
    parse_name(name)
    return name


VARIANT_NAME = Registered("name", readable, list_variants)
BUILT_NAME = Registered("name", lambda name: name if name.startswith(HUB) else readable(name), list_variants)
VARIANT_OR_SAVED = Registered("name", lambda name: name if is_saved(name) else readable(name), list_variants)
TASK_NAME = Registered("task", require_task, lambda: TASKS)
ENGINE_NAME = Registered("engine", ENGINES.canonical, lambda: ENGINES)


class OneOf(click.Choice[str]):
    """One of a few words."""

    def __init__(self, kind: str, choices: Sequence[str]) -> None:
        super().__init__(choices)
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        InvalidChoiceError.check(value, valid=self.choices, kind=self.kind)
        return super().convert(value, param, ctx)


class Setting(click.ParamType):  # type: ignore[type-arg]
    """A field of the configuration and its value."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        key, equals, text = str(value).partition("=")
        if not (equals and text and key.strip().isidentifier()):
            raise NameSyntaxError(f"cannot read the setting {value!r}; valid: KEY=VALUE, e.g. hidden_size=256")
        return key.strip(), parse_value(text)


def names_or_numbers(value: str) -> list[str | int]:
    names = [name.strip() for name in value.split(",")]
    return [int(name) for name in names] if all(map(str.isdecimal, names)) else list(names)


def together(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Make one decorator of several options, which are listed in this order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


columns_option = click.option(
    "--columns",
    type=names_or_numbers,
    metavar="A,B",
    help="Names or numbers of the columns; by default those named like what they hold, else the first but ids.",
)


def mixture(ctx: click.Context, param: click.Parameter, given: tuple[Path, ...]) -> Path | None:
    """Join several sources to a mixture."""
    from zoo.base.files import JOIN
    from zoo.data.tasks.sources import shares_of

    if len(given) > 1 and (odd := next((one for one in given if shares_of(str(one)) is None), None)):
        raise click.BadParameter(f"{odd} has no share; several sources are given as NAME=SHARE", ctx, param)
    return Path(JOIN.join(map(str, given))) if given else None


data_options = together(
    click.option(
        "--data",
        type=PATH,
        multiple=True,
        callback=mixture,
        metavar="PATH|NAME[=SHARE]",
        help="A file or folder of examples, or a corpus (zoo data); by default what ships with the zoo. Texts can "
        "be mixed by shares of their tokens: --data books=0.7 --data letters=0.3.",
    ),
    click.option("--heldout", type=PATH, help="The file to evaluate on; by default that of --data."),
    columns_option,
    click.option(
        "--tokenizer",
        metavar="KIND[:OPTION=VALUE]|DIR",
        help="bpe, unigram, word, character, d2l-word or explicando-character (zoo tokenizers), with options as in "
        "bpe:vocab_size=512, or a folder.",
    ),
    click.option(
        "--recipe",
        metavar="NAME|FILE",
        help="Settings without an option here (zoo recipes); by default the recipe called like the task.",
    ),
)
"""Options of examples and training."""


def key_value_option(flag: str, name: str, help: str) -> Callable[[Decorated], Decorated]:
    """Make an option that takes KEY=VALUE, any number of times."""
    help = f"{help}; any number of times."
    return click.option(flag, name, multiple=True, type=Setting(), metavar="KEY=VALUE", help=help)


settings_option = key_value_option(
    *("--set", "settings", "A field of the model's configuration (zoo settings), e.g. hidden_size=256")
)
training_option = key_value_option(
    "--training", "training", "One of transformers' training arguments, e.g. num_train_epochs=4"
)
decay_option = click.option(
    "--decay",
    type=OneOf("decay", ("matrices", "matrices-and-embeddings", "all", "transformers")),
    help="Parameters with weight decay, by default matrices; transformers is its trainer's rule, by class and name.",
)
generation_option = key_value_option(
    *("--generation", "generation", "A field of transformers' GenerationConfig, e.g. no_repeat_ngram_size=3")
)


def given_options() -> dict[str, str]:
    """Arguments and options that the command was given, by their names in Python, as they are typed."""
    context = click.get_current_context()
    return {
        one.name: one.opts[0] if isinstance(one, click.Option) else one.make_metavar(context)
        for one in context.command.params
        if one.name and context.get_parameter_source(one.name) is not ParameterSource.DEFAULT
    }


def refuse_with(name: str, *kept: str) -> None:
    """Refuse what an option, if it is given, leaves without effect: all but the options in `kept`."""
    given = given_options()
    if name in given and (others := [typed for one, typed in given.items() if one not in (name, *kept, "traceback")]):
        known = click.get_current_context().command.params
        flags = [one.opts[0] for one in known if one.name in {*kept} - {name} and isinstance(one, click.Option)]
        raise click.UsageError(
            f"{given[name]} takes no {others[0]}" + (f"; it takes {', '.join(flags)}" if flags else "")
        )


def once(given: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Collect names and their values, and refuse two values of a name."""
    found: dict[str, Any] = {}
    for name, value in given:
        if (kept := found.setdefault(name, value)) is not value and kept != value:
            raise ConfigError(f"{name}={kept} and {name}={value} were given; give one of both")
    return found


def model_settings(given: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Collect fields of a configuration that a command which trains was given."""
    from transformers import Seq2SeqTrainingArguments

    from zoo.models import ZooConfig

    settings = once(given)
    for name, value in settings.items():
        if name in Seq2SeqTrainingArguments.__dataclass_fields__ and name not in ZooConfig.__dataclass_fields__:
            raise ConfigError(
                f"--set {name}={value} was given, which takes fields of the configuration; {name!r} is one of "
                f"transformers' training arguments: give --training {name}={value}"
            )
    return settings


def arguments_for(given: Iterable[tuple[str, Any]], function: Callable[..., Any]) -> dict[str, Any]:
    """Collect transformers' training arguments that a command was given."""
    arguments = once(given)
    parameters = signature(function).parameters
    if own := next((name for name in arguments if name in parameters and parameters[name].default is not ...), None):
        command = click.get_current_context().command
        option = next((parameter.opts[0] for parameter in command.params if parameter.name == own), None)
        better = f"give {option} {arguments[own]}" if option else f"see zoo {command.name} --help"
        raise ConfigError(f"{own!r} is not one of transformers' training arguments, which --training takes; {better}")
    return arguments


def task_option(
    help: str = "What the model is for; by default the variant's first task.",
) -> Callable[[Decorated], Decorated]:
    return click.option("--task", type=TASK_NAME, metavar="TASK", help=f"{help} One of {', '.join(TASKS)}.")


engine_option = click.option(
    "--engine",
    type=ENGINE_NAME,
    metavar="ENGINE",
    help="Where the model runs; by default what the folder was exported for, else torch. "
    f"One of {', '.join(BUILT_IN)}. Those with int8 and q8_0 round weights, which is faster and changes results; "
    "fastest tries all others.",
)

device_option = click.option("--device", metavar="DEVICE", help="cpu, cuda, ...; by default the GPU if available.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def svg_option(help: str) -> Callable[[Decorated], Decorated]:
    return click.option("--svg", "svg", type=FILE, metavar="FILE", help=help)


texts_options = together(
    click.argument("model", metavar="MODEL"),
    click.argument("texts", nargs=-1, metavar="[TEXT...]"),
    click.option("--file", "-f", type=EXISTING_FILE, help="A file with a text a line."),
    click.option("--batch-size", default=32, show_default=True, type=click.IntRange(1), help="Texts at a time."),
    device_option,
    engine_option,
    json_option,
)


def read_lines(texts: Sequence[str], file: Path | None) -> Sequence[str]:
    """The texts that were given, or the lines of a file, or else of standard input."""
    if texts and file is not None:
        raise click.UsageError("give TEXT or --file, not both")
    if texts:
        return texts
    if file is None and sys.stdin.isatty():
        raise click.UsageError("no text: give TEXT, --file, or something on standard input")
    read = file.read_bytes() if file is not None else sys.stdin.buffer.read()
    try:
        # With universal newlines; str.splitlines also breaks at form feeds, as no editor does.
        return [line.removesuffix("\n") for line in io.StringIO(read.decode("utf-8-sig"), newline=None)]
    except UnicodeDecodeError as error:
        line = read[: error.start].count(b"\n") + 1
        raise ZooError(f"{file or 'standard input'}, line {line}: not valid UTF-8") from error
