"""Comparisons with made-up numbers, for tests of displays."""

import math
import random
from pathlib import Path
from typing import Any

from zoo.comparison import Comparison, ReloadCheck, Run

SENTENCES = [
    ("The dog sleeps.", "O cachorro dorme."),
    ("I like coffee <hot> & strong.", "Eu gosto de café <quente> & forte."),
    ("She read the book yesterday.", "Ela leu o livro ontem."),
    ("Where is the station?", "Onde fica a estação?"),
    ("We will travel in July.", "Nós vamos viajar em julho."),
    ("It is raining.", "Está chovendo."),
]


def made_up_run(name: str, seed: int, bleu: float, *, width: float = 1.0, position: float = 0.0, **changes: Any) -> Run:
    """A run with a given score; `width` scales what it costs, `position` its speed."""
    luck = random.Random(f"{name} {seed}")
    loss = 4.2 - bleu / 16
    curve: list[dict[str, float]] = []
    for step in range(20, 401, 20):
        at = {"step": step, "tokens": 900.0 * step, "seconds": 0.11 * width * step}
        noise = luck.gauss(0, 0.04)
        value = loss + 4.5 * math.exp(-step / (90 + 4 * width)) + noise
        curve.append({**at, "loss": value, "learning_rate": 5e-4 * min(1, step / 80), "grad_norm": 1.5 + noise})
        if step % 100 == 0:
            curve.append({**at, "heldout_loss": value + 0.15})
    right = [luck.random() < bleu / 60 for _ in SENTENCES]
    words = [target.split() for _, target in SENTENCES]
    outputs = [" ".join(text if good else [*text[:-1], "…"]) for text, good in zip(words, right, strict=True)]
    speed = (8200 + luck.gauss(0, 60)) / width
    report = {
        "num_parameters": round(1_904_616 * width),
        "train_tokens": 360_000,
        "train_seconds": 360_000 / speed,
        "train_tokens_per_second": speed,
        "train_examples": 3200,
        "heldout_examples": len(SENTENCES),
        "steps": 400,
        "epochs": 8.0,
        "peak_memory": round((410 + 60 * width) * 2**20),
        "train_loss": loss + luck.gauss(0, 0.02),
        "heldout_loss": loss + 0.15,
        "scores": {
            "bleu": {"name": "BLEU", "value": bleu, "signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"},
            "chrf": {"name": "chrF", "value": bleu + 18.3, "signature": "nrefs:1|case:mixed|nc:6|nw:0|space:no"},
        },
    }
    gap = 0.0046 * width * (1 + position)
    costs = {
        **{"parameters": report["num_parameters"], "non_embedding_parameters": round(1_517_544 * width)},
        **{"flops_per_token": 1.56e6 * width, "training_flops_per_token": 4.67e6 * width},
        **{"activation_bytes": round(59_617_604 * (0.7 + 0.3 * width)), "activation_tokens": 1280},
        **{"prefill_tokens_per_second": 32_700 / width + luck.gauss(0, 300), "decode_tokens_per_second": 1 / gap},
        **{"decode_latency_p50": gap, "decode_latency_p95": gap * 1.7},
        **{"model_flops_utilization": speed * 4.67e6 * width / 1.32e11, "gemm_flops_per_second": 1.32e11},
        "seconds": 1.4,
    }
    made = {
        **{"name": name, "folder": f"runs/{name}/{seed}", "seed": seed, "hash": f"{luck.getrandbits(64):016x}"},
        **{"report": report, "costs": costs, "curve": curve, "outputs": outputs},
        "reload": ReloadCheck("AutoModelForSeq2SeqLM", 0.0, True, True),
    }
    return Run(**{**made, **changes})


VARIANTS = {
    **{"vanilla": (31.0, 1.0), "pre-norm": (34.6, 1.01), "sandwich-norm": (34.1, 1.04), "t5-style": (33.2, 1.26)},
    **{"universal": (27.4, 0.55), "deepnorm": (31.2, 1.0)},
    **{"pre-norm:position=rotary,num_key_value_heads=2": (35.0, 0.93), "vanilla+faithful": (22.0, 0.9)},
}
"""Mean score and width of each."""


def made_up(
    variants: dict[str, tuple[float, float]] | None = None, *, seeds: int = 3, noise: float = 0.5, **changes: Any
) -> Comparison:
    """A comparison with given mean scores, and luck that all variants share seed by seed."""
    luck = random.Random(0)
    chosen = VARIANTS if variants is None else variants
    lucky = [luck.gauss(0, 1.0) for _ in range(seeds)]
    runs = [
        made_up_run(name, seed, round(mean + lucky[seed] + luck.gauss(0, noise), 4), width=width)
        for name, (mean, width) in chosen.items()
        for seed in range(seeds)
    ]
    made = {
        "task": "translation",
        "names": list(chosen),
        "baseline": next(iter(chosen)),
        "seeds": list(range(seeds)),
        "budget": {"steps": 400},
        "match": "none",
        "sweep": None,
        "main_score": "bleu",
        "recipe": {
            "task": "translation",
            "arguments": {"learning_rate": 5e-4, "max_steps": 400, "per_device_train_batch_size": 64},
            "model": {"hidden_size": 128, "num_hidden_layers": 3},
            "tokenizer": {"kind": "bpe", "vocab_size": 1000},
        },
        "environment": {
            "versions": {"transformer-zoo": "0.1.0", "torch": "2.13.0", "transformers": "5.23.0"},
            "system": {"python": "3.11.2", "platform": "Linux-6.1.0-x86_64"},
            "devices": {"cpu": "Xeon, 2 cores"},
        },
        "command": ["zoo", "compare", *chosen, "--task", "translation", "--seeds", str(seeds), "--budget", "steps=400"],
        "sources": [source for source, _ in SENTENCES],
        "references": [target for _, target in SENTENCES],
        "runs": runs,
        "folder": Path("outputs/compare-translation"),
        "seconds": 612.0,
    }
    return Comparison(**{**made, **changes})
