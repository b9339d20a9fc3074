"""The order of training examples."""

import random
from itertools import pairwise

import pytest
import torch

from zoo.training.sampling import LengthGroupedSampler, ShuffledBlocks

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
    assert sorted(order()) == list(range(len(LENGTHS))) and len(LengthGroupedSampler(LENGTHS, 16, 0)) == len(LENGTHS)


def test_little_padding():
    assert padding(order()) < padding(list(range(len(LENGTHS)))) / 10


def test_the_order_depends_on_seed_and_epoch_alone():
    before = order()
    torch.manual_seed(5)
    assert order() == before and order(epoch=1) != before and order(seed=1) != before


@pytest.mark.parametrize("number", [0, 1, 15, 16, 17])
def test_any_number_of_examples(number):
    assert sorted(LengthGroupedSampler(LENGTHS[:number], 16, 0)) == list(range(number))


def shuffled(number, together=8, seed=0, epoch=0):
    sampler = ShuffledBlocks(number, together, seed)
    sampler.set_epoch(epoch)
    drawn = list(sampler)
    assert len(sampler) == len(drawn)
    return drawn


@pytest.mark.parametrize("number", [1, 2, 3, 8, 9, 1000, 4096, 4097, 12345])
def test_shuffled_blocks_are_every_block_once_but_for_the_last_update(number):
    drawn, kept = shuffled(number), number - number % 8 if number >= 8 else number
    assert len(set(drawn)) == len(drawn) == kept and set(drawn) <= set(range(number))


def test_the_order_of_blocks_depends_on_seed_and_epoch_and_is_no_pattern():
    first = shuffled(20_000)
    assert first == shuffled(20_000) == shuffled(20_000, together=16)[:20_000]
    for other in (shuffled(20_000, seed=1), shuffled(20_000, epoch=1)):
        assert sum(a == b for a, b in zip(first, other, strict=True)) < 20
    steps = {b - a for a, b in pairwise(first)}
    assert len(steps) > 10_000
    assert abs(sum(first[:2000]) / 2000 - 10_000) < 600  # 4.5 standard errors
