"""Settings of the plain models: those of a configuration, with nested ones laid out flat."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any


class Config(SimpleNamespace):
    """Settings by name; in an ejected file, a dataclass of the numbers alone."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def of_decoder(self) -> Config:
        """The settings of the decoder of an encoder-decoder, which may have sizes of its own."""
        return Config(**{**vars(self), **self.decoder_changes})


class NoPlainForm(NotImplementedError):
    """Raised where a setting has no plain form; `zoo.eject` refuses the model by it."""
