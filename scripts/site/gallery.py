"""The gallery: a page for every variant with its drawing, and one for every two that differ little."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator

from reference import cell

import zoo
from zoo.drawing import draw, to_svg, to_svg_beside
from zoo.registry import Card, describe, find_weights, list_weights
from zoo.settings import setting_cards
from zoo.weights.tables import scores_text

SETTINGS = {card.name for card in setting_cards()}

NEIGHBOURS = 2
"""How many of the nearest variants each is put side by side with."""


def pages() -> dict[str, str]:
    """Write the gallery.

    Returns:
        Markdown and drawings, by their path in the site.
    """
    cards = {name: describe(name) for name in zoo.list_variants()}
    nearest = {name: neighbours(card, cards.values()) for name, card in cards.items()}
    made = {"gallery/index.md": index(cards.values())}
    for name, card in cards.items():
        made[f"gallery/{name}.md"] = variant_page(card, nearest[name])
        made[f"gallery/{name}.svg"] = to_svg(draw(name))
    for a, b in sorted({pair(name, other) for name, others in nearest.items() for other in others}):
        made[f"gallery/{a}--{b}.md"] = difference_page(a, b)
        made[f"gallery/{a}--{b}.svg"] = to_svg_beside(draw(a), draw(b))
    return made


def neighbours(card: Card, cards: Iterable[Card]) -> list[str]:
    """Find the variants whose settings differ least from one's, of those that can be built for its first task."""
    others = [other for other in cards if other.name != card.name and card.tasks[0] in other.tasks]
    return [other.name for other in sorted(others, key=lambda other: (distance(card, other), other.name))[:NEIGHBOURS]]


def distance(a: Card, b: Card) -> int:
    """In how many settings two variants differ."""
    return sum(a.settings.get(key) != b.settings.get(key) for key in {*a.settings, *b.settings})


def pair(a: str, b: str) -> tuple[str, str]:
    """Two names in their order."""
    return (a, b) if a < b else (b, a)


def index(cards: Iterable[Card]) -> str:
    """Write the page to leaf through, with a filter by what variants are for and by their tags."""
    cards = list(cards)
    words = sorted({word for card in cards for word in (*card.tasks, *card.tags)})
    buttons = "".join(f'<button type="button" data-word="{word}">{word}</button>' for word in words)
    return (
        "---\nhide: [navigation, toc]\n---\n\n# Gallery\n\n"
        f"{len(cards)} variants. Every drawing is read off the model that the variant builds.\n\n"
        f'<div class="gallery-filter" role="group" aria-label="Filter">{buttons}</div>\n\n'
        f'<div class="gallery">{"".join(map(tile, cards))}</div>\n'
    )


def tile(card: Card) -> str:
    """One variant among the others."""
    words = html.escape(" ".join((*card.tasks, *card.tags)))
    return (
        f'<a class="gallery-card" href="{card.name}.html" data-words="{words}">'
        f'<img src="{card.name}.svg" alt="" loading="lazy">'
        f"<strong>{card.name}</strong><span>{html.escape(card.summary)}</span></a>"
    )


def variant_page(card: Card, nearest: Iterable[str]) -> str:
    """Write the page of one variant."""
    return "\n\n".join(filter(None, sections(card, nearest))) + "\n"


def sections(card: Card, nearest: Iterable[str]) -> Iterator[str]:
    """What stands on the page of one variant, from top to bottom."""
    yield f"# {card.name}"
    yield card.summary
    yield card.description
    yield f"![One block of {card.name}]({card.name}.svg){{ .drawing }}"
    yield f'```python\nimport zoo\n\nmodel = zoo.build("{card.name}")  # for {card.tasks[0]}\n```'
    facts = {
        "Tasks": ", ".join(card.tasks),
        "Paper": card.paper or "",
        "Source": card.source,
        "Parameters": f"{card.num_parameters:,} for {card.tasks[0]}",
        "Sizes": ", ".join(card.presets),
        "Also called": ", ".join(card.aliases),
        "Tags": ", ".join(card.tags),
    }
    yield rows(("", ""), ((name, cell(text)) for name, text in facts.items() if text))
    settings = [(setting_name(name), f"`{value}`") for name, value in card.settings.items()]
    yield section("Settings", ("setting", "value"), settings)
    quirks = [(f"`{card.name}+{name}`", cell(text)) for name, text in card.quirks.items()]
    yield section("Quirks of the original, off unless asked for", ("name", "what it does"), quirks)
    trained = [
        (f"`{one.name}`", cell(one.summary), scores_text(one))
        for one in map(find_weights, list_weights(f"{card.name}.*"))
    ]
    yield section("Weights", ("name", "what they do", "score"), trained)
    yield "## Limits\n\n" + "\n".join(f"- {limit}" for limit in card.limits) if card.limits else ""
    beside = (f"- [{card.name} and {other}]({'--'.join(pair(card.name, other))}.md)" for other in nearest)
    yield "## Side by side\n\n" + "\n".join(beside)


def setting_name(name: str) -> str:
    """A setting, with a link to what it means where every variant has it and not this one alone."""
    return f"[`{name}`](../reference/settings.md#{name})" if name in SETTINGS else f"`{name}`"


def difference_page(a: str, b: str) -> str:
    """Write the page of two variants side by side."""
    differences = [(cell(one.axis), f"`{one.a}`", f"`{one.b}`") for one in zoo.diff(a, b)]
    return (
        f"# {a} and {b}\n\n[{a}]({a}.md), [{b}]({b}.md)\n\n![{a} beside {b}]({a}--{b}.svg){{ .drawing }}\n\n"
        f"{rows(('', a, b), differences)}\n"
    )


def section(title: str, headings: tuple[str, ...], table: Iterable[tuple[str, ...]]) -> str:
    """A table under a title; nothing where the table is empty."""
    table = list(table)
    return f"## {title}\n\n{rows(headings, table)}" if table else ""


def rows(headings: tuple[str, ...], table: Iterable[tuple[str, ...]]) -> str:
    """A table."""
    lines = (headings, ("---",) * len(headings), *table)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
