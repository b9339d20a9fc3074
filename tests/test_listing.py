"""The source of a forward: short, and exactly what runs."""

import ast
import linecache
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import zoo
from zoo.analysis.source_listing import show_code
from zoo.base.errors import InputError
from zoo.models.transformer import Transformer
from zoo.registry import VARIANTS

FILES, LINES = 7, 250  # What a reader of GPT-2 opens and reads at most


def test_gpt2_is_read_in_few_files_and_lines():
    listing = show_code("gpt2-style")
    assert len(listing.files) <= FILES, listing.files
    assert listing.lines_of_code <= LINES and listing.files[0] == "zoo/models/language_modeling.py"
    assert listing.declaration.text.startswith('decoder(\n    "gpt2-style",')
    assert listing.declaration.file.endswith("decoders.py") and listing.builder.name == "build_by_settings"


def traced(name: str) -> set[tuple[str, int]]:
    """File and first line of every function of zoo.models and zoo.variants that a forward calls, by a debugger."""
    model = zoo.build(name)
    root = Path(zoo.__file__).parents[1]
    found = set()

    def enter(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if {root / "zoo/models", root / "zoo/variants"} & set(path.parents) and frame.f_code.co_name.isidentifier():
            found.add((path.relative_to(root).as_posix(), frame.f_code.co_firstlineno))

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        ids = torch.arange(3, 9)[None]
        both = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
        model(input_ids=ids, **both)
    finally:
        sys.settrace(before)
    return found


@pytest.mark.parametrize(
    "name",
    [
        *("gpt2-style@tiny", "llama-style@tiny", "vanilla@tiny+cross-attention-reuses-self"),
        *("t5-style@tiny", "hyper-connections@tiny"),
    ],
)
def test_what_is_listed_is_what_runs(name):
    listing = show_code(name)
    assert {(function.file, function.line) for function in listing.functions} == traced(name)
    assert len(set(listing.functions)) == len(listing.functions)


def test_the_listing_is_the_source_with_short_docstrings():
    listing = show_code("gpt2-style")
    for function in listing.functions:
        (parsed,) = ast.parse(textwrap.dedent(function.text)).body
        assert isinstance(parsed, ast.FunctionDef) and parsed.name == function.name
        assert len((ast.get_docstring(parsed) or "one").splitlines()) == 1
    source = str(listing)
    assert source.count("\nclass LanguageModel(ZooPreTrainedModel):\n") == 1
    assert source.index("class ZooForCausalLM") < source.index("class ZooDecoder") < source.index("class Attention")


def test_settings_that_small_sizes_do_not_fit_are_run_as_they_are():
    listing = show_code("pre-norm:num_attention_heads=16,head_dim=None,hidden_size=80", "masked-lm")
    assert "zoo/models/attention.py" in listing.files


CELL = """
@zoo.register("of-a-cell", tasks=("causal-lm",), source="a notebook")
def of_a_cell(config):
    '''What a user tries.'''
    return Transformer()
"""


@pytest.mark.parametrize("kept", [True, False], ids=["notebook", "gone"])
def test_a_variant_of_a_notebook_is_listed_while_its_cell_is_known(kept, monkeypatch):
    monkeypatch.setattr(VARIANTS, "_items", {**VARIANTS._items})
    name = f"/tmp/cells/{kept}.py"
    if kept:
        monkeypatch.setitem(linecache.cache, name, (len(CELL), None, CELL.splitlines(keepends=True), name))
    exec(compile(CELL, name, "exec"), {"zoo": zoo, "Transformer": Transformer, "__name__": "__main__"})
    if kept:
        assert "def of_a_cell(config):" in show_code("of-a-cell").builder.text
    else:
        with pytest.raises(InputError, match="the source of 'of_a_cell' cannot be read: /tmp/cells/False.py:2"):
            show_code("of-a-cell")


def test_a_builder_that_is_no_function_is_named(monkeypatch):
    monkeypatch.setattr(VARIANTS, "_items", {**VARIANTS._items})
    zoo.register("of-a-class", tasks=("causal-lm",), source="here")(type("Builder", (), {"__call__": Transformer})())
    with pytest.raises(InputError, match="the builder of 'of-a-class' is a Builder; only functions can be listed"):
        show_code("of-a-class")
