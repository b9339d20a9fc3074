"""The explorer in the browser: equal to Python, usable, offline, and silent towards other hosts."""

from __future__ import annotations

import base64
import importlib.util
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from browser_page import NODE, PAGE, served
from chromium import Page

from zoo.inside.attending import attention_weights
from zoo.inside.browser import write_site
from zoo.inside.browser.models import STEPWISE
from zoo.inside.browser.page import SOURCES
from zoo.inside.explorer import explored, shipped_models
from zoo.inside.explorer.models import Explored
from zoo.inside.texts import encode, inputs_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser-page")]  # one page serves all

SOME = ("d2l-style.en-pt-faithful", "llama-style.char-en", "nlpt-encoder.language", "nlpt-encoder.mlm-en")
"""Models of every task, one of them with a quirk of decoding."""

TEXTS = {
    "seq2seq-lm": ("Where is the house?", "I do not know what she is doing.", "Tom's café, 24/7!"),
    "causal-lm": ("Where is", "The"),
    "sequence-classification": ("Where is the house?", "Onde está a casa?"),
    "masked-lm": ("Where is <mask> house?", "I <mask> not know <mask>."),
}

TOLERANCE = 1e-4
MEGABYTE = 1_000_000

AXE = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.target.join(" ")).join(", ")}`))"""

MOVED = """new Promise((done) => { let sum = 0; new PerformanceObserver((seen) => {
    for (const one of seen.getEntries()) if (!one.hadRecentInput) sum += one.value;
}).observe({type: "layout-shift", buffered: true}); setTimeout(() => done(sum), 200); })"""
"""The sum of layout shifts up to now, as browsers report it."""

CHOOSE = """(() => {
  const label = [...document.querySelectorAll("label")].find((one) => one.firstChild.textContent.trim() === LABEL);
  const menu = label.querySelector("select");
  menu.value = VALUE;
  menu.dispatchEvent(new Event("change", {bubbles: true}));
})()"""

IN_PAGE = """(async () => {
  const pack = ({data, dims}) => {
    let text = "";
    for (const byte of new Uint8Array(data.buffer, data.byteOffset, data.byteLength)) text += String.fromCharCode(byte);
    return {dims, data: btoa(text)};
  };
  const {Model, Writing, read, decoderIds, UNCHANGED} = globalThis.zoo;
  const model = await Model.load(FOLDER);
  const form = model.about.forms[0], found = [];
  for (const text of TEXTS) {
    const source = read(model, text, UNCHANGED);
    const writing = new Writing(model, form, source, UNCHANGED, {name: "greedy"});
    const written = model.writes ? (await writing.upTo(48)).tokens : [];
    const rows = model.writes ? [decoderIds(model, written)] : [];
    const {logits, attention} = await model.run(form, source, rows, UNCHANGED);
    const maps = Object.fromEntries(Object.entries(attention).map(([kind, one]) => [kind, pack(one)]));
    const search = new Writing(model, form, source, UNCHANGED, {name: "beams", width: 3});
    const beams = model.hasSource ? (await search.upTo(48)).tokens : [];
    found.push({source, written, beams, logits: pack(logits), attention: maps,
                text: model.target.decode(written), names: source.map((id) => model.source.name(id))});
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser") / "site"
    write_site(folder, SOME)
    return folder


@pytest.fixture(scope="module")
def page(site: Path) -> Iterator[Page]:
    with served(site) as address:
        page = Page(f"{address}?model=d2l-style.en-pt-faithful")
        yield page
        page.close()


def wait_for(page: Page, condition: str, seconds: int = 60) -> None:
    page.evaluate(
        f"new Promise((done, fail) => {{ const end = Date.now() + {seconds * 1000};"
        f" const look = () => ({condition}) ? done() : Date.now() > end ? fail('too late') : setTimeout(look, 20);"
        " look(); })"
    )


def unpacked(tensor: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(tensor["data"]), np.float32).reshape(tensor["dims"])


def generated(one: Explored, ids: list[int], **options: Any) -> Any:
    given = torch.tensor([ids])
    common = {"do_sample": False, "max_new_tokens": 48, "return_dict_in_generate": True}
    common |= {"output_logits": True, "output_attentions": True}
    one.model.set_attn_implementation("eager")
    return one.model.generate(given, attention_mask=torch.ones_like(given), **{**common, **options})


def expected(one: Explored, text: str) -> dict[str, Any]:
    """Tokens, logits and attention of Python's model; token by token where the model decodes in its own way."""
    source, config = one.tokenizers.source, one.model.config
    ids = encode(source, text, end=not config.is_decoder)
    if not one.model.can_generate():
        inputs = inputs_of(one.model, one.tokenizers, [text])
        logits = one.model(**inputs.arguments).logits[0]
        maps = {kind: weights[:, 0] for kind, weights in attention_weights(one.model, inputs).items()}
        return {"source": ids, "written": [], "logits": logits, "attention": maps}
    run = generated(one, ids)
    start = 1 if config.is_encoder_decoder else len(ids)
    written = run.sequences[0, start:].tolist()
    found = {"source": ids, "written": written, "logits": torch.cat(run.logits)}
    if config.is_encoder_decoder:
        beams = generated(one, ids, num_beams=3, output_attentions=False, output_logits=False)
        found["beams"] = [token for token in beams.sequences[0, 1:].tolist() if token != config.pad_token_id]
    if any(quirk in STEPWISE for quirk in config.quirks):
        found["attention"] = {
            "encoder": torch.cat(run.encoder_attentions)[:, None][:, 0],
            "decoder": rows_of(run.decoder_attentions),
            "cross": rows_of(run.cross_attentions),
        }
        return found
    open_end = written[:-1] if written[-1] == config.eos_token_id else written
    given = torch.tensor([ids])
    arguments = {"input_ids": given, "attention_mask": torch.ones_like(given)}
    if config.is_encoder_decoder:
        target = torch.tensor([[config.decoder_start_token_id, *open_end]])
        arguments |= {"decoder_input_ids": target, "decoder_attention_mask": torch.ones_like(target)}
        kinds = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
    else:
        whole = torch.tensor([[*ids, *open_end]])
        arguments, kinds = {"input_ids": whole, "attention_mask": torch.ones_like(whole)}, {"decoder": "attentions"}
    outputs = one.model(**arguments, output_attentions=True)
    found["attention"] = {kind: torch.cat(outputs[name]) for kind, name in kinds.items()}
    return found


def rows_of(steps: Any) -> torch.Tensor:
    """Attention of single steps as one triangle. *Shape:* (num_layers, num_heads, num_steps, num_keys)"""
    length = steps[-1][0].shape[-1]
    layers = range(len(steps[0]))
    return torch.stack(
        [
            torch.cat(
                [torch.nn.functional.pad(step[layer][0], (0, length - step[layer].shape[-1])) for step in steps], 1
            )
            for layer in layers
        ]
    )


@torch.no_grad()
def check_parity(page: Page, name: str) -> None:
    one = explored(name)
    texts = TEXTS[json.loads(page.evaluate(f"fetch('models/{name}/model.json').then((one) => one.text())"))["task"]]
    script = IN_PAGE.replace("FOLDER", json.dumps(name)).replace("TEXTS", json.dumps(texts))
    for text, found in zip(texts, page.evaluate(script), strict=True):
        python = expected(one, text)
        assert found["source"] == python["source"], text
        assert found["written"] == python["written"], text
        assert found["beams"] == python.get("beams", []), text
        logits = unpacked(found["logits"])[-1, 0]
        if one.model.can_generate():  # a text that is cut off is read to its last token, after which nothing is written
            first = 0 if one.model.config.is_encoder_decoder else len(python["source"]) - 1
            logits = logits[first : first + len(python["logits"])]
        np.testing.assert_allclose(logits, python["logits"].numpy(), atol=TOLERANCE, rtol=TOLERANCE)
        for kind, weights in python["attention"].items():
            np.testing.assert_allclose(unpacked(found["attention"][kind])[:, 0], weights.numpy(), atol=TOLERANCE)


@PAGE
@pytest.mark.parametrize("name", SOME)
def test_the_browser_computes_what_python_does(page: Page, name: str) -> None:
    check_parity(page, name)


@PAGE
def test_the_page_is_small_and_asks_no_other_host(site: Path, page: Page) -> None:
    wait_for(page, "document.querySelector('.heads canvas')")
    sizes = {path: path.stat().st_size for path in site.rglob("*") if path.is_file()}
    for model in (site / "models").iterdir():
        assert sum(size for path, size in sizes.items() if model in path.parents) < 4 * MEGABYTE, model
    assert {urlsplit(request).hostname for request in page.requests if request.startswith("http")} == {"127.0.0.1"}
    assert page.problems == []


@PAGE
def test_nothing_moves_while_the_page_loads(page: Page) -> None:
    wait_for(
        page, "document.querySelector('.heads canvas') && document.querySelector('footer').textContent.includes('wasm')"
    )
    assert page.evaluate(MOVED) < 0.02


@PAGE
def test_axe_finds_nothing_and_a_phone_shows_all(page: Page) -> None:
    axe = importlib.util.find_spec("axe_playwright_python")
    if axe is None or axe.submodule_search_locations is None:
        pytest.skip("axe-core is not installed")
    page.evaluate(Path(axe.submodule_search_locations[0], "axe.min.js").read_text(encoding="utf-8") + "; null")
    try:
        for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light")):
            page.resize(width)
            page.emulate(color_scheme=scheme)
            assert page.evaluate(AXE) == [], (width, scheme)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
    finally:
        page.emulate()
        page.resize(1280)


@PAGE
def test_everything_is_changed_by_keyboard_and_pointer(page: Page) -> None:
    answer = "document.querySelector('output').textContent"
    wait_for(page, f"{answer} && document.querySelector('.side').getAttribute('aria-busy') !== 'true'")
    assert "begins here" not in page.evaluate("document.querySelector('main').innerText")
    page.click(".head input")  # the first head is off
    wait_for(page, "document.querySelector('main').innerText.includes('begins here')")
    page.click(".head input")
    wait_for(page, "!document.querySelector('main').innerText.includes('begins here')")

    page.evaluate(
        "[...document.querySelectorAll('.steps button')].find((one) => one.textContent === 'Start over').click()"
    )
    wait_for(page, f"{answer} === ''")
    page.evaluate(
        "[...document.querySelectorAll('.steps button')].find((one) => one.textContent === 'Next token').focus()"
    )
    page.press("Enter", 13, "\r")
    wait_for(page, f"{answer} !== ''")
    choose(page, "Decoding", "beams")
    page.evaluate(
        "[...document.querySelectorAll('.steps button')].find((one) => one.textContent === 'To the end').click()"
    )
    wait_for(page, "document.querySelectorAll('.tree circle').length > 10")
    choose(page, "Decoding", "greedy")

    before = page.evaluate("document.querySelector('.caption').textContent")
    page.evaluate("document.querySelector('.map').focus()")
    page.press("ArrowDown", 40)
    wait_for(page, f"document.querySelector('.caption').textContent !== {json.dumps(before)}")
    page.evaluate("document.querySelectorAll('.parts button')[2].focus()")
    wait_for(page, "document.querySelector('.formula').textContent.includes('softmax')")
    choose(page, "Second model", "llama-style.char-en")
    wait_for(
        page, "document.querySelectorAll('output').length === 2 && document.querySelectorAll('output')[1].textContent"
    )
    choose(page, "Second model", "")


@PAGE
def test_what_is_wrong_is_one_clear_sentence(page: Page) -> None:
    choose(page, "Model", "nlpt-encoder.language")
    typed(page, "Where is Ω?")
    wait_for(page, "document.querySelector('.error').textContent === 'nlpt-encoder.language knows no token for “Ω”.'")
    typed(page, "a" * 300)
    error = "The text needs 301 positions, and nlpt-encoder.language has 256."
    wait_for(page, f"document.querySelector('.error').textContent === {json.dumps(error)}")
    typed(page, "Where is the house?")
    wait_for(page, "document.querySelector('output')?.textContent.startsWith('English')")
    assert page.evaluate("document.querySelector('.error').textContent") == ""


@PAGE
def test_without_webassembly_the_page_says_so(site: Path) -> None:
    with served(site) as address:
        page = Page(f"{address}files.json")
        try:
            page.send("Page.addScriptToEvaluateOnNewDocument", source="delete globalThis.WebAssembly")
            page.send("Page.navigate", url=f"{address}?model=nlpt-encoder.mlm-en")
            wait_for(page, "document.querySelector('.error')?.textContent.includes('no WebAssembly')")
        finally:
            page.close()


@PAGE
def test_it_works_without_a_network_after_the_first_load(site: Path) -> None:
    with served(site) as address:
        page = Page(address)
        cached = "caches.keys().then(async (names) => (await (await caches.open(names[0])).keys()).length)"
        files = len(json.loads((site / "files.json").read_text())) + 1
        for _ in range(600):
            if page.evaluate("caches.keys().then((names) => names.length)") and page.evaluate(cached) >= files:
                break
            time.sleep(0.1)
        assert page.evaluate(cached) == files
    try:  # nobody serves it any more
        page.send("Page.reload")
        time.sleep(0.3)
        wait_for(page, "document.querySelector('footer')?.textContent.includes('wasm')")
        wait_for(page, "document.querySelector('output')?.textContent")
    finally:
        page.close()


def choose(page: Page, label: str, value: str) -> None:
    """Choose in a menu as a reader does."""
    page.evaluate(CHOOSE.replace("LABEL", json.dumps(label)).replace("VALUE", json.dumps(value)))


def typed(page: Page, text: str) -> None:
    """Type a text and press Enter."""
    page.evaluate(
        "document.querySelector('input[type=text]').select(); document.querySelector('input[type=text]').focus()"
    )
    page.send("Input.insertText", text=text)
    page.press("Enter", 13, "\r")


@NODE
def test_the_sources_pass_their_own_tests() -> None:
    done = subprocess.run(["npm", "test"], cwd=SOURCES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@PAGE
@pytest.mark.nightly
def test_all_shipped_models_fit_and_compute_what_python_does(tmp_path: Path) -> None:
    sizes = write_site(tmp_path / "site")
    assert sum(sizes.values()) < 15 * MEGABYTE
    with served(tmp_path / "site") as address:
        page = Page(address)
        try:
            for name in shipped_models():
                check_parity(page, name)
        finally:
            page.close()
