"""A page that runs an exported model in a browser, with all files that it needs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import jinja2

from zoo.base.files import read_json
from zoo.base.folders import TARGET_FOLDER, TOKENIZER_FILE
from zoo.models import ZooPreTrainedModel
from zoo.registry import Task

from ..errors import ExportError
from ..native.files import TOKENIZER_CONFIG
from ..weights import longest, task_of

NODE_MODULES = "node_modules"

RUNTIME = "runtime"  # The page's folder of transformers.js

PACKAGES = {  # Files of each package of npm
    "@huggingface/transformers": ("dist/transformers.min.js", "LICENSE"),
    "onnxruntime-web": ("dist/ort-wasm-simd-threaded.asyncify.mjs", "dist/ort-wasm-simd-threaded.asyncify.wasm"),
}

OLDEST, NEXT = (4, 3), (5,)  # Versions of transformers.js that pages are written for: from the first, up to the second


def find_runtime() -> Path:
    """Find transformers.js as Node does: in `node_modules` here or in a parent folder, or in NODE_PATH."""
    here = Path.cwd()
    named = [Path(entry) for entry in os.environ.get("NODE_PATH", "").split(os.pathsep) if entry]
    places = [*(place / NODE_MODULES for place in (here, *here.parents)), *named]
    wanted = "`npm install --ignore-scripts @huggingface/transformers@4.3`"
    for place in places:
        if all((place / package / file).is_file() for package, files in PACKAGES.items() for file in files):
            version = about(place / "@huggingface/transformers")["version"]
            if not OLDEST <= tuple(int(part) for part in version.split("-")[0].split(".")) < NEXT:
                raise ExportError(
                    f"transformers.js {version} is in {place}, and the page is for 4.3: {wanted} brings it"
                )
            return place
    raise ExportError(
        f"a page needs transformers.js, which is in no node_modules here or above, nor in NODE_PATH: {wanted} brings it"
    )


def about(package: Path) -> Any:
    return read_json(package / "package.json")


def write_page(folder: Path, model: ZooPreTrainedModel, runtime: Path) -> None:
    (folder / RUNTIME).mkdir()
    for package, files in PACKAGES.items():
        for file in files:
            shutil.copyfile(runtime / package / file, folder / RUNTIME / Path(file).name)
    packages = [about(runtime / package) for package in PACKAGES]
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    template = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    text = template.get_template("page.html.jinja").render(
        variant=model.config.variant,
        task=task_of(model),
        target=TARGET_FOLDER if (folder / TARGET_FOLDER / TOKENIZER_FILE).is_file() else "",
        limit=longest(model) or "",
        parameters=model.num_parameters(),
        packages=packages,
    )
    (folder / "index.html").write_text(text, encoding="utf-8")
    shutil.copyfile(Path(__file__).with_name("page.js"), folder / "page.js")


def require_texts(folder: Path, task: str) -> None:
    """Refuse a page for a model that cannot be given a text."""
    if not (folder / TOKENIZER_FILE).is_file():
        raise ExportError("a page reads texts, and the model has no tokenizer next to it")
    if task == Task.MASKED_LM and not read_json(folder / TOKENIZER_CONFIG).get("mask_token"):
        raise ExportError("a page for masked-lm reads texts with a mask, and the tokenizer has no mask_token")
