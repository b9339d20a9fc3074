"""The page that runs an export for transformers.js, in Chromium against the zoo's own numbers and tokens."""

import contextlib
import json

import pytest
import torch
from browser_page import served
from chromium import Page
from command_line import run
from transformers_js import BROWSER, TEXTS, build

from zoo.data.tokenizers import train_bpe
from zoo.training.generation import generate


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A folder, and the address that it is served at."""
    folder = tmp_path_factory.mktemp("served")
    with served(folder) as address:
        yield folder, address


@contextlib.contextmanager
def opened(address):
    """A page that is ready, as a function of a text and the state that it leads to, which returns what is shown.

    It asks for nothing from elsewhere, and nothing is complained about.
    """
    shown = Page(f"{address}index.html")

    def answer(text: str, state: str) -> str:
        shown.evaluate(f"document.querySelector('#text').value = {json.dumps(text)}")
        shown.click("button")
        shown.wait(f"document.body.dataset.state === {state!r}")
        return shown.evaluate("document.querySelector('output').textContent")

    try:
        shown.wait("document.body.dataset.state === 'ready'")
        yield answer
        assert shown.requests and all(request.startswith(address) for request in shown.requests)
        assert not shown.problems
    finally:
        shown.close()


@pytest.mark.nightly
@BROWSER
@pytest.mark.parametrize(
    ("weights", "text"), [("vanilla.en-pt", "Where is the house?"), ("gpt2-style.char-en", "The house")]
)
def test_the_page_runs_in_chromium_and_asks_no_other_host(weights, text, shared):
    folder, address = shared
    result = run("export", weights, "-o", folder / weights, "--as", "transformers.js", "--page")
    assert result.exit_code == 0, result.output
    with opened(f"{address}{weights}/") as answer:
        found = answer(text, "done")
        (ours,) = generate(weights, [text], max_new_tokens=64, num_beams=1, do_sample=False)
        assert found.strip() == ours.candidates[0].text.strip()
        assert "tokens; the model reads" in answer("the house " * 500, "failed")


ENCODERS = {
    "masked-lm": "bert-style",
    "sequence-classification": "roformer-style",
    "token-classification": "bert-style",
    "feature-extraction": "modernbert-style",
}


@pytest.mark.nightly
@BROWSER
@pytest.mark.parametrize("task", ENCODERS)
def test_the_page_of_an_encoder_shows_what_the_zoo_computes(task, shared):
    folder, address = shared
    tokenizer = train_bpe(TEXTS, vocab_size=300)
    tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    named = {"id2label": {0: "calm", 1: "busy"}} if task.endswith("-classification") else {}
    model = build(ENCODERS[task], task, vocab_size=len(tokenizer), **named)
    model.save_pretrained(folder / "saved" / task)
    tokenizer.save_pretrained(folder / "saved" / task)
    result = run("export", folder / "saved" / task, "-o", folder / task, "--as", "transformers.js", "--page")
    assert result.exit_code == 0, result.output
    text = "the [MASK] sleeps" if task == "masked-lm" else "the cat sleeps"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        outputs = model(input_ids=ids)
    with opened(f"{address}{task}/") as answer:
        lines = answer(text, "done").splitlines()
        if task == "masked-lm":
            assert "Write [MASK] where a word is to be guessed." in answer("the cat sleeps", "failed")
    if task == "feature-extraction":
        rows = [[float(value) for value in line.split()] for line in lines[1:]]
        torch.testing.assert_close(torch.tensor(rows), outputs.last_hidden_state[0, :, :5], atol=1e-4, rtol=0)
        return
    names = model.config.id2label
    if task == "token-classification":
        best = outputs.logits[0].argmax(-1).tolist()
        pairs = zip(ids[0].tolist(), best, strict=True)
        assert lines == [f"{tokenizer.decode([number])}  {names[place]}" for number, place in pairs]
        return
    scores = outputs.logits[0, ids[0] == tokenizer.mask_token_id] if task == "masked-lm" else outputs.logits
    shares, places = scores[0].softmax(-1).topk(min(5, scores.shape[-1]))
    for line, share, place in zip(lines, shares.tolist(), places.tolist(), strict=True):
        name, number = line.removesuffix(" %").rsplit("  ", 1)
        assert name == (tokenizer.decode([place]) if task == "masked-lm" else names[place])
        assert float(number) == pytest.approx(100 * share, abs=0.06)
