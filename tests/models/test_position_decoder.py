"""Labels of positions out of one vector: what it may see, and where it may go."""

from pathlib import Path
from typing import Any

import pytest
import torch
from models.formulas import close, randomized

import zoo
from zoo import converters
from zoo.base.errors import ZooError

CLASSIFIER = {"classifier_positions": 4, "classifier_pooling": "last", "num_labels": 3, "vocab_size": 11}


def test_labels_are_those_of_positions_and_come_from_one_vector_alone() -> None:
    model: Any = randomized(zoo.build("llama-style@tiny", "sequence-classification", **CLASSIFIER))
    ids, labels = torch.tensor([[3, 1, 4, 1, 5, 2]]), torch.tensor([[0, 2, 1, 2]])
    output = model(ids, labels=labels)
    assert output.logits.shape == (1, 4, 3)
    chances = output.logits.detach().log_softmax(-1)[0]
    close(output.loss, -sum(float(chances[place, label]) for place, label in enumerate(labels[0])) / 4, 1e-9)
    states = model.model(ids).last_hidden_state
    states[:, :-1] = 0  # tokens before the last one can only be seen through it
    close(output.logits, model.classifier(model.pooler(states[:, -1])), 1e-9)


def test_what_has_no_such_decoder_refuses_it(tmp_path: Path) -> None:
    model = zoo.build("llama-style@tiny", "sequence-classification", **CLASSIFIER)
    with pytest.raises(ZooError, match="its classifier labels 4 positions of one vector"):
        converters.export(model, tmp_path / "native", "llama")
    assert not (tmp_path / "native").exists()
