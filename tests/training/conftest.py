import pytest

from zoo.data.tasks import TASKS, Splits

TINY = {
    "settings": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
    **{"generation": {"num_beams": 2, "max_length": 12}, "tokenizer": {"kind": "word", "min_frequency": 1}},
    **{"per_device_train_batch_size": 8, "max_steps": 4, "warmup_steps": 1, "logging_steps": 2, "progress": False},
    "use_cpu": True,
}


@pytest.fixture(scope="session")
def tiny():
    return dict(TINY)


@pytest.fixture(scope="session")
def few():
    splits = TASKS.get("translation").load()
    return Splits(splits.train.select(range(40)), splits.train.select(range(40, 52)))
