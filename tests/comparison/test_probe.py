"""A model is asked where the process that loads it asks, and for no more than it has positions for."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from comparison.in_process import TINY

import zoo
from zoo.comparison.run import worker
from zoo.comparison.run.reload import LONGEST_TEXT, Probe
from zoo.data.tasks import TOKENIZERS


@pytest.mark.parametrize("positions", [8, 2 * LONGEST_TEXT])
def test_no_more_is_written_than_there_are_positions(positions: int) -> None:
    tokenizer: Any = TOKENIZERS.get("word")(["a b c", "a b c"])
    model = zoo.build("pre-norm", "seq2seq-lm", vocab_size=9, max_position_embeddings=positions, seed=0, **TINY)
    model.generation_config.eos_token_id = None
    answers = Probe((), ("a b", "c"), ("b c", "a")).ask(model, tokenizer, tokenizer)
    assert answers["outputs"].shape == (2, min(positions, LONGEST_TEXT))
    # Tasks with spans of the texts for labels have no references.
    assert Probe((), ("a b", "c")).ask(model, tokenizer, tokenizer)["logits"].shape[0] == 2


def test_a_model_on_a_gpu_is_asked_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the precision of a GPU's products, no model would be equal after loading."""
    places = ["cuda:0"]

    class Model:
        device = property(lambda self: places[-1])

        def to(self, place: str) -> "Model":
            places.append(place)
            return self

    asked = []
    monkeypatch.setattr(Probe, "ask", lambda self, model, source, target: asked.append(model.device) or {})
    task = SimpleNamespace(samples=lambda *given: ["a"], references=lambda *given: ["b"], model_task="causal-lm")
    splits: Any = SimpleNamespace(heldout=None)
    splits.heldout = type("Few", (list,), {"select": lambda self, places: self})(["a"])
    result: Any = SimpleNamespace(model=Model(), tokenizers=SimpleNamespace(source=None, target=None))
    job: Any = SimpleNamespace(modules=(), fast_paths={}, folder=str(tmp_path))
    worker.ask(job, task, splits, result)  # type: ignore[arg-type]
    assert asked == ["cpu"] and places[-1] == "cuda:0"
