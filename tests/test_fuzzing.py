"""Files of strangers, changed byte by byte: config.json, the header of model.safetensors, tokenizer.json.

Each loads, or is refused in one line. `fuzz_corpus/` has what crashed or is known to crash readers: of weights whole
files, of the others settings that replace those of a valid file. `scripts/fuzz` looks for more of them.
"""

import json
import os
import shutil
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModel

import zoo
from zoo.base.errors import ZooError
from zoo.base.files import read_json
from zoo.data.tasks import load_tokenizers
from zoo.data.tokenizers.pairs import train_tokenizers
from zoo.hub.folders import check_shards
from zoo.models import ZooConfig
from zoo.models.checkpoint_files import saved_shapes, weight_files

EXAMPLES = os.environ.get("ZOO_FUZZ_EXAMPLES")
FIXTURE = HealthCheck.function_scoped_fixture
CORPUS = Path(__file__).with_name("fuzz_corpus")
WORDS = (b'"', b"[", b"]", b"{", b"}", b",", b":", b"null", b"true", b"NaN", b"-1", b"0", b"1e999", b"\\ud800", b"\xff")


@dataclass(frozen=True)
class Target:
    """A file, and what reads the folder that it is in."""

    file: str
    readers: tuple[Callable[[Path], object], ...]


def load_by_auto_class(folder: Path) -> None:
    """Load a model by transformers, which reads a configuration by itself until it knows it for the zoo's."""
    try:
        config = read_json(folder / "config.json")
    except ValueError:
        return
    if isinstance(config, dict) and config.get("model_type") == ZooConfig.model_type and "auto_map" not in config:
        AutoModel.from_pretrained(folder)


def shapes_in(folder: Path) -> object:
    return saved_shapes(weight_files(folder))


TARGETS = {
    "config": Target("config.json", (zoo.load, load_by_auto_class)),
    "weights": Target("model.safetensors", (zoo.load, load_by_auto_class, shapes_in, check_shards)),
    "tokenizer": Target("tokenizer.json", (load_tokenizers,)),
}


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its tokenizer."""
    folder = tmp_path_factory.mktemp("valid") / "model"
    zoo.build("pre-norm@tiny", vocab_size=40, task="causal-lm", seed=0).save_pretrained(folder)
    train_tokenizers(["the dog ran", "a cat sat"], ["o cão"], kind="bpe", vocab_size=300).save(folder)
    (folder / ".zoo-manifest.json").unlink(missing_ok=True)  # the file is changed, and not damaged
    return folder


def from_corpus(valid: Path, target: Target, file: Path) -> bytes:
    """A file of the corpus as a reader gets it."""
    content = file.read_bytes()
    try:
        changes = json.loads(content) if file.suffix == ".json" else None
    except (ValueError, RecursionError):
        return content
    if not isinstance(changes, dict):
        return content
    return json.dumps({**json.loads((valid / target.file).read_text(encoding="utf-8")), **changes}).encode()


def check(valid: Path, folder: Path, name: str, content: bytes) -> None:
    """Every reader takes a file, or refuses it in one line."""
    target = TARGETS[name]
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(valid, folder)
    (folder / target.file).write_bytes(content)
    for read in target.readers:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(folder)
        except ZooError as error:
            assert "\n" not in str(error) and "\x1b" not in str(error)
        except BaseException:
            if EXAMPLES is not None:  # the last one that hypothesis tries is the smallest
                (CORPUS / name / "found").write_bytes(content)
            raise


CASES = [(name, file) for name in TARGETS for file in sorted((CORPUS / name).iterdir())]


@pytest.mark.parametrize(("name", "file"), CASES, ids=[f"{name}-{file.stem}" for name, file in CASES])
def test_what_crashed_is_refused_or_loads(valid: Path, tmp_path: Path, name: str, file: Path) -> None:
    check(valid, tmp_path / "model", name, from_corpus(valid, TARGETS[name], file))


@st.composite
def changed(draw: st.DrawFn, content: bytes, *, prefixed: bool) -> bytes:
    """Change bytes in some places; of weights the length of the header may be set right again."""
    found = bytearray(content)
    end = min(len(content), 8 + int.from_bytes(content[:8], "little") if prefixed else len(content))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(end, 0)))
        removed = draw(st.sampled_from([0, 0, 1, 2, 8, 64]))
        put = draw(st.sampled_from(WORDS) | st.binary(max_size=8))
        found[start : start + removed] = put * draw(st.sampled_from([1, 1, 1, 3, 200]))
        end += len(found) - len(content)
        end = min(end, len(found))
    if draw(st.integers(0, 9)) == 0:
        del found[draw(st.integers(0, len(found))) :]
    if prefixed and draw(st.booleans()) and len(found) > 8:
        found[:8] = struct.pack("<Q", max(min(end, len(found)) - 8, 0))
    return bytes(found)


@pytest.mark.parametrize(
    ("name", "count"),
    [("weights", 40), *(pytest.param(name, 300, marks=(pytest.mark.nightly, pytest.mark.slow)) for name in TARGETS)],
)
def test_changed_files_are_refused_or_load(valid: Path, tmp_path: Path, name: str, count: int) -> None:
    target = TARGETS[name]
    seeds = [(valid / target.file).read_bytes()]
    seeds += [from_corpus(valid, target, file) for file in sorted((CORPUS / name).iterdir()) if file.name != "found"]

    @settings(max_examples=int(EXAMPLES or count), derandomize=EXAMPLES is None, suppress_health_check=[FIXTURE])
    @given(data=st.data())
    def read_any_change(data: st.DataObject) -> None:
        content = data.draw(st.sampled_from(seeds) | st.just(seeds[0]))
        check(valid, tmp_path / "model", name, data.draw(changed(content, prefixed=name == "weights")))

    read_any_change()
