"""torch.compile in training: the graphs that a run takes are counted."""

import pytest
import torch
from accelerate.state import AcceleratorState
from torch import Tensor
from torch._dynamo.utils import counters

import zoo
from zoo.training.arguments import training_arguments
from zoo.training.trainer import ZooTrainer

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
