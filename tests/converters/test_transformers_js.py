"""Exports for transformers.js, run in Node against the zoo's own numbers and tokens.

`npm install --ignore-scripts @huggingface/transformers@4.3` brings it; it is found where Node would find it.
"""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from command_line import run
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers_js import LENGTH, NODE, NPM, TEXTS, VOCABULARY, build

import zoo
from zoo.converters import TARGETS
from zoo.converters.errors import ExportError
from zoo.converters.transformers_js import page, tokenizer
from zoo.converters.transformers_js.target import KNOWN
from zoo.data.tokenizers import train_bpe
from zoo.data.tokenizers.kinds import TOKENIZERS
from zoo.models import TASK_CLASSES

MODELS = {
    "gpt2-style": "causal-lm",
    "llama-style": "causal-lm",
    "gemma3-style": "causal-lm",
    "falcon-style": "causal-lm",
    "bert-style": "masked-lm",
    "roformer-style": "token-classification",
    "modernbert-style": "feature-extraction",
    "olmo2-style": "feature-extraction",
    "vanilla": "seq2seq-lm",
    "t5-style": "seq2seq-lm",
}


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.xdist_group("engines")
def test_an_encoder_decoder_has_the_graphs_and_names_that_transformers_js_asks_for(translator, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    report = zoo.export(translator, tmp_path / "out", "transformers.js")
    assert report.difference.float32 < 1e-5 and report.difference.greedy and report.difference.beams
    assert "To transformers.js it is a model of type marian." in report.notes
    assert not report.transforms, "graphs hold the weights as they are"
    assert set(report.files) >= {"tokenizer.json", "target/tokenizer.json", "generation_config.json"}
    assert not any(name.endswith((".safetensors", ".html")) for name in report.files)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["model_type"], config["transformers.js_config"]) == ("marian", {"dtype": "fp32"})

    graphs = {path.stem: onnxruntime.InferenceSession(str(path)) for path in (tmp_path / "out" / "onnx").iterdir()}
    axes = {name: {port.name: port.shape for port in graph.get_inputs()} for name, graph in graphs.items()}
    tokens = ["batch_size", "encoder_sequence_length"]
    assert axes["encoder_model"] == {"input_ids": tokens, "attention_mask": tokens}
    assert [port.name for port in graphs["encoder_model"].get_outputs()] == ["last_hidden_state"]
    # At the first step every length but that of the batch is taken for 0.
    cached = {
        f"past_key_values.0.{stack}.{part}": ["batch_size", 4, f"past_{stack}_sequence_length", 4]
        for stack in ("decoder", "encoder")
        for part in ("key", "value")
    }
    assert axes["decoder_model_merged"] == {
        "input_ids": ["batch_size", "decoder_sequence_length"],
        "encoder_attention_mask": tokens,
        "encoder_hidden_states": [*tokens, 16],
        "use_cache_branch": [1],
        **cached,
    }
    made = {port.name for port in graphs["decoder_model_merged"].get_outputs()}
    assert made == {"logits", *(name.replace("past_key_values", "present") for name in cached)}


def test_other_classes_are_taken_where_it_would_lack_the_cache():
    """Falcon's own type asks for one tensor of keys and values, as its multi-query models were once exported."""
    plan = TARGETS.get("transformers.js").plan(build("falcon-style", "causal-lm"))
    assert plan.exact and plan.class_name == "GPTNeoXForCausalLM"


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_tokenizers_that_it_cuts_otherwise_are_refused(kind, tmp_path):
    TOKENIZERS.get(kind)(TEXTS).save_pretrained(tmp_path)
    if kind == "d2l-word":
        with pytest.raises(ExportError, match=r"it has the pre_tokenizer Split by \{'String': ' '\}, removed; valid: "):
            tokenizer.check(tmp_path / "tokenizer.json")
        return
    tokenizer.check(tmp_path / "tokenizer.json")
    saved = json.loads((tmp_path / "tokenizer.json").read_text())
    saved["decoder"] = {"type": "Sequence", "decoders": [{"type": "Backwards"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
    with pytest.raises(ExportError, match="it has the decoder Backwards; valid: BPEDecoder, "):
        tokenizer.check(tmp_path / "tokenizer.json")
    with pytest.raises(ExportError, match=r"reads tokenizers from tokenizer.json, and this one has none"):
        tokenizer.check(tmp_path / "other" / "tokenizer.json")


PIECES = {
    "whitespace": pre_tokenizers.Whitespace(),
    "punctuation": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]),
    "removed": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("removed")]),
    "contiguous": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous")]),
    "digits": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits()]),
    "digit": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Whitespace()]),
    "bytes": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "metaspace": pre_tokenizers.Metaspace(),
}
"""Ways of cutting that transformers.js has, some of them with other classes of characters."""

