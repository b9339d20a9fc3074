"""The order of training examples."""

from __future__ import annotations

import random

import pytest
import torch

from zoo.training.sampling import LengthGroupedSampler

RANDOM = random.Random(0)
LENGTHS = [RANDOM.randint(3, 30) for _ in range(1003)]


def order(seed=0, epoch=0, batch_size=16):
    sampler = LengthGroupedSampler(LENGTHS, batch_size, seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def padding(indices, batch_size=16):
    batches = [[LENGTHS[i] for i in indices[k : k + batch_size]] for k in range(0, len(indices), batch_size)]
    return sum(max(batch) * len(batch) - sum(batch) for batch in batches)


def test_every_example_once():
    assert sorted(order()) == list(range(len(LENGTHS)))
    assert len(LengthGroupedSampler(LENGTHS, 16, 0)) == len(LENGTHS)


def test_little_padding():
    assert padding(order()) < padding(list(range(len(LENGTHS)))) / 10


def test_the_order_depends_on_seed_and_epoch_alone():
    before = order()
    torch.manual_seed(5)
    assert order() == before
    assert order(epoch=1) != before
    assert order(seed=1) != before


@pytest.mark.parametrize("number", [0, 1, 15, 16, 17])
def test_any_number_of_examples(number):
    assert sorted(LengthGroupedSampler(LENGTHS[:number], 16, 0)) == list(range(number))
