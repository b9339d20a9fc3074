"""Every command that the card of an export names runs on it, and prints what it prints of the model."""

import json
import re
import shlex
from pathlib import Path

import onnx
import pytest
import torch
from click.testing import CliRunner
from command_line import skip_without
from native_models import scramble

import zoo
from zoo.base.errors import ConfigError, UnsupportedOperationError
from zoo.cli.main import cli
from zoo.converters import TARGETS, EngineTarget
from zoo.converters.target import PLACE, VERBS
from zoo.converters.verification import sample_inputs
from zoo.data.tokenizers import Tokenizers, train_bpe
from zoo.training.generation import ENGINES, load_for
from zoo.training.generation.engines import ExportEngine

# Those with exports share a process, which imports what tracing takes once.
pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("engines")]

TEXTS = ["the cat sleeps", "a dog runs", "dogs", "the dog sleeps on the mat"] * 2
NAMES = {"seq2seq-lm": "pre-norm", "causal-lm": "gpt2-style"}
SIZES = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48)
ROWS = {
    "seq2seq-lm": [f"{text}\t{text.upper()}" for text in TEXTS],
    "sequence-classification": ["text\tlabel", *(f"{text}\t{'yes' if 'dog' in text else 'no'}" for text in TEXTS)],
    "token-classification": [
        json.dumps({"tokens": text.split(), "tags": ["yes" if word == "dog" else "no" for word in text.split()]})
        for text in TEXTS
    ],
}
ENDINGS = {"seq2seq-lm": "tsv", "sequence-classification": "tsv", "token-classification": "jsonl"}
EXPORTING = {name: engine for name in ENGINES if isinstance(engine := ENGINES.get(name), ExportEngine)}
ENGINES_OF = {engine.target.name: name for name, engine in EXPORTING.items() if engine.exact}
BY_DAY = [("onnx", "sequence-classification")]
BY_NIGHT = [
    (name, task)
    for name in TARGETS
    for task in VERBS
    if isinstance(TARGETS.get(name), EngineTarget) and (name, task) not in BY_DAY
]


def run(*arguments: str | Path) -> str:
    result = CliRunner(env={"COLUMNS": "500"}).invoke(cli, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (arguments, result.output)
    return re.sub(r"[\d.,]+ examples/s", "", result.stdout)


def assert_alike(one: str, other: str) -> None:
    """llama.cpp rounds GELU: numbers may differ by 1e-3."""
    number = r"\d[\d,]*\.\d+"
    assert re.sub(number, "#", one) == re.sub(number, "#", other)
    ours, theirs = ([float(found.replace(",", "")) for found in re.findall(number, text)] for text in (one, other))
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.fixture
def saved(request, tmp_path) -> tuple[Path, Path]:
    """A model for a task with its tokenizer, and a file of data for it."""
    task, folder = request.getfixturevalue("task"), tmp_path / "saved"
    data = tmp_path / f"data.{ENDINGS.get(task, 'txt')}"
    data.write_text("\n".join(ROWS.get(task, TEXTS)) + "\n")
    tokenizer = train_bpe([*TEXTS, *(text.upper() for text in TEXTS)], vocab_size=300)
    if task == "masked-lm":
        tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    labels = dict(id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1}) if "classification" in task else {}
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    size = len(tokenizer) + 1
    sizes = dict(vocab_size=size, max_position_embeddings=64, **SIZES, **ids, **labels)
    if task == "seq2seq-lm":
        sizes["decoder_vocab_size"] = size
    scramble(zoo.build(NAMES.get(task, "bert-style"), task, **sizes), seed=1).save_pretrained(folder)
    Tokenizers(tokenizer, tokenizer).save(folder)
    return folder, data


@pytest.mark.parametrize(
    ("target", "task"), [*BY_DAY, *(pytest.param(*case, marks=pytest.mark.nightly) for case in BY_NIGHT)]
)
@pytest.mark.usefixtures("traced_once")
def test_every_advised_command_runs(target, task, saved, tmp_path):
    skip_without(TARGETS.get(target).module)
    model, data = saved
    loaded = zoo.load(model)
    if not TARGETS.get(target).plan(loaded).exact:
        pytest.skip(f"{target} has no {task}")
    zoo.export(model, tmp_path / "out", target, fresh_process=False)
    if [(target, task)] == BY_DAY:
        (logits,) = onnx.load(tmp_path / "out" / "model.onnx").graph.output
        assert [size.dim_param for size in logits.type.tensor_type.shape.dim] == ["batch_size", ""]
    card = (tmp_path / "out" / "README.md").read_text()
    lines = [line for block in re.findall(r"```bash\n(.*?)```", card, re.S) for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("zoo ")]
    assert {words[0] for words in commands} == set(VERBS[task]) == set(re.findall(r"with `zoo (\w+)`", card))
    for verb, place, *rest in commands:
        assert place == PLACE
        given = [{"TEXT": TEXTS[0], "DATA": data}.get(word, word) for word in rest]
        given += ["--n-bootstrap", "1"] if verb == "evaluate" else []
        expected = run(verb, model, *given)
        assert_alike(run(verb, tmp_path / "out", *given), expected)
        assert_alike(run(verb, model, *given, "--engine", ENGINES_OF[target]), expected)
    if "predict" in VERBS[task]:
        with pytest.raises(ConfigError, match=f"'translation' needs a model for seq2seq-lm .* for {task}"):
            zoo.evaluate(tmp_path / "out", "translation", data=data)
    if not commands:
        assert "load_for(" in card
        given = sample_inputs(loaded)["padded"]
        mask = given["attention_mask"].bool()
        with torch.no_grad():
            ours, theirs = (one(**given).last_hidden_state[mask] for one in (loaded, load_for(tmp_path / "out")))
        torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("task", ["causal-lm"])
def test_an_engine_without_logits_is_refused_where_logits_are_scored(task, saved):
    symbols = "copy:decoder_only=true,train_examples=4,heldout_examples=4,length=3,num_symbols=3"
    with pytest.raises(UnsupportedOperationError, match="scored by logits, and the model.s engine returns none"):
        zoo.evaluate(saved[0], symbols, data=None, heldout=None, engine="ctranslate2")
