"""Comparisons on a terminal."""

from dataclasses import replace

import pytest
from rich.console import Console
from synthetic_comparison import made_up, made_up_run

from zoo.comparison import Run, render
from zoo.comparison.display.layout import folded

LONG = "pre-norm:position=rotary,num_key_value_heads=2"


def shown(comparison, width: int = 120) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(render(comparison))
    return capture.get()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("seeds", [1, 5])
def test_no_column_is_folded_or_cut(width, seeds):
    comparison = made_up(seeds=seeds)
    tables, _, rest = shown(comparison, width).partition("\n\npre-norm ")
    assert rest
    lines = tables.splitlines()
    assert max(map(len, lines)) <= width and "…" not in tables
    heads = [place for place, line in enumerate(lines) if line.startswith("Variant ")]
    assert len(heads) == {80: 3 if seeds == 1 else 4, 120: 2}[width]
    ends = [*heads[1:], len(lines)]
    for start, end in zip(heads, ends, strict=True):
        block = lines[start + 1 : end]
        for name in comparison.names:  # each has its line in every table, with a number in every column
            last = folded(name, max(24, width // 3)).splitlines()[-1]
            (row,) = [line for line in block if line.startswith(f"{last} ")]
            assert len(row.rstrip()) == len(lines[start].rstrip()) or row.endswith("identical ")


def test_the_table_says_everything():
    text = shown(made_up(seeds=3), 300)
    reported = (" ± ", "+3.39", "0.023", "within noise", "better", "worse", "baseline", "1.90 M", "1.56 M", "470 MiB")
    for part in (*reported, "29.1", "7.82 ms", "217", "identical", "corrected interval"):
        assert part in text
    assert "BLEU: nrefs:1|case:mixed" in text and "8 epochs, seeds 0, 1, 2" in text
    assert "source" in text and "reference" in text and "Ela leu o livro ontem." in text
    one = shown(made_up(seeds=1), 300)
    assert one.count("Fewer than three seeds: differences") == 1 and " ± " not in one and "8 epochs, seed 0;" in one


def test_the_table_survives_failures():
    only = made_up({"vanilla": (30.0, 1.0)}, seeds=1)
    nothing = replace(only, runs=[Run("vanilla", "vanilla", error="killed by SIGKILL")])
    assert "vanilla failed: killed by SIGKILL" in shown(nothing) and "nothing to compare" in shown(nothing)
    two = made_up({"a": (30.0, 1.0), "b": (31.0, 1.0)}, seeds=2)
    runs = [*two.runs[:2], two.runs[2], Run("b", "b", seed=1, error="out of luck")]
    text = shown(replace(two, runs=runs))
    assert "b, seed 1 failed: out of luck" in text and "1 of 2" in text and "identical" in text
    unloaded = made_up_run("a", 0, 30.0, reload=None, error="could not be loaded")
    assert "a, seed 0 failed: could not be loaded" in shown(replace(two, runs=[unloaded, *two.runs[1:]]))


def test_long_outputs_are_cut():
    comparison = made_up({"a": (30.0, 1.0)}, seeds=1)
    run = replace(comparison.runs[0], outputs=["x" * 1000] * 6)
    assert "x" * 161 not in shown(replace(comparison, runs=[run]), width=400)


def test_names_are_folded_where_a_setting_ends():
    assert folded(LONG, 30) == "pre-norm:position=rotary,\nnum_key_value_heads=2"
    assert folded(LONG, 24) == "pre-norm:\nposition=rotary,\nnum_key_value_heads=2"
    assert folded("vanilla@small+faithful", 14) == "vanilla@small\n+faithful" and folded(LONG, 99) == LONG
