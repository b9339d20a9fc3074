"""The tokenizer in a GGUF file: llama.cpp has code for a few kinds, and no other can be described to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from transformers import AutoTokenizer

from zoo.base.errors import CheckpointError
from zoo.base.files import read_json
from zoo.base.folders import TOKENIZER_FILE
from zoo.models import ZooConfig

from ..errors import ExportError
from ..verification import ends_of

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5  # llama.cpp's types of tokens

GPT2, LLAMA3 = "gpt-2", "llama-bpe"

LLAMA3_PIECES = (  # The regular expression by which Llama 3 cuts texts before BPE
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)

UNHEARD_OF = ("dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix")
"""Settings of a BPE that llama.cpp's has not."""

ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
"""The file's names for ids that end a text: llama.cpp stops at any of them."""

KINDS = "byte-level BPE as GPT-2's or Llama 3's, and Unigram with Metaspace"

Entries = dict[str, Any]
"""Entries of the file about a tokenizer, by what follows `add_` in the names of GGUFWriter's methods."""


def read_tokenizer(folder: Path | None, config: ZooConfig) -> Entries:
    """Entries for as many tokens as a model's embedding has, or more."""
    if folder is None or not (folder / TOKENIZER_FILE).is_file():
        return numbered(config)
    try:
        saved = read_json(folder / TOKENIZER_FILE)
        kind = saved["model"].get("type")
        reader = READERS.get(kind)
        problems = [f"a {kind} model"] if reader is None else []
        if saved.get("normalizer") is not None:
            problems.append(f"the normalizer {saved['normalizer']['type']}")
        if reader is None or problems:
            refuse(problems)
        entries = reader(saved, special_ids(config), config.vocab_size)
        template = AutoTokenizer.from_pretrained(folder).chat_template  # several by name, or none
        if isinstance(template, dict):
            template = [{"name": name, "template": text} for name, text in template.items()]
        return {**entries, **({"chat_template": template} if template else {})}
    except ExportError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise CheckpointError(f"{folder / TOKENIZER_FILE} cannot be read: {error!r}") from error


def refuse(problems: list[str]) -> NoReturn:
    raise ExportError(f"llama.cpp cannot hold this tokenizer: it has {' and '.join(problems)}; valid: {KINDS}")


def read_bpe(saved: Mapping[str, Any], specials: Mapping[str, int], vocab_size: int) -> Entries:
    model = saved["model"]
    problems = [f"{name}={model[name]!r}" for name in UNHEARD_OF if model.get(name)]
    name = pre_tokenizer(saved.get("pre_tokenizer") or {})
    if name is None:
        problems.append(f"the pre-tokenizer {(saved.get('pre_tokenizer') or {}).get('type')} with other rules")
    if bool(model.get("ignore_merges")) != (name == LLAMA3):
        problems.append(f"ignore_merges={model.get('ignore_merges')!r}")
    if problems:
        refuse(problems)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    fields = {"tokenizer_model": "gpt2", "tokenizer_pre": name, "token_merges": merges}
    return described(saved, model["vocab"], fields, specials, vocab_size)


def read_unigram(saved: Mapping[str, Any], specials: Mapping[str, int], vocab_size: int) -> Entries:
    model, spaces = saved["model"], saved.get("pre_tokenizer") or {}
    problems = ["byte_fallback"] if model.get("byte_fallback") else []
    if spaces.get("type") != "Metaspace" or spaces.get("replacement") != "\N{LOWER ONE EIGHTH BLOCK}":
        problems.append(f"the pre-tokenizer {spaces.get('type')}")
    if spaces.get("prepend_scheme") == "first":  # llama.cpp marks the text after every special token
        problems.append("prepend_scheme='first'")
    if problems:
        refuse(problems)
    pieces = {piece: number for number, (piece, _) in enumerate(model["vocab"])}
    fields = {
        "tokenizer_model": "t5",
        "tokenizer_pre": "default",
        "token_scores": [score for _, score in model["vocab"]],
        "add_space_prefix": spaces.get("prepend_scheme", "always") != "never",
        "remove_extra_whitespaces": False,
    }
    return described(saved, pieces, fields, {**specials, "unk_token_id": model["unk_id"]}, vocab_size)


