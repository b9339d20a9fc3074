"""What tests of several engines export."""

from pathlib import Path

import pytest
from native_models import scramble

import zoo
from zoo.data.tokenizers import Tokenizers, train_word

PAIRS = ["the cat sleeps\tle chat dort", "a dog runs\tun chien court", "the dog sleeps\tle chien dort"]


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a translator with a tokenizer for either side; its texts are in `pairs.tsv` beside it."""
    folder = tmp_path_factory.mktemp("translator") / "saved"
    source, target = (train_word([pair.split("\t")[side] for pair in PAIRS], min_frequency=1) for side in (0, 1))
    sizes = dict(vocab_size=len(source), decoder_vocab_size=len(target), hidden_size=16, num_attention_heads=4)
    ids = dict(pad_token_id=target.pad_token_id, bos_token_id=target.bos_token_id, eos_token_id=target.eos_token_id)
    model = zoo.build("vanilla", num_hidden_layers=1, intermediate_size=24, max_position_embeddings=20, **sizes, **ids)
    scramble(model, seed=3).save_pretrained(folder)
    Tokenizers(source, target).save(folder)
    (folder.parent / "pairs.tsv").write_text("".join(f"{pair}\n" for pair in PAIRS))
    return folder