HARD = ["wait... what?! (no)", "x²+½ ٣٤ 12 345", "não é ΣΑΣ İ", "e\u0301 a\u200db \ufeffc\u3000d", "a_b «c» §5 $3"]


def cut(kind: str, folder: Path) -> Tokenizer:
    """A tokenizer with a vocabulary of whole pieces and of characters, saved into a folder."""
    pieces, texts = PIECES[kind], [text.lower().replace("ς", "σ") for text in (*TEXTS, *HARD)]
    words = sorted({piece for text in texts for piece, _ in pieces.pre_tokenize_str(text)})
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(["[UNK]", *words])}, "[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pieces
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]").save_pretrained(folder)
    return made


@pytest.mark.parametrize("kind", PIECES)
def test_tokenizers_are_written_by_parts_that_are_alike(kind, tmp_path):
    made = cut(kind, tmp_path / "saved")
    (tmp_path / "out").mkdir()
    tokenizer.carry(tmp_path / "saved", tmp_path / "out")
    written = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    for text in (*TEXTS, *HARD):
        assert written.encode(text).tokens == made.encode(text).tokens
    assert json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())["clean_up_tokenization_spaces"] is False
    before, after = (one.pre_tokenizer.__getstate__() for one in (made, written))
    assert before != after, "transformers.js would cut otherwise"


@pytest.mark.parametrize(
    ("model", "added", "pieces", "message"),
    [
        (models.BPE(continuing_subword_prefix="##"), {}, None, "model BPE with continuing_subword_prefix='##'"),
        (models.Unigram([("a", 0.0)], 0, True), {}, None, "model Unigram with byte_fallback=True"),
        (models.BPE(), {"single_word": True}, None, "added token 'x'; it is added as a single word"),
        (models.BPE(), {}, "merged_with_next", "pre_tokenizer Punctuation, mergedwithnext; valid: "),
    ],
)
def test_what_transformers_js_ignores_of_a_tokenizer_is_refused(model, added, pieces, message, tmp_path):
    made = Tokenizer(model)
    made.add_tokens([AddedToken("x", **added)])
    if pieces:
        made.pre_tokenizer = pre_tokenizers.Punctuation(pieces)
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ExportError, match=f"it has the {message}"):
        tokenizer.check(tmp_path / "tokenizer.json")


def packages(folder: Path, version: str) -> None:
    """Files by which packages of npm are found."""
    for package, files in page.PACKAGES.items():
        for file in (*files, "package.json"):
            place = folder / "node_modules" / package / file
            place.parent.mkdir(parents=True, exist_ok=True)
            about = {"name": package, "version": version, "license": "MIT"}
            place.write_text(json.dumps(about) if file == "package.json" else f"{file}\n")


