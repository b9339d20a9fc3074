"""The explorer in the browser: small, equal to Python, and with the tests of its own room."""

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browser_page import NODE, PAGE, PLAYWRIGHT, RUNS_PLAYWRIGHT, served
from chromium import WEBGPU, Page, find
from click.testing import CliRunner
from torch.nn.functional import pad

from zoo.cli.push import push
from zoo.inside.attending import attention_weights
from zoo.inside.browser import write_site
from zoo.inside.browser.models import STEPWISE, obstacle, stored
from zoo.inside.browser.site import LIST, MODELS, SOURCES
from zoo.inside.explorer import explored
from zoo.inside.explorer.models import Explored, shipped_models
from zoo.inside.texts import encode, inputs_of
from zoo.models import ACTIVATIONS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser-page")]  # one page serves all

SOME = ("nlpt-encoder.language", "d2l-style.en-pt-faithful", "llama-style.char-en", "nlpt-encoder.mlm-en")
"""Models of every task, one of them with a quirk of decoding."""

TEXTS = {
    "seq2seq-lm": ("Where is the house?", "I do not know what she is doing.", "Tom's café, 24/7!"),
    "causal-lm": ("Where is", "The"),
    "sequence-classification": ("Where is the house?", "Onde está a casa?"),
    "masked-lm": ("Where is <mask> house?", "I <mask> not know <mask>."),
}

TOLERANCE = 1e-4
MEGABYTE = 1_000_000

IN_PAGE = """(async () => {
  const pack = ({data, dims}) => {
    let text = "";
    for (const byte of new Uint8Array(data.buffer, data.byteOffset, data.byteLength)) text += String.fromCharCode(byte);
    return {dims, data: btoa(text)};
  };
  const {Model, Writing, read, decoderIds, UNCHANGED} = globalThis.zoo;
  const model = await Model.load(FOLDER);
  const form = model.about.forms[0], found = [];
  const processor = await model.processor(form);
  for (const [text, given] of TEXTS) {
    const source = read(model, text, UNCHANGED);
    const writing = new Writing(model, form, source, UNCHANGED, {name: "greedy"});
    const written = model.writes ? (await writing.upTo(STEPS)).tokens : [];
    const rows = model.writes ? [decoderIds(model, given)] : [];
    const {logits, attention} = await model.run(form, source, rows, UNCHANGED);
    const maps = Object.fromEntries(Object.entries(attention).map(([kind, one]) => [kind, pack(one)]));
    const search = new Writing(model, form, source, UNCHANGED, {name: "beams", width: 3});
    const beams = model.hasSource ? (await search.upTo(STEPS)).tokens : [];
    found.push({source, written, beams, logits: pack(logits), attention: maps,
                text: model.target.decode(written), names: source.map((id) => model.source.name(id))});
  }
  return {processor, found};
})()"""

WRONG = """(async () => {
  const {Model, UNCHANGED} = globalThis.zoo;
  const models = await Promise.all([0, 1].map(() => Model.load("nlpt-encoder.language")));
  const form = models[0].about.forms[0], whys = [];
  for (const model of models) {
    const run = model.runNow;
    model.runNow = async (...given) => {
      const outputs = await run.apply(model, given);
      if (given.at(-1) === "webgpu" && model === models[0]) outputs.attention.encoder.data[0] += 0.001;
      return outputs;
    };
    whys.push(await model.processor(form));
    const lost = () => Promise.reject(new Error("lost"));
    model.runNow = (...given) => given.at(-1) === "webgpu" ? lost() : run.apply(model, given);
    whys.push((await model.run(form, [5, 6], [], UNCHANGED)).logits.dims.length, await model.processor(form));
  }
  return whys;
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


@pytest.fixture(scope="module")
def webgpu(site: Path) -> Iterator[Page]:
    with served(site) as address:
        page = Page(f"{address}?model=nlpt-encoder.language&processor=webgpu", flags=WEBGPU)
        yield page
        page.close()


def npm(*arguments: str, **variables: str) -> None:
    """Run npm in the room of the sources."""
    env = {**os.environ, **variables}
    done = subprocess.run(["npm", *arguments], cwd=SOURCES, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def unpacked(tensor: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(tensor["data"]), np.float32).reshape(tensor["dims"])


def generated(one: Explored, ids: list[int], **options: Any) -> Any:
    given = torch.tensor([ids])
    common = {"do_sample": False, "max_new_tokens": 48, "return_dict_in_generate": True}
    common |= {"output_logits": True, "output_attentions": True}
    common |= {"repetition_penalty": 1.0}  # which the page has not, and a model's own settings may have
    one.model.set_attn_implementation("eager")
    return one.model.generate(given, attention_mask=torch.ones_like(given), **{**common, **options})


def expected(one: Explored, text: str, steps: int) -> dict[str, Any]:
    """Tokens, logits and attention of Python's model, and `steps` tokens by beams.

    Token by token where the model decodes in its own way.
    """
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
        options = {"output_attentions": False, "output_logits": False, "max_new_tokens": steps}
        beams = generated(one, ids, num_beams=3, **options)
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
    rows = [[pad(layer[0], (0, length - layer.shape[-1])) for layer in step] for step in steps]
    return torch.stack([torch.cat(of_layer, 1) for of_layer in zip(*rows, strict=True)])


@torch.no_grad()
def check_parity(page: Page, name: str, processor: str = "noAdapter", steps: int = 48, most: int = 3) -> None:
    """Compare `steps` tokens of `most` texts, and logits and attention of all tokens that Python's model writes."""
    one = stored(explored(name))
    task = page.evaluate(f"fetch('models/{name}/model.json').then((one) => one.json())")["task"]
    texts = TEXTS[task][:most]
    wanted = [expected(one, text, steps) for text in texts]
    given = [[text, python["written"]] for text, python in zip(texts, wanted, strict=True)]
    script = IN_PAGE.replace("FOLDER", json.dumps(name)).replace("TEXTS", json.dumps(given))
    computed = page.evaluate(script.replace("STEPS", str(steps)))
    assert computed["processor"] == processor
    for text, python, found in zip(texts, wanted, computed["found"], strict=True):
        assert found["source"] == python["source"], text
        assert found["written"] == python["written"][:steps], text
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
@pytest.mark.parametrize("name", [SOME[0], *(pytest.param(name, marks=pytest.mark.nightly) for name in SOME[1:])])
def test_webgpu_computes_what_python_does(webgpu: Page, name: str) -> None:
    """Each length is compiled separately, which takes long where software computes: few of them, and the last."""
    check_parity(webgpu, name, "webgpu", steps=3, most=1)


