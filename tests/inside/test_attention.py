"""Attention weights, and the pictures of them."""

import dataclasses
import json
import re

import numpy as np
import pandas
import pytest
import torch
from chromium import Page, find
from click.testing import CliRunner
from matplotlib.figure import Figure

import zoo
from zoo.base.errors import ConfigError, UnknownNameError
from zoo.cli.main import cli
from zoo.data.tokenizers import open_texts, train_tokenizers
from zoo.inside import attention, attention_figure, attention_page, head_statistics
from zoo.inside.heatmaps import save_attention
from zoo.inside.texts import inputs_of

SOURCE = "My son doesn't like hot milk."
TARGET = "Meu filho não gosta de leite quente."


@pytest.fixture(scope="module")
def maps(translator):
    return attention(translator, SOURCE, TARGET)


def test_weights_are_what_the_model_computes_and_tokens_are_what_it_reads(maps, translator, tokenizers):
    """Against hooks on the softmax's result, with ids made by hand."""
    model = zoo.load(translator, attn_implementation="eager")
    ids = tokenizers.source(SOURCE, return_tensors="pt")["input_ids"]
    labels = tokenizers.target(TARGET, return_tensors="pt")["input_ids"]
    decoder_ids = torch.cat([torch.tensor([[model.config.decoder_start_token_id]]), labels[:, :-1]], dim=1)
    seen = []
    for stack, names in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "cross_attn"))):
        for name in names:
            for layer in getattr(model.model, stack).layers:
                getattr(layer, name).register_forward_hook(lambda module, given, output: seen.append(output[1]))
    with torch.no_grad():
        model(input_ids=ids, decoder_input_ids=decoder_ids)
    by_kind = {"encoder": seen[:2], "decoder": seen[2::2], "cross": seen[3::2]}
    for kind, layers in by_kind.items():
        np.testing.assert_allclose(maps[kind].weights, torch.cat(layers).numpy(), atol=1e-6)
        np.testing.assert_allclose(maps[kind].weights.sum(-1), 1, atol=1e-5)
    read = tokenizers.source.convert_ids_to_tokens(ids[0])
    written = tokenizers.target.convert_ids_to_tokens(decoder_ids[0])
    assert maps["encoder"].queries == maps["encoder"].keys == maps["cross"].keys == tuple(read)
    assert maps["decoder"].queries == maps["decoder"].keys == maps["cross"].queries == tuple(written)
    assert np.triu(maps["decoder"].weights, 1).max() == 0
    with pytest.raises(UnknownNameError, match="did you mean 'cross'"):
        maps["crosss"]


def test_without_a_target_it_is_what_the_model_writes(translator):
    found = attention(translator, SOURCE)
    (one,) = zoo.generate(translator, SOURCE, num_beams=1)
    assert found.output == one.text != "" and found["decoder"].queries[0] == "<bos>"
    assert " ".join(found["decoder"].queries[1:]).startswith(" ".join(one.text.split()[:5]))


def test_models_of_one_stack(writer, tokenizers):
    found = attention(writer, "My son", "is here.")
    assert [one.kind for one in found.maps] == ["decoder"] and found["decoder"].keys == ("My", "son", "is", "here", ".")
    encoder = zoo.build("bert-style@tiny", "masked-lm", vocab_size=len(tokenizers.source))
    assert [one.kind for one in attention(encoder, SOURCE, tokenizer=tokenizers).maps] == ["encoder"]
    assert encoder.config._attn_implementation == "sdpa"  # as it was
    with pytest.raises(ConfigError, match="only reads"):
        attention(encoder, SOURCE, TARGET, tokenizer=tokenizers)


def test_a_target_has_no_beginning_in_the_middle():
    tokenizers = train_tokenizers(["a b c d"], kind="character")
    open_texts(tokenizers.source)
    model = zoo.build("gpt2-style@tiny", "causal-lm", vocab_size=len(tokenizers.source))
    inputs = inputs_of(model, tokenizers, ["a b"], [" c"])
    assert inputs.arguments["input_ids"].tolist() == [tokenizers.source("a b c")["input_ids"]]


def test_records(maps):
    frame = pandas.DataFrame(maps.to_records())
    assert len(frame) == sum(one.weights.size for one in maps.maps)
    cross = frame[(frame.kind == "cross") & (frame.layer == 2) & (frame["head"] == 3)]
    table = cross.pivot(index="query_position", columns="key_position", values="weight")
    np.testing.assert_array_equal(table.to_numpy(dtype=np.float32), maps["cross"].weights[1, 2])


