"""Settings of the plain models: a configuration with nested settings flattened."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias


class Config(SimpleNamespace):
    """Settings by name; an ejected file has a dataclass of the numbers instead."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def of_decoder(self) -> Config:
        """Settings of an encoder-decoder's decoder, which may have other sizes."""
        return Config(**{**vars(self), **self.decoder_changes})


class NoPlainForm(NotImplementedError):
    """Raised for a setting without a plain form; `zoo.eject` then refuses the model."""


Model: TypeAlias = Any
"""The class of the model in an ejected file."""
