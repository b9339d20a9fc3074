"""What attentions have in common whose layers read what earlier ones keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoo.errors import ConfigError

from ..attention import Attention

if TYPE_CHECKING:
    from ..configuration import ZooConfig


class EarlierLayersAttention(Attention):
    """Attention whose layers differ: some keep tensors, in [`zoo.models.context.EarlierLayers`][], that others read."""

    reads_earlier_layers = True

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        """Require layers of their own.

        Raises:
            ConfigError: When one layer stands for all.
        """
        if config.share_layers:
            raise ConfigError(
                f"attention={config.attention!r} was given with share_layers=True, but its layers cannot be one: later "
                "ones read what an earlier one keeps"
            )