@PAGE
def test_a_webgpu_that_computes_other_numbers_or_fails_is_not_used(webgpu: Page) -> None:
    assert webgpu.evaluate(WRONG) == ["differs", 3, "differs", "webgpu", 3, "failed"]


@PAGE
@pytest.mark.parametrize("name", SOME)
def test_a_model_is_small_and_described_in_both_languages(site: Path, name: str) -> None:
    check_files(site / "models" / name)


def check_files(model: Path) -> None:
    assert sum(path.stat().st_size for path in model.iterdir()) < 4 * MEGABYTE, model
    about = json.loads((model / "model.json").read_text(encoding="utf-8"))
    parts = [part for form in about["forms"] for part in form["parts"]]
    phrases = {about["summary"], *(form["description"] for form in about["forms"])}
    phrases |= {part["label"] for part in parts} | {fact for part in parts for fact in facts_of(part["detail"])}
    portuguese = (SOURCES / "src/registry.ts").read_text(encoding="utf-8")
    missing = [one for one in phrases - {""} if f'"{one}":' not in portuguese and f"  {one}:" not in portuguese]
    assert not missing


def facts_of(detail: str) -> list[str]:
    """Facts of a part that have words, with # for numbers and names, as the page translates them."""
    general = (re.sub(r"(?<![\w.])\d+(\.\d+)?|(?<=weights of )\S+", "#", fact) for fact in detail.split(", "))
    return [fact for fact in general if re.search("[a-z]", fact) and fact not in ACTIVATIONS]


@PAGE
def test_a_static_space_has_the_page_of_its_model(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is one that is there already; tests/hub/test_push.py writes one."""
    asked: list[Any] = []

    def write(folder: Path, models: Any) -> None:
        asked.append(models)
        shutil.copytree(site, folder)

    monkeypatch.setattr("zoo.inside.browser.write_site", write)
    arguments = ["nlpt-encoder.language", "org/model", "--static", "--dry-run", "--json"]
    done = CliRunner().invoke(push, [*arguments, "--space"])
    assert done.exit_code == 0, done.output
    files = json.loads(done.stdout)["space_files"]
    assert asked == [{"org/model": "nlpt-encoder.language"}]
    assert {"README.md", "index.html", "engine/library.bin", "models/nlpt-encoder.language/weights.bin"} <= set(files)
    refused = CliRunner().invoke(push, arguments)
    assert refused.exit_code == 2 and "--static is an option of --space" in refused.output


@NODE
def test_the_sources_pass_their_own_tests() -> None:
    npm("test")


@PLAYWRIGHT
def test_readers_can_use_the_page(site: Path, tmp_path: Path) -> None:
    with served(site) as address:
        npm("run", "test:page", PAGE=address, CHROMIUM=str(find()), RESULTS=str(tmp_path))


@PAGE
@pytest.mark.nightly
def test_all_shipped_models_fit_and_compute_what_python_does(tmp_path: Path) -> None:
    sizes = write_site(tmp_path / "site")
    assert sum(sizes.values()) < 19 * MEGABYTE
    shown = [model["name"] for model in json.loads((tmp_path / "site" / MODELS / LIST).read_text())]
    assert shown == [name for name in shipped_models() if obstacle(explored(name)) is None]
    for name in shown:
        check_files(tmp_path / "site" / "models" / name)
    with served(tmp_path / "site") as address:
        page = Page(address)
        try:
            for name in shown:
                check_parity(page, name)
        finally:
            page.close()
        if RUNS_PLAYWRIGHT:
            npm("run", "test:page", "--", "-g", "lessons", PAGE=address, CHROMIUM=str(find()), RESULTS=str(tmp_path))
