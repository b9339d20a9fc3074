"""What verbs import: a user waits for it, so nothing that the work does not need."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.cli.importing import without_collecting

NEEDLESS = {
    "ctranslate2",
    "datasets",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "openvino",
    "pandas",
    "pyarrow",
    "sacrebleu",
    "scipy",
    "sklearn",
}
"""Libraries that writing and labelling have no use for."""

OTHERS_WORK = {
    "transformers.pipelines",
    "transformers.trainer",
    "transformers.training_args",
    "zoo.comparison",
    "zoo.converters.native",
    "zoo.converters.onnx",
    "zoo.converters.openvino",
    "zoo.hub.client",
    "zoo.hub.listing",
    "zoo.hub.pulling",
    "zoo.hub.pushing",
    "zoo.inside",
    "zoo.data.tasks",
    "zoo.training.training",
}

RUNS = {
    "generate": ["generate", "vanilla.en-pt", "The water is cold."],
    "predict": ["predict", "vanilla.language", "The water is cold."],
    "build": ["build", "vanilla@tiny", "-o", "built"],
    "params": ["params", "vanilla@tiny"],
}

PROGRAM = f"""
import gc, json, sys
from zoo.cli.main import cli
collections = []
gc.callbacks.append(lambda phase, info: collections.append(len(gc.get_objects())) if phase == "start" else None)
for verb, arguments in {RUNS!r}.items():
    cli.main(arguments, standalone_mode=False)
    print(json.dumps([verb, sorted(sys.modules)]), file=sys.stderr)
import zoo.training.training
print(json.dumps(["training", sorted(sys.modules)]), file=sys.stderr)
print(json.dumps(["looked through", max(collections), gc.get_freeze_count()]), file=sys.stderr)
"""


@pytest.mark.slow
def test_verbs_import_only_what_they_need(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert run.stdout.startswith("A água está fria.\nEnglish\t")
    *verbs, (_, of_training), (_, looked_through, left_alone) = (
        json.loads(line) for line in run.stderr.splitlines() if line.startswith("[")
    )
    loaded = dict(verbs)
    assert loaded.keys() == RUNS.keys()
    for verb, modules in loaded.items():
        assert not (NEEDLESS | OTHERS_WORK) & set(modules), f"zoo {verb}"
    assert not {"IPython", "matplotlib", "onnx", "openvino", "scipy", "sklearn"} & set(of_training)
    assert looked_through < left_alone / 2, "garbage is looked for among what was imported"


def test_garbage_is_left_alone_for_a_while_only() -> None:
    import torch  # noqa: F401 - whoever has imported it may have made what should be collected some day

    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    with pytest.raises(ImportError), without_collecting():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
    assert gc.get_freeze_count() <= frozen


KNOWN = (
    ["list"],
    ["list", "--json"],
    ["settings"],
    ["settings", "position"],
    ["tasks"],
    ["tasks", "--json"],
    ["tokenizers"],
    ["tokenizers", "--json"],
    ["recipes"],
    ["recipes", "translation", "--json"],
    ["weights", "list"],
    ["weights", "list", "--json"],
)
"""Verbs that print what is declared."""

MODULES = 450
"""How many modules they import at most, click's and rich's included."""


def test_what_is_declared_is_printed_without_torch() -> None:
    program = f"""
import sys
from zoo.cli.main import cli
for arguments in {KNOWN!r}:
    cli.main(list(arguments), standalone_mode=False)
print(len(sys.modules), sorted({{"torch", "transformers", "datasets", "numpy"}} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    number, _, heavy = run.stdout.splitlines()[-1].partition(" ")
    assert heavy == "[]" and int(number) <= MODULES