READERS: Mapping[str, Callable[..., Entries]] = {"BPE": read_bpe, "Unigram": read_unigram}


def pre_tokenizer(saved: Mapping[str, Any]) -> str | None:
    """Name the rules by which texts are cut, as llama.cpp does."""
    steps = saved.get("pretokenizers", [saved])
    *cuts, last = steps
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        return None
    if not cuts:
        return GPT2 if last.get("use_regex", True) else None
    expression = cuts[0].get("pattern", {}).get("Regex", "")
    return LLAMA3 if [expression] == [LLAMA3_PIECES] * len(cuts) and not last.get("use_regex", True) else None


def described(
    saved: Mapping[str, Any], vocabulary: Mapping[str, int], fields: Entries, specials: Mapping[str, int], least: int
) -> Entries:
    """Put tokens, as many as a model has at least, and special tokens together."""
    added = {token["id"]: token for token in saved.get("added_tokens", [])}
    for token in added.values():
        if loose := [word for word in ("lstrip", "rstrip", "single_word") if token.get(word)]:
            refuse([f"the token {token['content']!r} with {loose[0]}=True"])
    named = {number: token for token, number in vocabulary.items()}
    named |= {number: token["content"] for number, token in added.items()}
    size = max(max(named) + 1, least)
    tokens = [named.get(number, f"[PAD{number}]") for number in range(size)]

    def kind(number: int) -> int:
        if number in added:
            return CONTROL if added[number].get("special") else USER_DEFINED
        return NORMAL if number in named else UNUSED

    types = [kind(number) for number in range(size)]
    if fields["tokenizer_model"] == "t5":
        types[specials["unk_token_id"]] = UNKNOWN
        fields["token_scores"] = [*fields["token_scores"], *(0.0 for _ in range(size - len(fields["token_scores"])))]
    framed = {"add_bos_token": begins_with(saved.get("post_processor"), specials.get("bos_token_id"))}
    # A prompt is to be continued, so an end that the tokenizer puts after texts is left out, as `zoo generate` does.
    return {"token_list": tokens, "token_types": types, **fields, **specials, **framed, "add_eos_token": False}


def begins_with(processor: Mapping[str, Any] | None, start: int | None) -> bool:
    before: list[int] = []
    for step in (processor or {}).get("processors", [processor] if processor else []):
        if step["type"] == "TemplateProcessing":
            single = [next(iter(piece.items())) for piece in step["single"]]
            text = next(place for place, (kind, _) in enumerate(single) if kind == "Sequence")
            ids = step["special_tokens"]
            before += [number for _, special in single[:text] for number in ids[special["id"]]["ids"]]
        elif step["type"] != "ByteLevel":
            refuse([f"the post-processor {step['type']}"])
    if before and before != [start]:
        refuse([f"the ids {before} before a text"])
    return bool(before)


def special_ids(config: ZooConfig) -> dict[str, int]:
    """The special ids of a model, by what follows `add_` in the names of GGUFWriter's methods."""
    given = {"bos_token_id": config.bos_token_id, "pad_token_id": config.pad_token_id}
    if len(ends := ends_of(config)) > len(ENDS):
        raise ExportError(f"eos_token_id={ends}, llama.cpp has {len(ENDS)} ends at most")
    given |= dict(zip(ENDS, ends, strict=False))
    return {name: number for name, number in given.items() if number is not None}


def numbered(config: ZooConfig) -> Entries:
    """Name tokens by their numbers, for a model without a tokenizer, with ids as prompts."""
    tokens = [f"<{number}>" for number in range(config.vocab_size)]
    fields = {"tokenizer_model": "gpt2", "tokenizer_pre": GPT2, "token_merges": ["< 0"], "add_bos_token": False}
    return {"token_list": tokens, "token_types": [NORMAL] * len(tokens), **fields, **special_ids(config)}
