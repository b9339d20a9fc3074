"""Graphs for the page in the browser: everything inside, equal to the model, with heads and layers off."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_variant import EACH, ONE_TASK

import zoo
from zoo.base.errors import ConfigError, UnsupportedOperationError
from zoo.converters.errors import ExportError
from zoo.data.tokenizers import TOKENIZERS
from zoo.inside.browser import models, parts, site
from zoo.inside.browser.graphs import HALVES, SINGLES, Weights, example, graph_of, inspected, own_logits, rounded
from zoo.inside.browser.models import fitting, forms_of, stored, write_first, write_model
from zoo.inside.browser.parts import Lines, named_shapes, parts_of
from zoo.inside.browser.tracing import Inspected, input_names, kinds_of, output_names
from zoo.inside.explorer import explored
from zoo.inside.explorer.models import with_quirks
from zoo.inside.texts import inputs_of

SHOWN_ELSEWHERE = {"attention-residuals", "diff-transformer", "kimi-linear-style", "lfm2-style", "qwen3-next-style"}
SHOWN_ELSEWHERE |= {"gpt-bert-style", *(f"{kind}hyper-connections" for kind in ("", "gated-", "manifold-"))}
"""Variants with layers without attention, several streams, or several maps a head."""


def record(name: str, task: str) -> tuple[Inspected, tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    inside = inspected(zoo.build(f"{name}@tiny", task, seed=0).eval())
    given = example(inside.model, (6, 6), padded=True)
    with torch.no_grad():
        return inside, given, dict(zip(output_names(inside.model), inside(*given), strict=True))


@pytest.mark.parametrize("name", EACH)
def test_what_is_recorded_is_the_models_own(name: str) -> None:
    if name in SHOWN_ELSEWHERE:
        with pytest.raises(ExportError, match="a page shows"):
            record(name, ONE_TASK[name])
        return
    inside, given, found = record(name, ONE_TASK[name])
    model = inside.model
    with torch.no_grad():
        torch.testing.assert_close(found["logits"][-1], own_logits(model, given))
    for kind in kinds_of(model):
        assert found[f"{kind}_norms"].shape == torch.Size([*found[f"{kind}_attention"].shape[:3], 6])


@pytest.mark.parametrize("name", ["vanilla", "pre-norm", "t5-style"])
def test_attention_is_what_transformers_records(name: str) -> None:
    inside, given, found = record(name, "seq2seq-lm")
    ids, mask, _, target, target_mask, *_ = given
    with torch.no_grad():
        masks = {"attention_mask": mask, "decoder_attention_mask": target_mask}
        outputs = inside.model(input_ids=ids, decoder_input_ids=target, output_attentions=True, **masks)
    for kind in ("encoder", "decoder"):
        torch.testing.assert_close(found[f"{kind}_attention"], torch.stack(outputs[f"{kind}_attentions"]))
    torch.testing.assert_close(found["cross_attention"], torch.stack(outputs.cross_attentions))


def test_a_head_that_is_off_adds_nothing() -> None:
    """As if its columns of the output projection were zero; the norms are of the values through these columns."""
    inside, given, found = record("vanilla", "seq2seq-lm")
    model = inside.model
    names = input_names(model)
    given[names.index("cross_heads")][1, 0] = 0.0
    with torch.no_grad():
        off = inside(*given)[0]
        attention = model.model.decoder.layers[1].cross_attn
        width = attention.head_dim
        memory = found["encoder_stages"][-1]
        values = memory @ attention.v_proj.weight[:width].T + attention.v_proj.bias[:width]
        norms = (values @ attention.o_proj.weight[:, :width].T).norm(dim=-1)
        torch.testing.assert_close(found["cross_norms"][1, :, 0], norms)
        attention.o_proj.weight[:, :width] = 0.0
        torch.testing.assert_close(off[-1], own_logits(model, given))
    assert not torch.allclose(off[-1], found["logits"][-1])


def test_a_layer_that_is_off_is_the_identity() -> None:
    inside, given, _ = record("gpt2-style", "causal-lm")
    given[-1][0] = 0.0
    with torch.no_grad():
        off = inside(*given)[0][-1]
        del inside.model.model.layers[0]
        inside.model.config.num_hidden_layers -= 1
        torch.testing.assert_close(off, own_logits(inside.model, given))


def test_early_predictions_are_those_of_the_logit_lens() -> None:
    one = explored("gpt2-style.char-en")
    lens = zoo.inside.logit_lens(one.model, "Where is", tokenizer=one.tokenizers)
    inside = inspected(one.model)
    ids = torch.tensor([one.tokenizers.source("Where is")["input_ids"]])
    given = (ids, torch.ones_like(ids), torch.arange(ids.shape[1])[None], *example(inside.model, (6, 6))[3:])
    with torch.no_grad():
        shares = inside(*given)[0][:, 0].softmax(dim=-1)
    np.testing.assert_allclose(shares.max(dim=-1).values, lens.probabilities[..., 0], atol=1e-5)


def test_weights_are_stored_once_and_exactly() -> None:
    weights = Weights()
    half, single = np.float32([[1.5, -2.0]]), np.float32([0.1, 0.2, 0.3])
    assert weights.place(half) == (HALVES, 0) and weights.place(single) == (SINGLES, 0)
    assert weights.place(half.copy()) == (HALVES, 0) and weights.place(np.float32([3.0])) == (HALVES, 8)
    assert weights.sizes == {HALVES: 3, SINGLES: 3}
    content = np.frombuffer(weights.content(), np.uint8)
    planes = content[:6].reshape(2, 3)
    np.testing.assert_array_equal(np.ascontiguousarray(planes[::-1].T).view("<f2").ravel(), [1.5, -2.0, 3.0])
    np.testing.assert_array_equal(content[6:].view("<f4"), single)


@pytest.mark.slow
def test_a_graph_that_computes_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = inspected(explored("nlpt-encoder.language").model)
    assert graph_of(inside, Weights())
    read_out = Inspected.read_out
    monkeypatch.setattr(Inspected, "read_out", lambda *given: read_out(*given) + 1.0)
    with pytest.raises(ExportError, match=r"logits of .* differ by 1\.0"):
        graph_of(inside, Weights())


def test_quirks_are_forms_and_decode_as_the_model_does() -> None:
    forms = {form.label: form for form in forms_of(explored("d2l-style.en-pt-faithful"))}
    stepwise = forms["as it was trained"]
    assert stepwise.positions == "zero" and stepwise.stepwise
    assert not {"every-step-is-position-zero", "evaluation-sees-the-future"} & set(stepwise.graph_quirks)
    assert not forms["the whole target at once"].stepwise
    assert not {form.label: form for form in forms_of(explored("odom-style.en-pt"))}["decoder-sees-the-future"].stepwise
    targets = {form.label: form.target for form in forms_of(explored("explicando.en-pt"))}
    assert targets["memory-makes-queries"] == "source"


@pytest.mark.slow
def test_only_quirks_that_show_have_a_graph(tmp_path: Path) -> None:
    entry = write_model(replace(explored("nlpt-encoder.language"), name="mine"), tmp_path / "mine")
    assert entry["name"] == "mine" and entry["task"] == "sequence-classification"
    about = zoo.base.files.read_json(tmp_path / "mine/model.json")
    assert [form["label"] for form in about["forms"]] == ["as it was trained", "padding-is-attended"]
    assert about["limit"] == 256 and about["labels"] == ["English", "Portuguese"]
    first = json.loads(gzip.decompress((tmp_path / "mine/first.bin").read_bytes()))
    with torch.no_grad():
        one = explored("nlpt-encoder.language")
        inputs = inputs_of(one.model, one.tokenizers, [first["text"]])
        logits = explored("nlpt-encoder.language").model(**inputs.arguments).logits[0]
    shares = dict(zip(first["logits"]["ids"][-2:], np.exp(first["logits"]["values"][-2:]), strict=True))
    np.testing.assert_allclose([shares[0], shares[1]], logits.softmax(dim=-1), atol=1e-4)


def test_a_model_that_the_page_cannot_show_is_left_out_unless_it_is_named(tmp_path: Path, monkeypatch, capsys) -> None:
    tokenizer = TOKENIZERS.get("word")(["where is the house"])
    size = len(tokenizer)
    model = zoo.build("bert-style@tiny", "masked-lm", masked_next_token=True, vocab_size=size, seed=0)
    model.save_pretrained(tmp_path / "next")
    tokenizer.save_pretrained(tmp_path / "next")
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / site.INDEX).touch()
    name = str(tmp_path / "next")
    monkeypatch.setattr(site, "find_page", lambda: tmp_path / "page")
    monkeypatch.setattr(site, "shipped_models", lambda: [name, "gpt2-style.char-en"])
    monkeypatch.setattr(site, "write_model", lambda one, folder: folder.mkdir(parents=True) or {"name": one.name})
    site.write_site(tmp_path / "site")
    assert zoo.base.files.read_json(tmp_path / "site" / site.MODELS / site.LIST) == [{"name": "gpt2-style.char-en"}]
    why = "predicts a masked token one position earlier, which the page does not show"
    assert capsys.readouterr().err.splitlines()[-1] == f"Left out: {name} {why}"
    monkeypatch.setattr(site, "write_model", write_model)
    with pytest.raises(ConfigError, match=f"next {why}"):
        site.write_site(tmp_path / "named", [name])


@pytest.mark.parametrize("name", ["d2l-style.en-pt-faithful", "gpt2-style.char-en"])
def test_the_first_picture_has_what_the_model_writes(name: str, tmp_path: Path) -> None:
    one = explored(name)
    kind = next(forms_of(one))
    write_first(one, kind, inspected(one.model) if kind.positions == "counted" else fitting(one, kind), tmp_path)
    first = json.loads(gzip.decompress((tmp_path / "first.bin").read_bytes()))
    given = torch.tensor([first["source"]])
    run = one.model.generate(given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=48)
    assert run[0, 1 if one.model.config.is_encoder_decoder else given.shape[1] :].tolist() == first["written"]
    for tensor in first["attention"].values():
        assert len(tensor["data"]) == np.prod(tensor["dims"])


def test_matrices_of_a_large_model_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.tensor([1.0, -0.7, 3.1e-5, 0.0, 33.0, 1.03125])
    torch.testing.assert_close(rounded(values, 5), torch.tensor([1, -0.6875, 2**-15, 0, 32, 1]), rtol=1e-4, atol=0)
    assert rounded(values, 5).to(torch.float16).to(torch.float32)[:2].tolist() == [1.0, -0.6875]
    one = explored("nlpt-encoder.language")
    assert stored(one) is one
    monkeypatch.setattr(models, "LARGEST", 1000)
    other = stored(one)
    before, after = (list(found.model.parameters()) for found in (one, other))
    for old, new in zip(before, after, strict=True):
        assert torch.equal(new, rounded(old, 5) if old.dim() > 1 else old)


@cache
def parts_in(name: str, *quirks: str, ejects: bool = True) -> tuple[dict[str, Any], list[str]]:
    """Parts by path, and the lines of the ejected file, which takes seconds."""
    one = explored(name)
    model = with_quirks(one, quirks).model if quirks else one.model
    code = parts.ejected(model, name) if ejects else ""
    return {part["path"]: part for part in parts_of(model, code, named_shapes(one))}, ["", *code.splitlines()]


@pytest.mark.slow
def test_parts_have_formulas_shapes_and_lines() -> None:
    found, lines = parts_in("vanilla.en-pt")
    cross = found["model.decoder.layers.0.cross_attn"]
    assert cross["formula"].startswith("softmax(Q Kᵀ / √16 + padding mask) V") and cross["shape"] == ("target", 64)
    assert lines[cross["line"]].startswith("class Attention")
    norm = found["model.encoder.layers.0.mlp_residual.norm_out"]
    assert "self.norm_out = nn.LayerNorm" in lines[norm["line"]]
    assert found["model.encoder.layers.0.mlp"]["shape"] == ("source", 64)
    assert found["lm_head"]["shape"] == ("target", 2000)
    assert Lines("").find("model.norm") is None and Lines("").function("cls pooling") is None
    for name, path, start in (
        ("llama-style.char-en", "model.position", "def rotary"),
        ("vanilla.language", "pooling", "def pooled"),
        ("odom-style.en-pt", "model.encoder.position", "def sinusoids"),
        ("vanilla.en-pt-faithful", "model.decoder.layers.0.cross_attn", "class Attention"),
    ):
        found, lines = parts_in(name)
        assert lines[found[path]["line"]].startswith(start)
    assert all(part["shape"] for path, part in parts_in("vanilla.en-pt-faithful")[0].items() if ".layers." in path)


QUIRKS = (
    ("vanilla.en-pt", "scores-scaled-by-model-width", "decoder.layers.0.self_attn", "Q Kᵀ / √64 + causal mask)"),
    ("vanilla.en-pt", "cross-attention-reuses-self", "decoder.layers.0.cross_attn", "all W of self-attention"),
    ("odom-style.en-pt", "softmax-over-the-batch", "encoder.layers.0.self_attn", "mask, over the batch) V"),
    ("odom-style.en-pt", "decoder-sees-the-future", "decoder.layers.0.self_attn", "softmax(Q Kᵀ / √16) V"),
    ("odom-style.en-pt", "padding-is-attended", "encoder.layers.0.self_attn", "softmax(Q Kᵀ / √16) V"),
    ("odom-style.en-pt", "cosines-have-own-exponents", "encoder.position", "cos(p / 10000^((2i+1)/d))"),
    ("d2l-style.en-pt", "evaluation-sees-the-future", "decoder.layers.0.self_attn", "causal mask in training alone"),
    ("d2l-style.en-pt", "every-step-is-position-zero", "decoder.position", "p = 0 in every step"),
    ("explicando.en-pt", "memory-makes-queries", "decoder.layers.0.cross_attn", "Q = m W_q, K = m W_k, V = x W_v,"),
    ("vanilla.language", "max-pools-padding", "pooling", "tokens and padding"),
)


@pytest.mark.parametrize(("name", "quirk", "path", "formula"), QUIRKS, ids=[f"{one[0]}-{one[1]}" for one in QUIRKS])
def test_formulas_follow_a_quirk(name: str, quirk: str, path: str, formula: str) -> None:
    plain, found = (parts_in(name, *quirks, ejects=False)[0] for quirks in ((), (quirk,)))
    [part] = [part for place, part in found.items() if place.endswith(path)]
    assert formula in part["formula"] and formula not in plain[part["path"]]["formula"]
    assert quirk in part["quirks"] and quirk not in plain[part["path"]]["quirks"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "quirk"),
    [
        pytest.param(name, quirk, marks=() if quirk == "max-pools-padding" else pytest.mark.nightly)
        for name, quirk, _, _ in QUIRKS
    ],
)
def test_code_follows_a_quirk(name: str, quirk: str) -> None:
    assert parts_in(name, quirk)[1] != parts_in(name)[1]


def test_without_a_page_and_without_node_there_is_one_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(site, "BUILT", tmp_path / "none")
    monkeypatch.setattr(site, "SOURCES", tmp_path / "none")
    with pytest.raises(UnsupportedOperationError, match="a release of the zoo brings it"):
        site.find_page()
    (tmp_path / "none").mkdir()
    (tmp_path / "none/package.json").write_text("{}")
    monkeypatch.setattr(site.shutil, "which", lambda name: None)
    with pytest.raises(UnsupportedOperationError, match="Node 20 and npm"):
        site.find_page()
