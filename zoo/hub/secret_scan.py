"""Secrets in files that are to be pushed: the token in use, and patterns that detect-secrets knows."""

from __future__ import annotations

import logging
import mmap
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from zoo.base.errors import enumerate_names

from .errors import SecretError
from .folders import PushedFile

HUB_TOKEN = re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}")
NOISY = ("Base64 High Entropy String", "Hex High Entropy String", "Public IP (ipv4)")
"""Detectors that take hashes, vocabularies and versions for secrets."""

KEYWORDS, LONGEST_WITH_KEYWORDS = "Secret Keyword", 1 << 20
"""The slow detector of settings such as `api_key`, and the largest file in bytes that it searches: no vocabulary."""

BINARY = (".safetensors", ".onnx", ".onnx_data", ".data", ".gguf", ".bin", ".png", ".model", ".spm")
"""Endings of files that are searched for the token alone."""


def refuse_secrets(files: Iterable[PushedFile], token: str | None) -> None:
    """Refuse to push files with secrets in them."""
    found = [f"{file.path} ({kind})" for file in files for kind in sorted(set(_secrets(file, token)))]
    if found:
        raise SecretError(
            f"secrets would be pushed: {enumerate_names(found)}; nothing was pushed: remove them, or push them with "
            "allow_secrets=True (--allow-secrets) if they are none"
        )


def _secrets(file: PushedFile, token: str | None) -> Iterator[str]:
    if token and _holds(file, token.encode()):
        yield "the access token in use"
    if PurePosixPath(file.path).suffix in BINARY:
        return
    content = file.content if isinstance(file.content, bytes) else file.content.read_bytes()
    yield from known_patterns(content.decode(errors="replace"))


def _holds(file: PushedFile, token: bytes) -> bool:
    if isinstance(file.content, bytes):
        return token in file.content
    if not file.size:
        return False
    with file.content.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(token) >= 0


def known_patterns(text: str) -> Iterator[str]:
    """Find secrets by how they look."""
    shown_by = warnings.showwarning
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import transient_settings

    if warnings.showwarning is not shown_by:  # its import sends the warnings of the whole process to logging
        logging.captureWarnings(False)
    if HUB_TOKEN.search(text):
        yield "Hugging Face token"
    left_out = NOISY if len(text) <= LONGEST_WITH_KEYWORDS else (*NOISY, KEYWORDS)
    kinds: dict[str, type] = get_mapping_from_secret_type_to_class()
    detectors = [{"name": detector.__name__} for kind, detector in kinds.items() if kind not in left_out]
    with transient_settings({"plugins_used": detectors}):
        yield from (secret.type for secret in scan_line(text))
