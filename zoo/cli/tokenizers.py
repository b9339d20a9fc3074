"""`zoo tokenizers`."""

from __future__ import annotations

import inspect
from typing import Any

import click

from .output import setting_text, table, write, write_json
from .parameters import json_option


@click.command("tokenizers")
@json_option
def tokenizers(as_json: bool) -> None:
    """List the kinds of tokenizers that can be trained.

    --tokenizer takes a kind, possibly with options (bpe:vocab_size=512), or a folder with a tokenizer.json.
    """
    from zoo.building.settings import first_line
    from zoo.data.tokenizers import TOKENIZERS

    kinds: list[dict[str, Any]] = [
        {
            "name": name,
            "summary": first_line(train),
            "options": {
                option.name: option.default
                for option in inspect.signature(train).parameters.values()
                if option.kind is option.KEYWORD_ONLY
            },
        }
        for name, train in ((name, TOKENIZERS.get(name)) for name in TOKENIZERS)
    ]
    if as_json:
        write_json(kinds)
        return
    rows = [(kind["name"], kind["summary"], ", ".join(map(setting_text, kind["options"].items()))) for kind in kinds]
    write(table(("Kind", "What it does", "Options"), rows))
