"""A tokenizer for the source and one for the target, which may be the same."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.base.errors import CheckpointError, ConfigError
from zoo.base.files import read_json
from zoo.base.folders import TARGET_FOLDER, TOKENIZER_FILE
from zoo.registry import split_options
from zoo.registry.names import check_options

from .kinds import TOKENIZERS, options_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

GENERAL = ("TokenizersBackend", "PreTrainedTokenizerFast")  # Names of the class that reads any `tokenizer.json`


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of a model.

    Attributes:
        source: For what the model reads.
        target: For what it writes; the same object where the vocabulary is joint.
        made_by: Section `tokenizer` of the recipe: the `kind` and its options, or the `folder` they are from.
    """

    source: PreTrainedTokenizerFast
    target: PreTrainedTokenizerFast
    made_by: Mapping[str, Any] = field(default_factory=lambda: {"kind": "given"}, compare=False)

    @property
    def joint(self) -> bool:
        """Whether source and target share one vocabulary."""
        return self.source is self.target

    def save(self, folder: str | Path, max_length: int | None = None) -> None:
        """Write `tokenizer.json` and what goes with it.

        Args:
            folder: Where to; a target's own tokenizer goes to a folder inside.
            max_length: The model's longest text in tokens, to which `truncation=True` cuts from then on.
        """
        shutil.rmtree(Path(folder) / TARGET_FOLDER, ignore_errors=True)
        for tokenizer, place in ((self.source, ""), (self.target, TARGET_FOLDER))[: 1 if self.joint else 2]:
            written = copy.copy(tokenizer)
            written.model_max_length = min(tokenizer.model_max_length, max_length or tokenizer.model_max_length)
            written.save_pretrained(Path(folder) / place)


def load_tokenizers(folder: str | Path) -> Tokenizers:
    """Load what `Tokenizers.save` wrote, or any folder with a `tokenizer.json`.

    Raises:
        CheckpointError: When it has no tokenizer.
        ConfigError: When it lacks padding or an end.
    """
    place = Path(folder)
    if not (place / TOKENIZER_FILE).is_file():
        raise CheckpointError(f"{place} has no {TOKENIZER_FILE}")
    source = read_tokenizer(place)
    has_target = (place / TARGET_FOLDER / TOKENIZER_FILE).is_file()
    target = read_tokenizer(place / TARGET_FOLDER) if has_target else source
    for tokenizer in (source, target):
        if tokenizer.pad_token_id is None or tokenizer.eos_token_id is None:
            raise ConfigError(f"the tokenizer in {place} has no pad_token or no eos_token; both are needed")
    return Tokenizers(source, target, {"folder": str(place.absolute())})


def read_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    try:
        tokenizer = reader(folder).from_pretrained(folder)
        tokenizer("")  # which some settings that can be read do not survive
    # The library raises plain Exceptions, and BaseExceptions where its Rust code panics.
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        detail = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        raise CheckpointError(f"the tokenizer in {folder} cannot be used: {detail}") from error
    return tokenizer


def reader(folder: Path) -> Any:
    """Choose what reads a tokenizer: `AutoTokenizer`, or, without importing torch, the class that it would choose."""
    with suppress(OSError, ValueError):
        declared = read_json(folder / "tokenizer_config.json")
        plain = isinstance(declared, dict) and declared.get("tokenizer_class") in GENERAL and "auto_map" not in declared
        if plain and not (folder / "config.json").exists():
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast
    from transformers import AutoTokenizer

    return AutoTokenizer


def train_tokenizers(
    source: Iterable[str], target: Iterable[str] | None = None, *, kind: str = "bpe", joint: bool = True, **options: Any
) -> Tokenizers:
    """Train tokenizers on the texts of a task.

    Args:
        source: Texts of the model's input.
        target: Texts of its output, if those differ.
        kind: A name in `TOKENIZERS`: "bpe", "unigram", "word", "character", "d2l-word", "explicando-character";
            possibly with options, which take precedence: "bpe:vocab_size=512".
        joint: Whether source and target share one vocabulary.
        options: Options of the kind: `vocab_size`, `min_frequency`, ...

    Raises:
        UnknownNameError: When the kind is unknown, or it has no such option.
        NameSyntaxError: When the kind cannot be read.
    """
    kind, in_name = split_options(kind, "tokenizer")
    joint, options = in_name.pop("joint", joint), {**options, **in_name}
    train = TOKENIZERS.get(kind)
    check_options(options, options_of(train), f"tokenizer {kind!r}")
    check_options({"joint": joint}, {"joint": True}, f"tokenizer {kind!r}")
    made_by = {"kind": kind, "joint": joint, **options}
    if target is None or joint:
        both = train(chain(source, target or ()), **options)
        return Tokenizers(both, both, made_by)
    return Tokenizers(train(source, **options), train(target, **options), made_by)
