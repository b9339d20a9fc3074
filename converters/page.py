"""The page of the documentation on converters, of which the tables are what is planned and what was measured."""

from __future__ import annotations

from collections.abc import Iterable

from .converter import CONVERTERS
from .matrix import MatrixRow, obstacles_to_markdown, to_markdown
from .native.base import NATIVE
from .native.target import NativeTarget
from .symmetries.base import SYMMETRIES
from .target import TARGETS, EngineTarget

TEXT = """# Converters

This page is printed by `zoo export --matrix --markdown`, which plans exports of a small model of every variant.

## In

`zoo convert SOURCE -o DIR` makes a model of the zoo. SOURCE is a state_dict (a `.safetensors` file, or one that
`torch.save` wrote, which is read with `weights_only=True`), or a folder or a repository with one of transformers' own
models. Nothing in a file is executed, and nothing outside of a folder is read. What a file does not say is asked for by
name (`--set num_attention_heads=8`); the format is recognised by the keys unless `--from` names it.
A prefix that all keys have is left out, and `--prefix` chooses among keys of which only some have it. In Python,
`zoo.convert` also takes live modules, and `zoo.converters.convert_back` makes the other implementation's state_dict.

{formats}

{natives}

Weights are read file by file and renamed in place. Peak memory stays below the model and 1.3 times its largest shard:
`scripts/bench/conversion_memory.py` measures it.

A model of transformers' own is compared with what was made of it while it is in memory: on one batch of rows without
padding, padded on the right and padded on the left, in float32 at least. Where outputs differ by more than rounding, it
is refused. Classifiers that read the first position (BERT, RoBERTa, XLM) read padding if it stands on the left, the
zoo's the first token: they are compared with what transformers' classes make of that row without its padding.

## Out

`zoo export DIR -o OUT` writes the first class of transformers that expresses a model exactly; `--as` names another
target, and `--plan` lists all of them with the reason why some are not exact. Every export is loaded again (a class of
transformers in a process that cannot import the zoo) and compared with the model on random padded inputs: outputs in
float32 and float64, and the tokens of greedy decoding and of beam search. Where something differs, nothing is left.

| Target | What it is |
|---|---|
{targets}

`zoo generate`, `zoo predict` and `zoo evaluate` run what has an engine, and with `--engine NAME` a checkpoint without
exporting it first; `--engine fastest`, or `zoo.accelerate(model)` in Python, tries them on a batch and takes the
fastest of those that compute the same. CTranslate2 and llama.cpp return no logits here: `zoo evaluate` gets the loss of
them, and what they write.
Extras bring the engines: {extras}; `[nncf]` rounds weights for OpenVINO.

What engines get wrong, or do otherwise unless they are told:

{caveats}
- vLLM 0.32 and SGLang serve folders and bundles without an export, and add nothing to scores. Attention that needs
  more, windows in encoders, classifiers, and attention that needs all of its heads in tensor parallelism would come out
  wrong there, and are refused where the model is built: [what is served](transformers.md#serving).

Weights are rewritten by exact symmetries of the network:

{symmetries}

Those marked * make weights so small or large that 16-bit floats will likely lose them.

## What goes where

Small models with random weights. Numbers were measured (`scripts/bench/exports.py` keeps them in `measured.tsv`): the
largest difference of any output in float32, where outputs are between 1 and 30; CTranslate2's are of log-probabilities,
of 100 inputs. Elsewhere "exact" says that the arithmetic is the engine's, and "tried" that only exporting tells; either
is compared when it is exported.

{matrix}
## What does not, and why

{obstacles}"""


def to_page(rows: Iterable[MatrixRow]) -> str:
    """Write the page."""
    rows = list(rows)
    formats = ", ".join(f"`{name}`" for name in CONVERTERS)
    types = sorted(kind for name in NATIVE for kind in NATIVE.get(name).model_types)
    symmetries = [
        f"- `{name}`{'' if SYMMETRIES.get(name).half_precision else '*'}: {SYMMETRIES.get(name).summary}"
        for name in SYMMETRIES
    ]
    targets = [("a model type, e.g. `marian`", NativeTarget.summary)]
    targets += [(f"`{name}`", TARGETS.get(name).summary) for name in TARGETS]
    extras = sorted({target.extra for name in TARGETS if isinstance(target := TARGETS.get(name), EngineTarget)})
    return TEXT.format(
        formats=f"Formats of state_dicts and modules: {formats}.",
        natives=f"Model types of transformers: {', '.join(types)}.",
        targets="\n".join(f"| {name} | {text} |" for name, text in targets),
        extras=", ".join(f"`[{extra}]`" for extra in extras),
        caveats="\n".join(f"- {caveat}" for name in TARGETS for caveat in TARGETS.get(name).caveats),
        symmetries="\n".join(symmetries),
        matrix=to_markdown(rows),
        obstacles=obstacles_to_markdown(rows),
    )
