"""The command that repeats a comparison, with its extensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from zoo.training import Recipe
from zoo.training.recipe import recipe_for

from ..files import RECIPE, plain, write_json
from .options import options
from .request import Request
from .sweep import write_values


def command(request: Request, names: Sequence[str], seeds: Sequence[int], baseline: str) -> list[str]:
    """Write the command that repeats a comparison."""
    values: dict[str, Any] = {
        **{name: getattr(request, name) for name in options()},
        "data": request.source.data,
        "heldout": request.source.heldout,
        "seeds": list(seeds) if len(seeds) > 1 else None,
        "seed": seeds[0] if len(seeds) == 1 else None,
        "budget": request.spent,
        "match": None if request.match == "none" else request.match,
        "sweep": [write_values(*item) for item in request.tried.items()],
        "baseline": None if baseline == names[0] else baseline,
        "output_dir": request.folder,
        **kept_recipe(request),
    }
    words = ["zoo", "compare", *names]
    for name, option in options().items():
        if option.kind == "flag" and values[name]:
            words.append(str(option.flag))
        elif option.flag is not None and option.repeats:
            words += [word for text in texts(values[name], option.kind) for word in (option.short or option.flag, text)]
    return words


def kept_recipe(request: Request) -> dict[str, Any]:
    """Write a recipe that no file holds into the comparison's folder, and name it in place of what it was made of."""
    tokenizer = request.tokenizer if isinstance(request.tokenizer, Mapping) else None
    if not (isinstance(request.recipe, Recipe) or tokenizer is not None or request.generation):
        return {}
    whole = recipe_for(request.task, request.recipe).changed(tokenizer=tokenizer, generation=request.generation)
    file = write_json(request.folder / RECIPE, plain(asdict(whole)))
    return {"task": None, "recipe": file, "tokenizer": None if tokenizer is not None else request.tokenizer}


def texts(value: Any, kind: str) -> Iterator[str]:
    """Write a value as the arguments of its flag, one for each time that it is given."""
    if isinstance(value, Mapping):
        yield from (f"{key}={one}" for key, one in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from map(str, value) if kind == "values" else [",".join(map(str, value))]
    elif value is not None and kind != "flag":
        yield str(value)
