"""Tools that take models of the zoo as transformers' models, each run once in its installed version, in one table.

    scripts/upstream/tools                                  # in its own environment, with the newest versions
    python scripts/upstream/tools.py [TOOL ...]             # in this one; what is not installed keeps its recorded row
    python scripts/upstream/tools.py --table                # prints what is recorded

It writes tools.json and the table in docs/transformers.md. Models are weights that ship with the zoo, or tiny ones.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, set_seed

import zoo
from zoo.base.files import replace_part, write_file
from zoo.base.printed import table_in_markdown
from zoo.building.weights import locate
from zoo.data.tasks import find_task

RECORD = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[2] / "docs" / "transformers.md"
COMMAND = "python scripts/upstream/tools.py"
LIBRARIES = ("transformers", "torch")
WRITER, CLASSIFIER, ENCODER = "gpt2-style.char-en", "nlpt-encoder.language", "nlpt-encoder.mlm-en"
TEXTS = ("The water is cold.", "She read the book yesterday.", "Good morning.", "Where is the bathroom?")
LANGUAGES = ("English", "Portuguese")
LABELLED = tuple(
    {"text": text, "label": label}
    for label, texts in enumerate(
        (TEXTS, ("A água está fria.", "Ela leu o livro ontem.", "Bom dia.", "Onde é o banheiro?"))
    )
    for text in texts
)
STEPS = 20


def peft() -> tuple[str, str]:
    """LoRA on all linear layers of every variant: the merged model computes what the adapted one does."""
    from peft import LoraConfig, get_peft_model

    names, largest = zoo.list_variants(), 0.0
    for name in names:
        set_seed(0)
        model = zoo.build(f"{name}@tiny", vocab_size=32, seed=0)
        adapted = get_peft_model(model, LoraConfig(target_modules="all-linear", r=4, init_lora_weights=False)).eval()
        inputs = {"input_ids": torch.arange(4, 16).reshape(2, 6)}
        if model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = inputs["input_ids"]
        with torch.no_grad():
            before = adapted(**inputs)[0]
            after = adapted.merge_and_unload()(**inputs)[0]
        largest = max(largest, ((before - after).norm() / before.norm()).item())
    assert largest < 1e-4
    return (
        f"LoRA on all linear layers of {len(names)} variants, merged",
        f"largest change of outputs, by norm: {largest:.1g}",
    )


def trl() -> tuple[str, str]:
    """Four trainers of TRL, by the model's folder."""
    import trl
    from datasets import Dataset

    rows: dict[str, dict[str, Any]] = {
        "SFT": {"text": "the cat sat"},
        "DPO": {"prompt": "the cat ", "chosen": "sat", "rejected": "ran"},
        "GRPO": {"prompt": "the cat"},
        "KTO": {"prompt": "the cat ", "completion": "sat", "label": True},
    }
    losses = []
    for method, row in rows.items():
        options: dict[str, Any] = {}
        settings: dict[str, Any] = {"max_steps": 2, "per_device_train_batch_size": 2, "report_to": [], "use_cpu": True}
        settings |= {"bf16": False, "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1}
        if method == "SFT":
            settings |= {"max_steps": STEPS, "learning_rate": 1e-3}
        if method == "GRPO":
            options["reward_funcs"] = lambda completions, **kwargs: [float(len(text)) for text in completions]
            settings |= {"num_generations": 2, "max_completion_length": 3}
        with tempfile.TemporaryDirectory() as folder:
            arguments = getattr(trl, f"{method}Config")(output_dir=folder, **settings)
            data = Dataset.from_list([row] * 8)
            trainer = getattr(trl, f"{method}Trainer")(
                model=str(locate(WRITER)), args=arguments, train_dataset=data, **options
            )
            assert isinstance(trainer.model, zoo.models.ZooForCausalLM)
            assert trainer.train().global_step == settings["max_steps"]
        losses += [entry["loss"] for entry in trainer.state.log_history if "loss" in entry] if method == "SFT" else []
    assert losses[-1] < losses[0]
    return f"{', '.join(rows)} of `{WRITER}`", f"SFT's loss in {STEPS} steps: {losses[0]:.3f} to {losses[-1]:.3f}"


def lm_eval() -> tuple[str, str]:
    """Log-likelihoods by the harness against those of the logits."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    folder = locate(WRITER)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), zoo.load(folder).eval()
    pairs = [(text[:8], text[8:]) for text in TEXTS]
    requests = [Instance("loglikelihood", {}, pair, place) for place, pair in enumerate(pairs)]
    harness = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=2)
    found = [one for one, _ in harness.loglikelihood(requests)]
    largest = 0.0
    for (context, continuation), one in zip(pairs, found, strict=True):
        ids = tokenizer(context + continuation, return_tensors="pt").input_ids
        begin = tokenizer(context, return_tensors="pt").input_ids.shape[1]
        with torch.no_grad():
            scores = model(ids).logits[0, begin - 1 : -1].log_softmax(-1).gather(1, ids[0, begin:, None])
        largest = max(largest, abs(scores.sum().item() - one))
    assert largest < 1e-3
    return (
        f"log-likelihoods of {len(pairs)} continuations by `{WRITER}`",
        f"largest difference from the logits': {largest:.1g}",
    )


def sentence_transformers() -> tuple[str, str]:
    """Mean embeddings against those of the hidden states, before and after saving."""
    from sentence_transformers import SentenceTransformer

    body = sentence_body()
    found = torch.as_tensor(body.encode(list(TEXTS)))
    folder = locate(ENCODER)
    batch = AutoTokenizer.from_pretrained(folder)(list(TEXTS), padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    expected = (states * mask).sum(1) / mask.sum(1)
    with tempfile.TemporaryDirectory() as saved:
        body.save(saved)
        again = torch.as_tensor(SentenceTransformer(saved, device="cpu").encode(list(TEXTS)))
    largest = (found - expected).abs().max().item()
    assert largest < 1e-5 and torch.equal(found, again)
    return (
        f"embeddings of {len(TEXTS)} texts by `{ENCODER}`",
        f"largest difference from means of hidden states: {largest:.1g}; after saving the same",
    )


def sentence_body() -> Any:
    """An encoder with mean pooling."""
    import sentence_transformers
    from sentence_transformers import SentenceTransformer, models

    assert sentence_transformers
    words = models.Transformer(str(locate(ENCODER)))
    return SentenceTransformer(modules=[words, models.Pooling(words.get_embedding_dimension(), "mean")], device="cpu")


def setfit() -> tuple[str, str]:
    """A classifier from eight sentences."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments
    from sklearn.linear_model import LogisticRegression

    set_seed(0)
    model = SetFitModel(model_body=sentence_body(), model_head=LogisticRegression())
    data = Dataset.from_list(list(LABELLED))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=STEPS, batch_size=4, report_to="none", save_strategy="no"
        )
        Trainer(model=model, args=arguments, train_dataset=data).train()
    heldout = find_task("text-classification").load("languages").heldout
    found = model.predict(list(heldout["text"]))
    right = sum(LANGUAGES[int(one)] == label for one, label in zip(found, heldout["label"], strict=True))
    assert right > 0.9 * len(heldout)
    return (
        f"a classifier of languages from {len(LABELLED)} sentences, `{ENCODER}`, {STEPS} steps",
        f"{right} of {len(heldout)} held-out sentences right",
    )


