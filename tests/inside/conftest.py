import pytest

import zoo
from zoo.data.tasks import TASKS, Tokenizers, train_tokenizers
from zoo.training import save_checkpoint

TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}


@pytest.fixture(scope="session")
def tokenizers():
    task = TASKS.get("translation")
    examples = task.load().heldout
    return train_tokenizers(task.sources(examples), task.references(examples), kind="word", joint=False)


@pytest.fixture(scope="session")
def translator(tokenizers, tmp_path_factory):
    """A checkpoint as document 003 builds it, with two layers of four heads."""
    folder = tmp_path_factory.mktemp("checkpoints") / "translator"
    settings = TASKS.get("translation").model_settings(tokenizers)
    save_checkpoint(zoo.build("d2l-style", "seq2seq-lm", seed=3, **TINY, **settings), tokenizers, folder)
    return folder


@pytest.fixture(scope="session")
def writer(tokenizers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "writer"
    model = zoo.build("gpt2-style", "causal-lm", seed=1, vocab_size=len(tokenizers.source), **TINY)
    save_checkpoint(model, Tokenizers(tokenizers.source, tokenizers.source), folder)
    return folder
