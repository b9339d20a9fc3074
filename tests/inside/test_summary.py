"""Tables of layers."""

import json

import pytest
from click.testing import CliRunner
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

import zoo
from zoo.building.builder import count_parameters
from zoo.cli.main import cli
from zoo.inside import summary

pytestmark = pytest.mark.thorough

NAMES = [
    ("vanilla@tiny", None),
    ("vanilla@tiny+faithful", None),
    ("gpt2-style@tiny", "causal-lm"),
    ("gemma2-style@tiny:num_hidden_layers=4", "causal-lm"),
    ("universal@tiny", "seq2seq-lm"),
    ("bert-style@tiny", "sequence-classification"),
    ("odom-style@tiny+faithful", None),
    ("deepseek-v3-style@tiny:num_hidden_layers=4", "causal-lm"),
    ("gpt-oss-style@tiny", "causal-lm"),
]


@pytest.mark.parametrize(("name", "task"), NAMES, ids=str)
def test_shared_weights_are_counted_once(name, task):
    found = summary(name, task, depth=1)
    assert found.total == count_parameters(name, task) == sum(row.parameters for row in found.rows)
    folded, every = (summary(name, task, depth=99, fold=fold) for fold in (True, False))
    unfolded = [row for row in every.rows for _ in range(row.times)]
    assert sum(row.times for row in folded.rows) == len(unfolded)
    assert sum(row.times * row.parameters for row in folded.rows) == sum(row.parameters for row in unfolded)


def test_shapes_and_what_shares():
    rows = {row.path: row for row in summary("gpt2-style@tiny:vocab_size=50", batch_size=3, seq_len=9).rows}
    assert list(rows) == [
        "model", "model.embed_tokens", "model.position", "model.dropout", "model.layers.0-1",
        *(f"model.layers.0-1.{part}" for part in ("self_attn", "self_attn_residual", "mlp", "mlp_residual")),
        "model.norm", "lm_head",
    ]  # fmt: skip
    assert (rows["model.embed_tokens"].input_shape, rows["model.embed_tokens"].output_shape) == ((3, 9), (3, 9, 64))
    assert (rows["lm_head"].output_shape, rows["lm_head"].shared_with) == ((3, 9, 50), "model.embed_tokens")
    assert rows["model.layers.0-1"].times == 2
    faithful = {row.path: row for row in summary("vanilla@tiny+faithful").rows}
    assert faithful["model.decoder.layers.0-1.cross_attn"].shared_with == "model.decoder.layers.0-1.self_attn"


def test_checkpoints_and_the_command(tmp_path):
    model = zoo.build("pre-norm@tiny:max_position_embeddings=20", "causal-lm", vocab_size=30)
    model.save_pretrained(tmp_path)
    assert summary(tmp_path).total == summary(model).total == model.num_parameters()
    shown = json.loads(CliRunner().invoke(cli, ["summary", str(tmp_path), "--json"]).stdout)
    assert shown["rows"][0]["output_shape"] == [1, 20, 64] and shown["rows"][-1]["output_shape"] == [1, 20, 30]
    assert summary("vanilla.language").total == zoo.load("vanilla.language").num_parameters()
    assert CliRunner().invoke(cli, ["summary", "vanilla.language", "--task", "causal-lm"]).exit_code == 2
    for columns in ("80", "120"):
        printed = CliRunner().invoke(cli, ["summary", "marian-style"], env={"COLUMNS": columns}).stdout.splitlines()
        assert max(map(len, printed)) <= int(columns)
        assert any(line.startswith("    layers.0-5") and "6 × " in line for line in printed)
        assert any(line.startswith("      self_attn ") for line in printed)
    assert CliRunner().invoke(cli, ["summary", "marian-stile"]).exit_code == 2


@pytest.mark.parametrize(
    "native",
    [
        GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=50, n_positions=32)),
        GPT2Model(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=50, n_positions=32)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_decoders_of_transformers_have_shapes(native):
    rows = {row.path: row for row in summary(native, batch_size=2, seq_len=9).rows}
    assert rows["transformer" if "transformer" in dict(native.named_children()) else "wte"].output_shape == (2, 9, 16)
