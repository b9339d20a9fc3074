"""Attention backends of a model, and the errors for others."""

from typing import Any

from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel

from zoo.base.errors import UnsupportedBackendError, suggest

from .capabilities import backends_of, refuse_engine, refuse_paging
from .configuration import ZooConfig
from .transformer import BACKENDS


class AttentionBackends(PreTrainedModel):
    """A model with attention backends that depend on the parts of its configuration."""

    config: ZooConfig
    _supports_attention_backend = True

    def supported_backends(self) -> tuple[str, ...]:
        """Attention backends that this configuration supports, the default first."""
        return backends_of(self.config)

    # For an instance, depends on its configuration; for the class, True. transformers reads both, and reads them before
    # __init__ has set anything.
    @property
    def _supports_sdpa(self) -> bool:
        return "sdpa" in self.supported_backends()

    @property
    def _supports_flex_attn(self) -> bool:
        return "flex_attention" in self.supported_backends()

    @property
    def _supports_flash_attn(self) -> bool:
        return "flash_attention_2" in self.supported_backends()

    def set_attn_implementation(self, attn_implementation: str | dict[str, str], *args: Any, **kwargs: Any) -> None:
        """Change the attention backend of all stacks."""
        super().set_attn_implementation(attn_implementation, *args, **kwargs)
        # Older versions of transformers skip stacks with their own configuration.
        for module in self.modules():
            if isinstance(module, AttentionBackends):
                module.config._attn_implementation_internal = self.config._attn_implementation

    def _check_and_adjust_attn_implementation(self, attn_implementation: str | None, *args: Any, **kwargs: Any) -> str:
        """Refuse a backend by the requested name, before transformers replaces it by a kernel."""
        self.check_backend(attn_implementation)
        return super()._check_and_adjust_attn_implementation(attn_implementation, *args, **kwargs)

    def check_backend(self, name: str | None) -> None:
        """Refuse an attention backend that is unknown, or unsupported by this configuration.

        Args:
            name: As for `attn_implementation`; a name with a slash is a kernel's repository, which counts as
                FlashAttention.

        Raises:
            UnsupportedBackendError: With the supported ones.
        """
        if name is None:
            return
        supported = self.supported_backends()
        base_name = name.removeprefix("paged|")
        if base_name != name:
            refuse_paging(self.config, name)
        is_kernel = "/" in base_name
        if not is_kernel and base_name not in ("eager", *BACKENDS, *ALL_ATTENTION_FUNCTIONS.valid_keys()):
            raise UnsupportedBackendError(  # contains transformers' own message, so that it can be found
                f'Specified `attn_implementation="{name}"` is not supported; '
                f"valid: {', '.join(supported)}{suggest(name, supported)}"
            )
        if (is_kernel and not self._supports_flash_attn) or (base_name in BACKENDS and base_name not in supported):
            raise UnsupportedBackendError(
                f"attn_implementation={name!r} was given, which variant {self.config.variant!r} cannot run on with "
                f"this configuration; valid: {', '.join(supported)}"
            )
        if not (is_kernel or base_name in BACKENDS or base_name.startswith("flash_attention")):
            refuse_engine(self.config, base_name)

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """Choose the attention backend, or refuse one that this variant does not support."""
        self.check_backend(requested_attention)
        chosen = self.supported_backends()[0] if requested_attention is None else requested_attention
        return super().get_correct_attn_implementation(chosen, is_init_check)
