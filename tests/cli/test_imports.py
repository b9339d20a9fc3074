"""What verbs import: a user waits for it, so nothing that the work does not need."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

NEEDLESS = {
    *("ctranslate2", "datasets", "matplotlib", "onnx", "onnxruntime", "openvino", "pandas", "pyarrow", "sacrebleu"),
    *("scipy", "sklearn"),
}
"""Libraries that writing and labelling have no use for."""

OTHERS_WORK = {
    *("transformers.pipelines", "transformers.trainer", "transformers.training_args", "zoo.comparison"),
    *("zoo.converters.native", "zoo.converters.onnx", "zoo.converters.openvino", "zoo.hub.client"),
    *("zoo.hub.pulling", "zoo.hub.pushing", "zoo.inside", "zoo.data.tasks", "zoo.training.training"),
}

RUNS = {
    "generate": ["generate", "vanilla.en-pt", "The water is cold."],
    "predict": ["predict", "vanilla.language", "The water is cold."],
    "build": ["build", "vanilla@tiny", "-o", "built"],
    "params": ["params", "vanilla@tiny"],
}

PROGRAM = f"""
import json, sys
from zoo.cli.main import cli
for verb, arguments in {RUNS!r}.items():
    cli.main(arguments, standalone_mode=False)
    print(json.dumps([verb, sorted(sys.modules)]), file=sys.stderr)
import zoo.training.training
print(json.dumps(["training", sorted(sys.modules)]), file=sys.stderr)
"""


@pytest.mark.slow
def test_verbs_import_only_what_they_need(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert run.stdout.startswith("A água está fria.\nEnglish\t")
    *verbs, (_, of_training) = (json.loads(line) for line in run.stderr.splitlines() if line.startswith("["))
    loaded = dict(verbs)
    assert loaded.keys() == RUNS.keys()
    for verb, modules in loaded.items():
        assert not (NEEDLESS | OTHERS_WORK) & set(modules), f"zoo {verb}"
    assert not {"IPython", "matplotlib", "onnx", "openvino", "scipy", "sklearn"} & set(of_training)


KNOWN = (
    *(["list"], ["list", "--json"], ["settings"], ["settings", "position"], ["tasks"], ["tasks", "--json"]),
    *(["tokenizers"], ["tokenizers", "--json"], ["recipes"], ["recipes", "translation", "--json"]),
    *(["weights", "list"], ["weights", "list", "--json"]),
)
"""Verbs that print what is declared."""

RECORDED = (
    *(["claims"], ["claims", "pre-norm", "--json"], ["bench", "list"], ["bench", "show", "encoder"]),
    *(["show", "llama-style", "--no-drawing"], ["show", "vanilla+faithful", "--no-drawing"]),
)
"""Verbs that print what is recorded, with statistics."""

MODULES = 450  # How many modules the first import at most, click's and rich's included


@pytest.mark.parametrize(("verbs", "allowed", "limit"), [(KNOWN, [], MODULES), (RECORDED, ["numpy"], 2 * MODULES)])
def test_declared_and_recorded_facts_are_printed_without_torch(verbs: Sequence[list[str]], allowed, limit: int) -> None:
    program = f"""
import sys
from zoo.cli.main import cli
for arguments in {verbs!r}:
    cli.main(list(arguments), standalone_mode=False)
print(len(sys.modules), sorted({{"torch", "transformers", "datasets", "numpy"}} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    number, _, heavy = run.stdout.splitlines()[-1].partition(" ")
    assert heavy == str(allowed) and int(number) <= limit
