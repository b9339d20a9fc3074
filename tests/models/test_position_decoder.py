"""Labels of positions out of one vector: the formula in float64, what it may see, and where it may go."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from models.formulas import WIDTH, affine, close, config, random, randomized

import zoo
from zoo import converters
from zoo.base.errors import ConfigError, ZooError
from zoo.models.classification import PositionDecoder

CLASSIFIER = {"classifier_positions": 4, "classifier_pooling": "last", "num_labels": 3, "vocab_size": 11}


def normed(norm: torch.nn.LayerNorm, vector: list[float]) -> list[float]:
    mean = sum(vector) / len(vector)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in vector) / len(vector) + norm.eps)
    scaled = [(value - mean) / deviation for value in vector]
    return [s * w + b for s, w, b in zip(scaled, norm.weight.tolist(), norm.bias.tolist(), strict=True)]


def test_every_position_is_the_vector_with_its_sinusoid_through_two_layers() -> None:
    decoder, pooled = randomized(PositionDecoder(config(), 5)), random(2, WIDTH)
    expected = torch.zeros(2, 5, WIDTH, dtype=torch.float64)
    for row, vector in enumerate(pooled.tolist()):
        for place in range(5):
            angles = [place / 10000 ** (2 * (column // 2) / WIDTH) for column in range(WIDTH)]
            waves = [math.cos(angle) if column % 2 else math.sin(angle) for column, angle in enumerate(angles)]
            hidden = [value + wave for value, wave in zip(vector, waves, strict=True)]
            for norm, dense in zip(decoder.norms, decoder.dense, strict=True):
                inner = affine(dense, normed(norm, hidden))
                hidden = [0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in inner]
            expected[row, place] = torch.tensor(normed(decoder.norm, hidden), dtype=torch.float64)
    close(decoder(pooled), expected, 1e-6)  # sinusoids are computed in float32


def test_labels_are_those_of_positions_and_come_from_one_vector_alone() -> None:
    model: Any = randomized(zoo.build("llama-style@tiny", "sequence-classification", **CLASSIFIER))
    ids, labels = torch.tensor([[3, 1, 4, 1, 5, 2]]), torch.tensor([[0, 2, 1, 2]])
    output = model(ids, labels=labels)
    assert output.logits.shape == (1, 4, 3)
    chances = output.logits.detach().log_softmax(-1)[0]
    close(output.loss, -sum(float(chances[place, label]) for place, label in enumerate(labels[0])) / 4, 1e-9)
    states = model.model(ids).last_hidden_state
    states[:, :-1] = 0  # what stands before the last token can only be seen through it
    close(output.logits, model.classifier(model.pooler(states[:, -1])), 1e-9)


def test_what_has_no_such_decoder_refuses_it(tmp_path: Path) -> None:
    model = zoo.build("llama-style@tiny", "sequence-classification", **CLASSIFIER)
    with pytest.raises(ZooError, match="its classifier labels 4 positions of one vector"):
        converters.export(model, tmp_path / "native", "llama")
    assert not (tmp_path / "native").exists()
    with pytest.raises(ConfigError, match="classifier_positions=0 was given"):
        zoo.build("llama-style@tiny", "sequence-classification", **{**CLASSIFIER, "classifier_positions": 0})