@pytest.mark.slow
def test_a_page_that_cannot_be_made_is_refused_in_one_line(tmp_path, monkeypatch):
    model = zoo.build("gpt2-style@tiny", vocab_size=30)
    model.save_pretrained(tmp_path / "saved")
    encoder = zoo.build("bert-style@tiny", "masked-lm", vocab_size=30)
    encoder.save_pretrained(tmp_path / "encoder")
    train_bpe(TEXTS, vocab_size=300).save_pretrained(tmp_path / "encoder")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("NODE_PATH", raising=False)
    monkeypatch.setattr("zoo.converters.transformers_js.page.NODE_MODULES", f"{tmp_path.name}_modules")

    def refusal(*arguments: object) -> str:
        result = run("export", *arguments, "--page", "-o", tmp_path / "out")
        assert result.exit_code and not (tmp_path / "out").exists()
        assert len(result.output.strip().splitlines()) == 1, result.output
        return result.output

    assert "exports to transformers.js have one" in refusal(tmp_path / "saved", "--as", "onnx")
    assert "exports to transformers.js have one" in refusal(tmp_path / "saved")
    to_it = ("--as", "transformers.js")
    assert "npm install --ignore-scripts @huggingface/transformers@4.3" in refusal(tmp_path / "saved", *to_it)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path / "here")
    packages(tmp_path, "3.8.1")
    assert "transformers.js 3.8.1 is in" in refusal(tmp_path / "saved", *to_it)
    packages(tmp_path, "4.3.9-next.1")
    assert "the model has no tokenizer next to it" in refusal(tmp_path / "saved", *to_it)
    assert "the tokenizer has no mask_token" in refusal(tmp_path / "encoder", *to_it)

    page.write_page(tmp_path / "here", model, page.find_runtime())
    written = {str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*") if path.is_file()}
    copied = {Path(file).name for files in page.PACKAGES.values() for file in files}
    assert written == {"index.html", "page.js", *(f"runtime/{name}" for name in copied)}
    text = (tmp_path / "here" / "index.html").read_text()
    assert 'data-task="causal-lm"' in text and f'data-limit="{model.config.max_position_embeddings}"' in text
    assert "onnxruntime-web 4.3.9-next.1 (MIT)" in text
    assert "http" not in text.replace("http-equiv", "")


def in_node(folder: Path, models: dict, tokenizers: dict) -> dict:
    """Run exports in transformers.js."""
    (folder / "requests.json").write_text(json.dumps({"models": models, "tokenizers": tokenizers}))
    script = Path(__file__).with_name("transformers_js.mjs")
    module = NPM / "@huggingface" / "transformers" / "dist" / "transformers.node.mjs"
    command = ["node", str(script), str(module), str(folder), str(folder / "requests.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.nightly
@NODE
def test_outputs_that_never_end_do_so_at_the_last_position(tmp_path):
    asked = {}
    for name, task in (("gpt2-style", "causal-lm"), ("vanilla", "seq2seq-lm")):
        zoo.export(build(name, task), tmp_path / name, "transformers.js")
        start = [[1]] if task == "seq2seq-lm" else None
        asked[name] = dict(auto=TASK_CLASSES[task][0], ids=[[5, 6, 7]], mask=[[1, 1, 1]], start=start)
        asked[name]["settings"] = dict(do_sample=False, eos_token_id=None)
    answers = in_node(tmp_path, asked, {})["models"]
    assert {name: len(answer["tokens"][0]) for name, answer in answers.items()} == dict.fromkeys(asked, LENGTH)


@pytest.mark.nightly
@NODE
def test_node_computes_and_writes_as_the_zoo_does(tmp_path):
    asked, expected = {}, {}
    for name, task in MODELS.items():
        model = build(name, task)
        zoo.export(model, tmp_path / name, "transformers.js")
        ids = torch.randint(5, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(0))
        mask = torch.ones_like(ids)
        mask[1, slice(3) if task == "causal-lm" else slice(4, None)] = 0
        start = torch.tensor([[1, 5, 9], [1, 7, 8]]) if task == "seq2seq-lm" else None
        how = dict(max_new_tokens=12, do_sample=False, eos_token_id=None) if model.can_generate() else None
        asked[name] = dict(auto=TASK_CLASSES[task][0], ids=ids.tolist(), mask=mask.tolist(), settings=how)
        asked[name]["start"] = None if start is None else start.tolist()
        given = {} if start is None else {"decoder_input_ids": start}
        if task == "causal-lm":
            given["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        with torch.no_grad():
            outputs = model(input_ids=ids, attention_mask=mask, **given)
        values = outputs.last_hidden_state if task == "feature-extraction" else outputs.logits
        real = mask if values.ndim == 3 and start is None else torch.ones(values.shape[:2])
        tokens = model.generate(ids, attention_mask=mask, **how, pad_token_id=0).tolist() if how else None
        expected[name] = (values, real.bool(), tokens)
    answers = in_node(tmp_path, asked, {})
    for name, (values, real, tokens) in expected.items():
        found = torch.tensor(answers["models"][name]["values"])
        torch.testing.assert_close(
            found[real], values[real], atol=1e-4, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}"
        )
        assert answers["models"][name].get("tokens") == tokens, name
    for task, known in KNOWN.items():
        assert set(known) <= set(answers["types"][TASK_CLASSES[task][0]]), task


@pytest.mark.nightly
@NODE
def test_node_cuts_texts_as_the_zoo_does(tmp_path):
    texts = {kind: TEXTS for kind in TOKENIZERS if kind != "d2l-word"} | {kind: [*TEXTS, *HARD] for kind in PIECES}
    for kind in texts:
        saved, out = tmp_path / "saved" / kind, tmp_path / "tokenizers" / kind
        cut(kind, saved) if kind in PIECES else TOKENIZERS.get(kind)(TEXTS).save_pretrained(saved)
        out.mkdir(parents=True)
        tokenizer.carry(saved, out)
    answers = in_node(tmp_path, {}, {f"tokenizers/{kind}": given for kind, given in texts.items()})
    for kind, given in texts.items():
        ours, theirs = (
            AutoTokenizer.from_pretrained(tmp_path / "saved" / kind),
            answers["tokenizers"][f"tokenizers/{kind}"],
        )
        assert theirs["ids"] == [ours(text).input_ids for text in given], kind
        assert theirs["texts"] == [ours.decode(ids, skip_special_tokens=True) for ids in theirs["ids"]], kind
