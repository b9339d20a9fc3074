"""The gallery: a page for every variant with its drawing, and one for every two that differ little."""

from __future__ import annotations

import html
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from documents import ROOT
from reference import cell

import zoo
from zoo.analysis.drawing import draw, to_svg, to_svg_beside
from zoo.analysis.eject import code_difference
from zoo.analysis.eject.ejecting import text_of
from zoo.base.printed import table_in_markdown
from zoo.building.settings import setting_cards
from zoo.building.weights.tables import scores_text
from zoo.comparison.benchmarks import benchmarks
from zoo.comparison.benchmarks.claims import Finding, claims
from zoo.comparison.benchmarks.judging import recorded
from zoo.comparison.benchmarks.page import spread, title
from zoo.comparison.results.units import counted
from zoo.models.parts import PART_FIELDS
from zoo.registry import Card, describe, find_weights, list_weights, parse_name

SETTINGS = {card.name for card in setting_cards()}

PARTS = ("norm_placement", *(field for field in PART_FIELDS if field != "initializer"))
"""Settings by which the gallery can be filtered."""

NEIGHBOURS = 2
"""How many of the nearest variants each is put side by side with."""


CODE = tuple(filter(None, os.environ.get("ZOO_SITE_CODE", "").split(",")))
"""Variants with their whole code and their nearest shown, all if none are named: each takes seconds."""

STEPS = (
    ("gpt2-style", "llama-style"),
    ("llama-style", "gemma3-style"),
    ("vanilla", "vanilla+faithful"),
    ("pre-norm", "post-norm"),
)
"""Models with a page of the lines in which they differ."""


def pages() -> dict[str, str]:
    """Write the gallery: Markdown and drawings, by their path in the site."""
    cards = {name: describe(name) for name in zoo.list_variants()}
    whole = {name for name in cards if not CODE or name in CODE}
    nearest = {name: neighbours(card, cards.values()) if name in whole else [] for name, card in cards.items()}
    drawings = {name: draw(name) for name in cards}
    recorded, claimed = results(), claims()
    models = {name: whole_model(name) for name in whole}
    made = {"gallery/index.md": index(cards.values())}
    for name, card in cards.items():
        about = [one for one in claimed if name in one.claim.about]
        content = sections(card, nearest[name], recorded[name], about, models.get(name))
        made[f"gallery/{name}.md"] = "\n\n".join(filter(None, content)) + "\n"
        made[f"gallery/{name}.svg"] = to_svg(drawings[name])
    for a, b in sorted({pair(name, other) for name, others in nearest.items() for other in others}):
        made[f"gallery/{a}--{b}.md"] = difference_page(a, b)
        made[f"gallery/{a}--{b}.svg"] = to_svg_beside(drawings[a], drawings[b])
    return made | {f"gallery/{code_name(step)}.md": code_page(step) for step in steps()}


def steps() -> list[tuple[str, str]]:
    """The pairs that have a page."""
    return [step for step in STEPS if not CODE or set(step) <= set(CODE)]


def whole_model(name: str) -> str:
    """Write a variant as one file, folded up."""
    task = describe(name).tasks[0]
    text = text_of(zoo.config(name, task), task, name)
    summary = f"{name} in one file, {len(text.splitlines())} lines"
    return f'<details markdown="1">\n<summary>{summary}</summary>\n\n```py\n{text}```\n\n</details>'


def code_page(step: tuple[str, str]) -> str:
    """Write the page of the lines in which two variants differ."""
    found = code_difference(*step)
    return (
        f"# From {step[0]} to {step[1]}\n\n{found.removed} lines are removed and {found.added} added, "
        f"in files as `zoo eject` writes them.\n\n```diff\n{found.text}\n```\n"
    )


def code_name(step: tuple[str, str]) -> str:
    return "--".join(step).replace("+", "-") + "--code"


def neighbours(card: Card, cards: Iterable[Card]) -> list[str]:
    """Find the variants with the least different settings, of those that can be built for its first task."""
    others = [other for other in cards if other.name != card.name and card.tasks[0] in other.tasks]
    return [other.name for other in sorted(others, key=lambda other: (distance(card, other), other.name))[:NEIGHBOURS]]


def distance(a: Card, b: Card) -> int:
    """In how many settings two variants differ."""
    return sum(a.settings.get(key) != b.settings.get(key) for key in {*a.settings, *b.settings})


def pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


def index(cards: Iterable[Card]) -> str:
    """Write the page to leaf through, with filters by task, by family and by part."""
    cards = list(cards)
    words = {card.name: filter_words(card) for card in cards}
    kinds = dict.fromkeys(kind for own in words.values() for kind, _ in own)
    filters = {kind: sorted({word for own in words.values() for one, word in own if one == kind}) for kind in kinds}
    rows_of_buttons = "".join(buttons(kind, values) for kind, values in filters.items() if len(values) > 1)
    tiles = "".join(tile(card, words[card.name]) for card in cards)
    return (
        "---\nhide: [navigation, toc]\n---\n\n# Gallery\n\n"
        f"{len(cards)} variants. Every drawing is read off the model that the variant builds.\n\n"
        f'<div class="gallery-filter">{rows_of_buttons}</div>\n\n'
        f'<p class="gallery-none" hidden>No variant has all of these.</p><div class="gallery">{tiles}</div>\n'
    )


