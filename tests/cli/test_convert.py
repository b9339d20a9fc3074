"""`zoo convert`: thin over zoo.convert, and nothing half-written."""

import json

import pytest
import torch
from oracles import vanilla

from zoo import load

HINTS = ("--set", "num_attention_heads=3", "--set", "pad_token_id=1", "--set", "decoder_pad_token_id=2")


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "model.pt"
    torch.save(vanilla.random_state_dict(dtype=torch.float32), path)
    return path


def test_a_checkpoint_becomes_a_folder(zoo, checkpoint, tmp_path):
    out = tmp_path / "out"
    result = zoo("convert", str(checkpoint), "--from", "vanilla", "-o", str(out), "--keep-dead", "--json", *HINTS)
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout[result.stdout.index("{") :])
    assert made["variant"] == "vanilla" and "cross-attention-reuses-self" in made["quirks"]
    weights, src, trg = torch.load(checkpoint), *vanilla.random_inputs()
    expected = vanilla.transformer(weights, src, trg, n_heads=3, src_pad_idx=1, trg_pad_idx=2)
    assert torch.allclose(load(out)(input_ids=src, decoder_input_ids=trg).logits, expected, atol=1e-5)


def test_quirks_can_be_left_out(zoo, checkpoint, tmp_path):
    both = ["dropout-on-the-skip", "max-pools-padding"]
    for text, quirks in (("", []), ("max-pools-padding, dropout_on_the_skip", both)):
        out = tmp_path / f"out{len(quirks)}"
        assert zoo("convert", str(checkpoint), "-o", str(out), "--quirks", text, *HINTS).exit_code == 0
        assert load(out).config.quirks == quirks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "num_attention_heads"),
        (("--from", "vanila", *HINTS), "did you mean 'vanilla'"),
        (("--quirks", "nope", *HINTS), "unknown quirk"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(zoo, checkpoint, tmp_path, arguments, message):
    result = zoo("convert", str(checkpoint), "-o", str(tmp_path / "out"), *arguments)
    assert result.exit_code == 2 and message in result.output and "Traceback" not in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_keys_below_a_prefix_are_converted(zoo, tmp_path):
    body = torch.nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    weights = {f"transformer.{key}": value for key, value in body.state_dict().items()}
    torch.save({**weights, "generator.weight": torch.zeros(5, 16)}, tmp_path / "model.pt")
    given = ("--set", "num_attention_heads=2", "--set", "norm_placement=post", "--set", "hidden_act=relu")
    command = ("convert", str(tmp_path / "model.pt"), "-o", str(tmp_path / "out"), *given)
    refused = zoo(*command)
    assert refused.exit_code == 2 and "--from torch-nn --prefix transformer." in refused.stderr
    assert zoo(*command, "--from", "torch-nn", "--prefix", "transformer.").exit_code == 0
    assert load(tmp_path / "out").config.hidden_size == 16
