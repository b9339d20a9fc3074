"""Pictures and page of a model's attention, in a folder."""

from __future__ import annotations

from pathlib import Path

from zoo.base.errors import OutputExistsError
from zoo.base.files import write_file

from .attending import AttentionMaps
from .heatmaps import attention_figure
from .pages import attention_page

PAGE = "attention.html"
"""The interactive page's file."""


def save_attention(maps: AttentionMaps, folder: str | Path, *, force: bool = False) -> list[Path]:
    """Write a picture of each kind of attention, and the interactive page."""
    place = Path(folder)
    pictures = {place / f"{one.kind}.png": one for one in maps.maps}
    page = place / PAGE
    taken = [file for file in (*pictures, page) if file.exists()]
    if taken and not force:
        raise OutputExistsError(
            f"{taken[0]} is there already; choose another folder, or force its replacement (--force)"
        )
    place.mkdir(parents=True, exist_ok=True)
    for file, one in pictures.items():
        attention_figure(one).savefig(file)
    write_file(page, attention_page(maps))
    return [*pictures, page]
