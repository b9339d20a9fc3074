"""`zoo settings`."""

from __future__ import annotations

import click

from .output import heading, table, value_text, write, write_json
from .parameters import json_option


@click.command("settings")
@click.argument("name", required=False, metavar="[SETTING]")
@json_option
def settings(name: str | None, as_json: bool) -> None:
    """List what can be set, or the values that SETTING takes.

    Settings follow a name, pre-norm:position=rotary, or are given by --set position=rotary.
    """
    from zoo.building.settings import describe_setting, setting_cards

    if name is None:
        cards = setting_cards()
        if as_json:
            write_json([card.to_dict() for card in cards])
            return
        rows = [(card.name, value_text(card.default), card.description) for card in cards]
        write(table(("Setting", "Default", "What it is"), rows))
        write("\nA variant may have other defaults (zoo show NAME). zoo settings position lists what position can be.")
        return
    card = describe_setting(name)
    if as_json:
        write_json(card.to_dict())
        return
    write(f"{card.name}: {card.description}", f"Default: {value_text(card.default)}")
    if card.values:
        write(heading("Values"), table(("", ""), card.values.items()))