def lightning() -> tuple[str, str]:
    """The same weights from Lightning's Trainer as from a loop."""
    import lightning

    def model() -> nn.Module:
        return zoo.build(
            "gpt2-style@tiny", "causal-lm", vocab_size=32, dropout=0.0, attention_dropout=0.0, seed=0
        ).train()

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model()

        def training_step(self, batch: Tensor, index: int) -> Tensor:
            loss: Tensor = self.model(input_ids=batch, labels=batch).loss
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    rows = torch.randint(32, (4 * STEPS, 12), generator=torch.Generator().manual_seed(0))
    module, plain = Module(), model()
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", default_root_dir=folder, **options)
        trainer.fit(module, DataLoader(rows, batch_size=4))  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3)
    for batch in rows.split(4):
        plain(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    pairs = zip(module.model.parameters(), plain.parameters(), strict=True)
    largest = max((one - other).abs().max().item() for one, other in pairs)
    assert largest < 1e-6
    return f"`gpt2-style@tiny`, {STEPS} steps", f"largest difference of weights from a plain loop's: {largest:.1g}"


def captum() -> tuple[str, str]:
    """Integrated gradients of a classifier add up to what its output changes by."""
    from captum.attr import LayerIntegratedGradients

    folder = locate(CLASSIFIER)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    ids = tokenizer(TEXTS[0], return_tensors="pt").input_ids
    method = LayerIntegratedGradients(lambda given: model(given).logits, model.get_input_embeddings())
    attributed, delta = method.attribute(
        ids,
        baselines=torch.full_like(ids, tokenizer.unk_token_id or 0),
        target=0,
        n_steps=50,
        return_convergence_delta=True,
    )
    assert attributed.shape[:2] == ids.shape and abs(delta.item()) < 0.05
    return (
        f"integrated gradients of `{CLASSIFIER}`, 50 steps",
        f"sum {attributed.sum().item():.4g}, change of the output less that: {abs(delta.item()):.1g}",
    )


TOOLS: dict[str, Callable[[], tuple[str, str]]] = {
    "peft": peft,
    "trl": trl,
    "lm_eval": lm_eval,
    "sentence-transformers": sentence_transformers,
    "setfit": setfit,
    "lightning": lightning,
    "captum": captum,
}
"""How each is tried, by the name of its distribution."""


def run(name: str) -> dict[str, Any]:
    """Try one tool; a row of the record, of a failure, too."""
    began = time.perf_counter()
    try:
        what, result = TOOLS[name]()
    except Exception as error:
        what, result = (
            (TOOLS[name].__doc__ or "").rstrip("."),
            f"**fails**: {type(error).__name__}: {error}".splitlines()[0],
        )
    versions = {one: version(one) for one in (name, *LIBRARIES)}
    return {
        "versions": versions,
        "what": what,
        "result": result,
        "seconds": round(time.perf_counter() - began),
        "date": str(date.today()),
    }


def table() -> str:
    """Write the table of docs/transformers.md from what is recorded."""
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    rows = []
    for name, row in recorded.items():
        libraries = ", ".join(f"{one} {row['versions'][one]}" for one in LIBRARIES)
        rows.append((f"{name} {row['versions'][name]}", row["what"], row["result"], libraries))
    return table_in_markdown(("tool", "run", "result", "with"), rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"one of {', '.join(TOOLS)}; by default all")
    parser.add_argument("--table", action="store_true", help="print what is recorded, and run nothing")
    arguments = parser.parse_args()
    if unknown := set(arguments.tools) - TOOLS.keys():
        parser.error(f"unknown tools: {', '.join(sorted(unknown))}")
    if not arguments.table:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        recorded = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
        for name in arguments.tools or TOOLS:
            try:
                version(name)
            except PackageNotFoundError:
                print(f"{name} is not installed")
                continue
            recorded[name] = run(name)
            print(f"{name}: {recorded[name]['result']}", flush=True)
            kept = {one: recorded[one] for one in TOOLS if one in recorded}
            write_file(RECORD, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        write_file(PAGE, replace_part(PAGE.read_text(encoding="utf-8"), COMMAND, table()))
    print(table(), end="")


if __name__ == "__main__":
    main()
