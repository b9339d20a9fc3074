"""Several processes come to what one comes to, and graphs that a run compiles are counted."""

import shutil
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState
from preloaded import run_ranks
from safetensors.torch import load_file
from torch import Tensor
from torch._dynamo.utils import counters
from training.on_two import UNLOGGED, UNTIED, best, kinds, run

import zoo
from zoo.base.errors import ConfigError
from zoo.training import train
from zoo.training.arguments import training_arguments
from zoo.training.trainer import ZooTrainer

SCRIPT = Path(__file__).with_name("on_two.py")


def forget(folder, step):
    """Leave a run as if it had been interrupted before this step."""
    shutil.rmtree(f"{folder}-checkpoints/checkpoint-{step}")


@pytest.mark.slow
def test_two_processes_come_to_what_one_comes_to(tmp_path):
    """DDP and FSDP2: losses, tokens, outputs, weights; checkpoints of two are resumed on one, and the other way."""
    one = run(tmp_path / "one", 1)
    whole = load_file(tmp_path / "one" / "model.safetensors")
    others = {"sharded": run(tmp_path / "untied", 1, **UNTIED), "kinds": kinds(1), "best": best(1)}
    others["unlogged"] = run(tmp_path / "unlogged", 1, **UNLOGGED)
    forget(tmp_path / "one", 6)
    run_ranks(2, [str(SCRIPT), str(tmp_path)])
    found = torch.load(tmp_path / "found.pt")
    forget(tmp_path / "two", 6)
    found["resumed on one"] = run(tmp_path / "two", 1, resume=True, force=True)
    assert others["best"]["best"] == 1
    for name, other in found.items():
        expected = others.get(name, one)
        assert other["losses"] == pytest.approx(expected["losses"], abs=1e-5), name
        assert other["heldout"] == pytest.approx(expected["heldout"], abs=1e-5), name
        assert (other["outputs"], other["best"]) == (expected["outputs"], expected["best"]), name
    other_weights = load_file(tmp_path / "untied" / "model.safetensors")
    for folder, expected in (("one", whole), ("two", whole), ("sharded", other_weights)):
        weights = load_file(tmp_path / folder / "model.safetensors")
        for key, weight in expected.items():
            if key.endswith("k_proj.bias"):
                continue  # has no effect, so its gradient is rounding, and Adam turns that into whole steps
            # Adam turns the rounding of small gradients into parts of a step.
            torch.testing.assert_close(weights[key], weight, rtol=1e-5, atol=1e-4, msg=f"{folder}: {key}")


def test_shared_embeddings_cannot_be_sharded(few, tiny, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match="tie_word_embeddings=False"):
        train("pre-norm", data=few, **tiny)


VARYING, ALIKE = (7, 9, 12, 5, 8, 20, 11, 6, 13, 15, 10, 17), (9,) * 12


class Rows(list[dict[str, Tensor]]):
    """Sequences, and how long they are."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        super().__init__({"input_ids": torch.arange(length) + 3} for length in lengths)
        self.lengths = lengths


def collate(batch: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in batch], batch_first=True)
    return {"input_ids": ids, "attention_mask": ids.ne(0).long(), "labels": ids.masked_fill(ids == 0, -100)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task", "lengths"),
    [
        ("llama-style@tiny", "causal-lm", VARYING),
        ("llama-style@tiny", "causal-lm", ALIKE),
        pytest.param("bert-style@tiny", "masked-lm", VARYING, marks=pytest.mark.nightly),
        ("vanilla@tiny", "seq2seq-lm", VARYING),
    ],
    ids=["llama-style", "llama-style, one length", "bert-style", "vanilla"],
)
def test_one_graph_serves_batches_of_every_length(tmp_path, name, task, lengths):
    AcceleratorState._reset_state(True)
    torch.compiler.reset()
    counters.clear()
    given = {"max_steps": 6, "per_device_train_batch_size": 2, "torch_compile_backend": "eager", "use_cpu": True}
    args = training_arguments(given, output_dir=tmp_path, seed=0, progress=False)
    model = zoo.build(name, task, vocab_size=60, seed=0)
    ZooTrainer(model=model, args=args, train_dataset=Rows(lengths), data_collator=collate).train()
    assert (counters["stats"]["unique_graphs"], dict(counters["graph_break"])) == (1, {})