def filter_words(card: Card) -> list[tuple[str, str]]:
    """Words to find a variant by: kinds of words, and the words."""
    config = zoo.config(card.name)
    return [
        *(("task", task) for task in card.tasks),
        *(("family", tag) for tag in card.tags),
        *((part, str(getattr(config, part))) for part in PARTS),
    ]


def buttons(kind: str, words: Iterable[str]) -> str:
    pressable = (f'<button type="button" data-word="{kind}:{word}">{word}</button>' for word in words)
    label = kind.replace("_", " ")
    return f'<div role="group" aria-label="{label}"><span>{label}</span>{"".join(pressable)}</div>'


def tile(card: Card, words: Iterable[tuple[str, str]]) -> str:
    found_by = html.escape(" ".join(f"{kind}:{word}" for kind, word in words))
    facts = [f"{card.num_parameters / 1e6:.0f} M parameters"]
    facts += [counted(len(card.quirks), "quirk")] if card.quirks else []
    facts += ["trained weights"] if list_weights(f"{card.name}.*") else []
    return (
        f'<a class="gallery-card" href="{card.name}.html" data-words="{found_by}">'
        f'<img src="{card.name}.svg" alt="" loading="lazy">'
        f"<strong>{card.name}</strong><span>{html.escape(card.summary)}</span>"
        f"<small>{' · '.join(facts)}</small></a>"
    )


def sections(
    card: Card,
    nearest: Iterable[str],
    recorded: Iterable[tuple[str, ...]],
    claimed: Iterable[Finding],
    model: str | None,
) -> Iterator[str]:
    """Content of the page of one variant, from top to bottom."""
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
    yield table_in_markdown(("", ""), ((name, cell(text)) for name, text in facts.items() if text))
    settings = [(setting_name(name), f"`{value}`") for name, value in card.settings.items()]
    yield section("Settings", ("setting", "value"), settings)
    quirks = [(f"`{card.name}+{name}`", cell(text)) for name, text in card.quirks.items()]
    yield section("Quirks of the original, off unless asked for", ("name", "what it does"), quirks)
    trained = [
        (f"`{one.name}`", cell(one.summary), scores_text(one))
        for one in map(find_weights, list_weights(f"{card.name}.*"))
    ]
    yield section("Weights", ("name", "what they do", "score"), trained)
    yield section("Results", ("benchmark", "variant", "score", "verdict"), recorded)
    verdicts = [(one.claim.claim, cell(one.claim.source), one.verdict) for one in claimed]
    yield section("Claims", ("claim", "source", "verdict"), verdicts)
    headings, *exported = exports()
    yield section("Exports", headings[1:], (row[1:] for row in exported if row[0] == card.name))
    yield "## Limits\n\n" + "\n".join(f"- {limit}" for limit in card.limits) if card.limits else ""
    pairs = (f"- [{card.name} and {other}]({'--'.join(pair(card.name, other))}.md)" for other in nearest)
    lines = (
        f"- [From {step[0]} to {step[1]}, line by line]({code_name(step)}.md)" for step in steps() if card.name in step
    )
    yield "## Side by side\n\n" + "\n".join((*pairs, *lines))
    yield f"## Code\n\n{model}" if model is not None else ""


def results() -> dict[str, list[tuple[str, ...]]]:
    """Recorded results of each variant, a row a benchmark and condition."""
    found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for benchmark in benchmarks().values():
        for verdicts in recorded(benchmark):
            for one in verdicts.standings:
                if verdicts.score in one.samples:
                    where = f"[{benchmark.name}](../results/{benchmark.name}.md) {verdicts.condition}".strip()
                    score = f"{title(verdicts.score)} {spread(one.samples[verdicts.score])}"
                    found[parse_name(one.variant).name].append((where, f"`{one.variant}`", score, one.verdict))
    return found


def exports() -> list[tuple[str, ...]]:
    """The table in docs/converters.md of what was exported and compared, its headings first."""
    page = (ROOT / "docs/converters.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (.*) \|$", page[page.index("| Variant | Task |") :], flags=re.MULTILINE)
    return [tuple(words.strip() for words in line.split(" | ")) for line in lines]


def setting_name(name: str) -> str:
    """A setting, with a link to what it means where every variant has it and not this one alone."""
    return f"[`{name}`](../reference/settings.md#{name})" if name in SETTINGS else f"`{name}`"


def difference_page(a: str, b: str) -> str:
    differences = [(cell(one.axis), f"`{one.a}`", f"`{one.b}`") for one in zoo.diff(a, b)]
    return (
        f"# {a} and {b}\n\n[{a}]({a}.md), [{b}]({b}.md)\n\n![{a} next to {b}]({a}--{b}.svg){{ .drawing }}\n\n"
        f"{table_in_markdown(('', a, b), differences)}\n"
    )


def section(title: str, headings: tuple[str, ...], table: Iterable[tuple[str, ...]]) -> str:
    """A table under a title; nothing where the table is empty."""
    table = list(table)
    return f"## {title}\n\n{table_in_markdown(headings, table)}" if table else ""
