"""Export a bundle of every variant, and load them where another transformers is and no zoo.

scripts/serving/bundles makes the environments for it and runs it: `export FOLDER` with the zoo, `load FOLDER` in each
of them. Models are small and have random weights. `table` prints what was recorded, as docs/transformers.md has it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).parent / "bundles.json"
CLOSE = 2e-5
"""Largest difference of outputs relative to the largest one, as in the zoo's own comparison of exports."""


def export(folder: Path, variants: list[str]) -> None:
    """Write bundles, a folder for each variant, by default of all, and what the zoo computes."""
    from safetensors.torch import save_file

    import zoo
    from zoo.converters import fresh
    from zoo.converters.matrix import small_model
    from zoo.converters.verification import questions
    from zoo.models import TASK_CLASSES
    from zoo.registry import VARIANTS

    for name in variants or zoo.list_variants():
        task = VARIANTS.get(name).tasks[0]
        model = small_model(name, task).eval()
        zoo.export(model, folder / name, "bundle", fresh_process=False)
        _, inputs, asked = questions(model)
        request = {"class_name": TASK_CLASSES[task][0], "trust_remote_code": True, **asked}
        (folder / name / "request.json").write_text(json.dumps(request))
        save_file(inputs, folder / name / "inputs")
        save_file(fresh.compute(model, request, inputs), folder / name / "expected")
        print(name, flush=True)


def load(folder: Path, record_file: Path) -> int:
    """Load bundles in this environment, and record the results; 1 if one failed."""
    from safetensors.torch import load_file

    sys.path.insert(0, str(ROOT / "converters"))
    fresh: Any = import_module("fresh")

    sys.meta_path.insert(0, fresh.NoZoo())
    models: dict[str, dict[str, Any]] = {}
    for place in sorted(path.parent for path in folder.glob("*/request.json")):
        request = {**json.loads((place / "request.json").read_text()), "folder": str(place)}
        try:
            model = fresh.load(request, "float32")
            found = fresh.compute(model, request, load_file(place / "inputs"))
        except Exception as error:  # whatever transformers or the bundle may raise is the answer
            models[place.name] = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
        else:
            models[place.name] = compared(found, load_file(place / "expected"))
        print(version("transformers"), place.name, models[place.name], flush=True)
    record = json.loads(record_file.read_text()) if record_file.exists() else {}
    record[version("transformers")] = {"torch": version("torch"), "models": models}
    record_file.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    return int(any(is_bad(result) for result in models.values()))


def compared(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Measure the difference of outputs relative to the largest, and whether tokens are the same."""
    outputs = [name for name in expected if name.endswith((".output", ".steps"))]
    tokens = [name for name in expected if name.endswith(".tokens")]
    apart = [
        float((found[name] - expected[name]).abs().max() / expected[name].abs().max().clamp(1)) for name in outputs
    ]
    same = all(found[name].tolist() == expected[name].tolist() for name in tokens) if tokens else None
    return {"largest": max(apart), "same": same}


def is_bad(result: dict[str, Any]) -> bool:
    """Whether a bundle failed, or computed something else."""
    return "error" in result or result["same"] is False or not result["largest"] <= CLOSE


def table() -> str:
    lines = ["| transformers | torch | bundles | outputs | tokens, greedily and with beams |", "|---|---|---|---|---|"]
    failures = []
    for number, found in json.loads(RECORD.read_text()).items():
        models = found["models"]
        largest = max(result["largest"] for result in models.values() if "largest" in result)
        written = [result["same"] for result in models.values() if result.get("same") is not None]
        cells = (
            number,
            found["torch"],
            str(len(models)),
            f"to {largest:.1e}",
            f"{sum(written)} of {len(written)} the same",
        )
        lines.append(f"| {' | '.join(cells)} |")
        failures += [f"- {number}, `{name}`: {result}" for name, result in models.items() if is_bad(result)]
    return "\n".join([*lines, *([""] if failures else []), *failures])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("export", "load", "table"))
    parser.add_argument("folder", nargs="?", type=Path, help="where the bundles are")
    parser.add_argument("variants", nargs="*", help="variants to export, by default all")
    parser.add_argument("--record", type=Path, default=RECORD, help="where results of `load` are added")
    given = parser.parse_args()
    steps: dict[str, Callable[[], Any]] = {
        "export": lambda: export(given.folder, given.variants),
        "load": lambda: load(given.folder, given.record),
        "table": lambda: print(table()),
    }
    sys.exit(steps[given.what]())
