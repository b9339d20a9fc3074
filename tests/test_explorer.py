"""The explorer: what it shows, and its page in a real browser, which asks this machine alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch
from chromium import Page, find
from click.testing import CliRunner
from synthetic_comparison import made_up

from zoo.base.errors import InputError, UnknownQuirkError
from zoo.cli.main import cli
from zoo.comparison.display.report.page import to_html
from zoo.comparison.results.summary import summarize
from zoo.inside.explorer import build_page, explored, find_reports, launch, shipped_models, views
from zoo.inside.explorer.models import with_quirks
from zoo.inside.explorer.page import LOOKS, look

TEXT = "Where is the house?"
TRANSLATOR, LABELLER, GUESSER = "vanilla.en-pt", "nlpt-encoder.language", "nlpt-encoder.mlm-en"


def text_of(parts: Iterator[views.Part]) -> str:
    return "\n".join(part.text() for part in parts)


def test_what_ships_can_be_chosen() -> None:
    assert {TRANSLATOR, LABELLER, GUESSER} <= set(shipped_models())
    assert "gpt2-style.openai" not in shipped_models(), "it is on the Hub"


def test_models_of_every_task_answer() -> None:
    text = text_of(views.outputs([TRANSLATOR, LABELLER, GUESSER], TEXT))
    assert "Onde está a casa?" in text and "English (" in text
    mask = explored(GUESSER).tokenizers.source.mask_token
    assert f"predicts the token at {mask}" in text
    assert len(views.guessed(explored(GUESSER), f"Where is {mask} house?").split(", ")) == views.GUESSES


def test_early_predictions_are_of_models_that_predict() -> None:
    assert "layer 2" in text_of(views.layers(TRANSLATOR, TEXT))
    assert "predicts no next token" in text_of(views.layers(LABELLER, TEXT))


def test_a_drawing_has_the_shapes_of_the_text() -> None:
    one = explored(TRANSLATOR)
    tokens, width = len(one.tokenizers.source(TEXT)["input_ids"]), one.model.config.hidden_size
    hooks = [len(module._forward_hooks) for module in one.model.modules()]
    shapes = views.shapes_of(one, TEXT)
    assert shapes["model.encoder.layers.0.mlp"] == (tokens, width)
    details = {step.path: step.detail for step in views.drawing_of(one, TEXT).steps()}
    assert details["model.encoder.layers.0.mlp"].endswith(f", → {tokens}×{width}")
    assert [len(module._forward_hooks) for module in one.model.modules()] == hooks


def test_a_quirk_of_stepwise_decoding_shows() -> None:
    one = explored("d2l-style.en-pt")
    text = "I do not know what she is doing."
    other = with_quirks(one, ("every-step-is-position-zero",))
    assert other.model.generation_config.use_cache and views.answer(other, text) != views.answer(one, text)
    assert not with_quirks(explored(TRANSLATOR), ("masks-from-token-ids",)).model.generation_config.use_cache


def test_a_quirk_changes_the_answer_of_the_same_weights() -> None:
    one = explored(TRANSLATOR)
    quirks = tuple(views.quirks_of(TRANSLATOR))
    other = with_quirks(one, quirks)
    assert torch.equal(other.model.model.encoder.embed_tokens.weight, one.model.model.encoder.embed_tokens.weight)
    assert views.answer(other, TEXT) != views.answer(one, TEXT) == views.answer(with_quirks(one, ()), TEXT)
    assert other.model.config.quirks == list(quirks) and not one.model.config.quirks
    shown = text_of(views.quirky(TRANSLATOR, ["cross-attention-reuses-self"], TEXT))
    assert "as it was trained" in shown and "cross-attention" in shown
    with pytest.raises(UnknownQuirkError):
        with_quirks(one, ("nonsense",))
    assert "has no quirks" in text_of(views.quirky("pre-norm.en-pt", [], TEXT))


def test_what_is_wrong_is_one_sentence_on_the_page(tmp_path: Path) -> None:
    for tab in LOOKS:
        assert "nonsense" in look(tab, ["nonsense"], TEXT)
    assert "Choose a model and type a text" in look("Outputs", [], TEXT)
    with pytest.raises(InputError, match="give a model of the zoo"):
        views.show(torch.nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"do not fit 'odom-style\+heads-share-weights'"):
        with_quirks(explored("odom-style.en-pt"), ("heads-share-weights",))


def test_without_gradio_the_command_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    run = CliRunner().invoke(cli, ["explore"])
    assert run.exit_code == 2
    assert run.stderr == "zoo: error: gradio is not installed; `pip install 'transformer-zoo[explore]'` brings it\n"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("comparisons")
    (folder / "mine").mkdir()
    (folder / "mine/report.html").write_text(to_html(summarize(made_up())), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def page(reports: Path) -> Iterator[Page]:
    pytest.importorskip("gradio")
    if find() is None:
        pytest.skip("Chromium is not installed")
    made = build_page([TRANSLATOR, "pre-norm.en-pt", LABELLER], text=TEXT, reports=find_reports(reports))
    with launch(made) as server:
        assert urlsplit(server.address).hostname == "127.0.0.1"
        page = Page(server.address)
        yield page
        page.close()


def open_tab(page: Page, name: str, condition: str) -> None:
    page.wait("document.querySelectorAll('button[role=tab]').length > 6")
    found = "[...document.querySelectorAll('button[role=tab]')].find(one => one.textContent.trim() === "
    page.evaluate(f"{found}{name!r}).click()")
    page.wait(condition)


@pytest.mark.slow
def test_the_page_shows_models_side_by_side_and_asks_no_other_host(page: Page) -> None:
    page.wait("document.querySelectorAll('#outputs tbody tr').length === 2")
    assert "Onde está a casa?" in page.evaluate("document.querySelector('#outputs').innerText")
    page.evaluate("document.querySelector('#text input, #text textarea').focus()")
    page.send("Input.insertText", text=" And the dog?")
    page.press("Enter", 13, "\r")
    page.wait("document.querySelector('#outputs').innerText.match(/cachorro|cão/)")

    open_tab(page, "Attention", "document.querySelectorAll('#attention iframe').length === 2")
    page.wait(
        "[...document.querySelectorAll('#attention iframe')].every(frame =>"
        " frame.contentDocument.querySelector('.help')"
        " && frame.offsetHeight >= frame.contentDocument.documentElement.scrollHeight)"
    )
    open_tab(page, "Layer by layer", "document.querySelectorAll('#layer-by-layer table').length === 2")
    open_tab(page, "Drawing", "document.querySelectorAll('#drawing .zoo-drawing').length === 2")
    assert re.search(r"→ \d+×64", page.evaluate("document.querySelector('#drawing').textContent"))
    open_tab(page, "Quirks", "document.querySelector('#quirks .zoo-drawing')")
    page.wait("document.querySelectorAll('#choice-of-quirks input[type=checkbox]').length > 1")
    before = page.evaluate("document.querySelector('#quirks').innerText")
    page.evaluate("document.querySelectorAll('#choice-of-quirks input[type=checkbox]')[1].click()")
    page.wait(f"document.querySelector('#quirks').innerText !== {before!r}")
    open_tab(page, "Variants", "document.querySelector('#variants .zoo-drawing')")
    assert "norm_placement" in page.evaluate("document.querySelector('#variants').innerText")
    open_tab(page, "Reports", "document.querySelector('#reports iframe')")
    assert page.problems == []
    asked = {urlsplit(request).hostname for request in page.requests if request.startswith(("http", "ws"))}
    assert asked == {"127.0.0.1"}
