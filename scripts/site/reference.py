"""The reference: every public function, every setting with its values, every command; read from the code."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable

from zoo.building.settings import SettingCard, setting_cards

SUBMODULES = (
    "registry",
    "models",
    "testing",
    "data.tasks",
    "inside",
    "analysis.drawing",
    "analysis.measuring",
    "hub",
    "comparison.benchmarks",
    "comparison.benchmarks.claims",
    "building.weights",
)
"""Modules that users import from, besides the top level."""


def pages() -> dict[str, str]:
    """Write the reference: Markdown, by the page's path in the site."""
    homes = {module: documented(module) for module in ("zoo", *(f"zoo.{name}" for name in SUBMODULES))}
    shown: set[str] = set()
    made = {"reference/settings.md": settings_page(), "reference/cli.md": CLI}
    for module, names in homes.items():
        page = "python" if module == "zoo" else module
        made[f"reference/{page}.md"] = module_page(module, [name for name in names if name not in shown])
        shown.update(names)
    return made


CLI = """# The command

::: mkdocs-click
    :module: zoo.cli.main
    :command: cli
    :prog_name: zoo
    :depth: 1
    :style: table
"""


def module_page(module: str, names: Iterable[str]) -> str:
    """Write the page of a module, with the entries of these full names."""
    others = "".join(f"- [`zoo.{name}`](zoo.{name}.md): {summary(f'zoo.{name}')}\n" for name in SUBMODULES)
    lead = f"What `import zoo` gives. More is in its modules:\n\n{others}" if module == "zoo" else summary(module)
    return f"# {module}\n\n{lead}\n\n" + "".join(entry(module, name) for name in names)


def entry(module: str, name: str) -> str:
    """Ask for the documentation of one thing, under the name by which it is imported."""
    label = name.rpartition(".")[2]
    return f"::: {name}\n    options:\n      heading: {module}.{label}\n      toc_label: {label}\n\n"


def documented(module: str) -> list[str]:
    """List what a module offers and has a docstring, each by its name where it is defined."""
    found = importlib.import_module(module)
    offered = {name: getattr(found, name) for name in sorted(found.__all__) if not name.startswith("_")}
    return [home(module, name, value) for name, value in offered.items() if inspect.getdoc(value)]


def home(module: str, name: str, value: object) -> str:
    """The full name of a function, a class or a value, where it is defined."""
    defined = getattr(value, "__module__", None)
    return (
        f"{defined if isinstance(defined, str) and callable(value) else module}.{getattr(value, '__qualname__', name)}"
    )


def summary(module: str) -> str:
    return (importlib.import_module(module).__doc__ or "").strip().partition("\n")[0]


def settings_page() -> str:
    return (
        "# Settings\n\nWhat every variant takes: `zoo.build(name, setting=value)`, `name:setting=value`, `--set`. "
        + ("A variant may have other defaults.\n\n" + "".join(map(setting, setting_cards())))
    )


def setting(card: SettingCard) -> str:
    values = "".join(f"| `{value}` | {cell(text)} |\n" for value, text in card.values.items())
    table = f"\n| value | |\n|---|---|\n{values}" if values else ""
    return f"## {card.name}\n\n{card.description}\n\nDefault: `{card.default!r}`\n{table}\n"


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