def test_the_figure_is_arranged_as_in_the_book(maps):
    """Rows are layers and columns heads; titles on all, axes named left and below, one bar of colours."""
    for one in maps.maps:
        figure = attention_figure(one)
        *panels, bar = figure.axes
        assert [panel.get_title() for panel in panels] == [f"Head {head}" for head in (1, 2, 3, 4)] * 2
        assert [panel.get_xlabel() for panel in panels] == [""] * 4 + ["Key positions"] * 4
        assert [panel.get_ylabel() for panel in panels] == ["Query positions", "", "", ""] * 2
        images = [panel.images[0] for panel in panels]
        assert {image.get_cmap().name for image in images} == {"Reds"}
        assert {image.get_clim() for image in images} == {(0.0, one.weights.max())}
        for place, image in enumerate(images):
            np.testing.assert_array_equal(image.get_array(), one.weights[place // 4, place % 4])
        assert [label.get_text() for label in panels[4].get_xticklabels()] == list(one.keys)
        assert [label.get_text() for label in panels[4].get_yticklabels()] == list(one.queries)
        assert bar.get_label() == "<colorbar>"


def test_layers_of_a_hybrid_keep_their_numbers(tokenizers):
    """Those of its mixer have no attention, and are not shown."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
    kinds = ["conv", "full_attention", "conv", "full_attention"]
    size = len(tokenizers.source)
    model = zoo.build("lfm2-style", "causal-lm", seed=0, vocab_size=size, layer_types=kinds, **sizes)
    found = attention(model, SOURCE, tokenizer=tokenizers.source)
    (one,) = found.maps
    assert one.layers == (2, 4) and len(one.weights) == 2
    assert {record["layer"] for record in found.to_records()} == {2, 4}
    labels = [text.get_text() for panel in attention_figure(one).axes for text in panel.texts]
    assert labels == ["Layer 2", "Layer 4"] and '"layers":[2,4]' in attention_page(found)
    (statistics,) = head_statistics(model, [SOURCE], tokenizer=tokenizers.source)
    assert {record["layer"] for record in statistics.to_records()} == {2, 4}


def test_bertviz_shows_them(maps, writer):
    bertviz = pytest.importorskip("bertviz")

    for view in (bertviz.head_view, bertviz.model_view):
        page = view(**maps.bertviz(), html_action="return").data
        data = json.JSONDecoder().raw_decode(page, page.index('{"attention": '))[0]["attention"]
        assert [one["name"] for one in data] == ["Encoder", "Decoder", "Cross"]
        np.testing.assert_allclose(data[2]["attn"], maps["cross"].weights, atol=1e-6)
        assert (data[2]["left_text"], data[2]["right_text"]) == (list(maps["cross"].queries), list(maps["cross"].keys))
        assert "son" in view(**attention(writer, "My son").bertviz(), html_action="return").data


def test_bertviz_takes_a_models_own_outputs(translator, tokenizers):
    bertviz = pytest.importorskip("bertviz")

    model = zoo.load(translator, attn_implementation="eager")
    ids = tokenizers.source(SOURCE, return_tensors="pt")["input_ids"]
    outputs = model(input_ids=ids, decoder_input_ids=torch.tensor([[2, 9]]), output_attentions=True)
    kinds = {f"{kind}_attention": outputs[f"{kind}_attentions"] for kind in ("encoder", "decoder", "cross")}
    read = tokenizers.source.convert_ids_to_tokens(ids[0])
    page = bertviz.head_view(**kinds, encoder_tokens=read, decoder_tokens=["<bos>", "x"], html_action="return")
    assert "Cross" in page.data


def test_the_command_writes_pictures_and_a_page(writer, tmp_path):
    out = tmp_path / "out"
    arguments = ["attention", str(writer), "--source", "My son", "-o", str(out), "--json"]
    done = CliRunner().invoke(cli, arguments)
    reported = json.loads(done.stdout)
    assert np.shape(reported["attention"]["decoder"]["weights"]) == (2, 4, 2, 2)
    assert reported["files"] == [str(out / one) for one in ("decoder.png", "attention.html")]
    assert sorted(reported["files"]) == sorted(map(str, out.iterdir()))
    assert (out / "decoder.png").read_bytes().startswith(b"\x89PNG")
    again = CliRunner().invoke(cli, arguments)
    assert again.exit_code == 2 and "--force" in again.output


def test_an_interrupted_picture_leaves_no_file(maps, tmp_path, monkeypatch):
    write = Figure.savefig

    def interrupted(figure, *args, **options):
        write(figure, *args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_attention(maps, tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_in_a_text_can_leave_its_place_on_the_page(maps):
    hostile = "</script><script>alert(1)</script><!--"
    cross = dataclasses.replace(maps["cross"], keys=(hostile, *maps["cross"].keys[1:]))
    page = attention_page(dataclasses.replace(maps, source=hostile, maps=(cross,)))
    assert page.count("<script") == 2 and "<!--" not in page
    assert not re.search(r"(src|href)=|url\(|https?://|@import", page)


@pytest.mark.skipif(find() is None, reason="needs Chromium")
@pytest.mark.thorough
def test_the_page_works_by_keyboard(maps, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(attention_page(maps), encoding="utf-8")
    page = Page(file)
    head, cell, buttons, stops = page.evaluate("""(() => {
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const states = [];
const tell = () => states.push(byId("title").textContent + "|" + byId("readout").firstChild.textContent);
document.querySelector('input[value="cross"]').click();
document.querySelector('#overview button[tabindex="0"]').focus();
press("ArrowRight"); press("ArrowRight"); press("ArrowDown"); tell();
document.querySelector('#detail td[tabindex="0"]').focus();
press("ArrowDown"); press("End"); press("ArrowLeft"); tell();
states.push(document.querySelectorAll("#overview button").length, document.querySelectorAll('[tabindex="0"]').length);
return states; })()""")
    page.close()
    cross = maps["cross"]
    assert head.startswith("Cross-attention, layer 2, head 3|“<bos>” attends to “My”")
    query, key = cross.queries[1], cross.keys[-2]
    assert f"“{query}” attends to “{key}” with weight {cross.weights[1, 2, 1, -2]:.4f}" in cell
    assert buttons == 2 * (4 + 1) and stops == 2
