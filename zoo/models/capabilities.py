"""Attention backends of a configuration and of a model, and limitations in words for a card."""

import sys
from typing import Any

from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel

from zoo.base.errors import UnsupportedBackendError, enumerate_names, suggest

from .attention import Attention
from .configuration import ZooConfig
from .parallel import slices_heads
from .parts import ATTENTIONS, POSITIONS
from .transformer import BACKENDS, transformer_of

FLASH = ("flash_attention_2", "flash_attention_3")

SERVING = {"vllm": "vllm.distributed.parallel_state", "sglang": "sglang.srt.distributed.parallel_state"}
"""Backends of serving engines, which run a model's body under their own heads; and the module that knows how they slice
it."""

CAPS_SCORES = (*FLASH, "vllm")
"""Backends with their own key-value cache that are known to apply `attn_logit_softcapping`."""

VLLM_CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Head sizes for which vLLM 0.32 has attention on CPUs."""


def backends_of(config: ZooConfig) -> tuple[str, ...]:
    """Attention backends that a configuration's parts support."""
    refused = refusals(config)
    return tuple(name for name in transformer_of(config).backends if name not in refused)


def refusals(config: ZooConfig) -> dict[str, str]:
    """Attention backends that reject a configuration."""
    why = dict.fromkeys({*BACKENDS} - {*transformer_of(config).backends}, "a part of the variant's own")
    why |= dict.fromkeys({*BACKENDS} - {*ATTENTIONS.get(config.attention).backends}, f"attention {config.attention!r}")
    if POSITIONS.get(config.position).has_bias:
        why |= dict.fromkeys(FLASH, f"positions {config.position!r}, which are added to attention scores")
    if config.is_encoder_decoder or config.add_cross_attention:
        # It numbers queries and keys from the end, which does not fit cross attention, and takes no mask of the source.
        why |= dict.fromkeys(FLASH, "cross attention")
    return why if config.attn_logit_softcapping is None else {**why, "sdpa": "attn_logit_softcapping"}


def what_engines_lack(config: ZooConfig, attn_implementation: str) -> str | None:
    """Features of a configuration that attention with its own cache and masks would ignore, or None.

    This applies to transformers' paged attention (continuous batching) and to the backends that serving engines
    register: they get the queries, keys and values of the new tokens, once per layer.
    """
    backend = attn_implementation.removeprefix("paged|")
    if POSITIONS.get(config.position).has_bias:
        return f"positions {config.position!r}, which are added to attention scores"
    if (length := POSITIONS.get(config.position).changes_after(config)) is not None:
        return f"rope_parameters that rotate cached keys again in texts of more than {length} tokens"
    if ATTENTIONS.get(config.attention).attend is not Attention.attend:
        return f"attention {config.attention!r}"
    if config.mixer_layer_type is not None:
        return f"mixer {config.mixer!r}, as its state is in no cache of keys and values"
    if backend in SERVING and ATTENTIONS.get(config.attention).reads_token_ids:
        return f"attention {config.attention!r}, which reads token ids, where serving engines may give embeddings"
    if config.share_layers:
        return "share_layers=True, as every application of the layer needs its own place in the cache"
    if config.attn_logit_softcapping is not None and not (backend in CAPS_SCORES or "/" in backend):
        return "attn_logit_softcapping, which only FlashAttention and vLLM are known to apply there"
    if config.sliding_window is not None and config.stack == "encoder" and backend in SERVING:
        return f"sliding_window={config.sliding_window} in an encoder, by which vLLM computes other states"
    if config.sliding_window is not None and backend == "sglang":
        return f"sliding_window={config.sliding_window}, which SGLang makes wider by one or forgets"
    if backend in SERVING and not slices_heads(ATTENTIONS.get(config.attention), config) and slices_weights(backend):
        return "tensor parallelism: its attention needs all heads"
    if backend == "vllm" and runs_on_cpu() and (size := head_size_lacking(config)) is not None:
        return size
    return None if transformer_of(config).backends == BACKENDS else "a part of the variant's own"


def slices_weights(engine: str) -> bool:
    """Whether a serving engine slices the weights of the model that this process builds."""
    state = sys.modules.get(SERVING[engine])
    if state is None or not state.model_parallel_is_initialized():
        return False
    return bool(state.get_tensor_model_parallel_world_size() > 1)


def runs_on_cpu() -> bool:
    """Whether vLLM computes on a CPU in this process."""
    platforms = sys.modules.get("vllm.platforms")
    return platforms is not None and bool(platforms.current_platform.is_cpu())


def head_size_lacking(config: ZooConfig) -> str | None:
    """Name the head size if vLLM has no attention for it on CPUs."""
    if config.head_dim in VLLM_CPU_HEAD_SIZES:
        return None
    valid = ", ".join(map(str, VLLM_CPU_HEAD_SIZES))
    return f"head_dim={config.head_dim}, for which vLLM has no attention on CPUs (valid: {valid})"


def limits_in_vllm(config: ZooConfig) -> tuple[str, ...]:
    """Why vLLM does not serve a decoder or encoder, a sentence each."""
    if (why := what_engines_lack(config, "vllm")) is not None:
        return (f"vLLM does not serve it, because of {why}.",)
    return limits_in_vllm_on_cpu(config)


def limits_in_vllm_on_cpu(config: ZooConfig) -> tuple[str, ...]:
    """The sentence on a head size that vLLM lacks there, if it does."""
    size = head_size_lacking(config)
    return () if size is None else (f"vLLM does not serve it on a CPU, because of {size}.",)


def refuse_paging(config: ZooConfig, attn_implementation: str) -> None:
    """Refuse paged attention if its tokens would be wrong."""
    if (why := what_engines_lack(config, attn_implementation)) is not None:
        raise UnsupportedBackendError(
            f"variant {config.variant!r} cannot generate by continuous batching, with paged attention, because of "
            f"{why}; model.generate() on a padded batch can"
        )


def limits_of(config: ZooConfig) -> tuple[str, ...]:
    """List the limitations of a configuration."""
    reasons: dict[str, list[str]] = {}
    refused = refusals(config)
    for name in BACKENDS:
        if name in refused:
            reasons.setdefault(refused[name], []).append(name)
    limits = [
        f"Does not run on attn_implementation {enumerate_names(names)}, because of {why}; asking for it is an "
        "UnsupportedBackendError."
        for why, names in reasons.items()
    ]
    if config.mixer_layer_type is not None:
        limits.append(
            "Takes neither an attention_mask of 4 dimensions nor the prefix of prefix tuning, as "
            f"mixer {config.mixer!r} keeps a state in the place of keys and values; either is an InputError."
        )
    if config.stack == "decoder" and (why := what_engines_lack(config, backends_of(config)[0])) is not None:
        limits.append(f"Does not generate by continuous batching (generate_batch), because of {why}.")
    return (*limits, *(() if config.stack == "encoder-decoder" else limits_in_vllm_on_cpu(config)))


class AttentionBackends(PreTrainedModel):
    """A model with attention backends that depend on the parts of its configuration."""

    config: ZooConfig
    _supports_attention_backend = True

    def supported_backends(self) -> tuple[str, ...]:
        """Attention backends that this configuration supports, the default first."""
        return backends_of(self.config)

    # For an instance, depends on its configuration; for the class, True. transformers reads both, and reads them before
    # __init__ has set anything.
    _supports_sdpa = property(lambda self: "sdpa" in self.supported_backends())
    _supports_flex_attn = property(lambda self: "flex_attention" in self.supported_backends())
    _supports_flash_attn = property(lambda self: "flash_attention_2" in self.supported_backends())

    def set_attn_implementation(self, attn_implementation: str | dict[str, str], *args: Any, **kwargs: Any) -> None:
        """Change the attention backend of all stacks."""
        super().set_attn_implementation(attn_implementation, *args, **kwargs)
        # Older versions of transformers skip stacks with their own configuration.
        for module in self.modules():
            if isinstance(module, AttentionBackends):
                module.config._attn_implementation_internal = self.config._attn_implementation

    def _check_and_adjust_attn_implementation(self, attn_implementation: str | None, *args: Any, **kwargs: Any) -> str:
        """Choose the attention backend, or refuse one by its name, before transformers replaces it by a kernel."""
        supported = backends_of(self.config)
        backend = supported[0] if attn_implementation is None else attn_implementation
        if backend in ("sdpa", "eager") and backend in supported:  # nothing to check or to fetch
            return backend
        self.check_backend(backend)
        return super()._check_and_adjust_attn_implementation(backend, *args, **kwargs)

    def check_backend(self, name: str) -> None:
        """Raise UnsupportedBackendError, with the supported backends, for one that this configuration cannot use.

        A name with a slash is a kernel's repository, which counts as FlashAttention.
        """
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
        if is_kernel or base_name in BACKENDS or base_name.startswith("flash_attention"):
            return
        if (why := what_engines_lack(self.config, base_name)) is not None:
            raise UnsupportedBackendError(
                f"attn_implementation={base_name!r} was given, a backend from elsewhere, which cannot run variant "
                f"{self.config.variant!r} because of {why}; valid: {', '.join(supported)}"
            )

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """Choose the attention backend, or refuse one that this variant does not support."""
        chosen = self.supported_backends()[0] if requested_attention is None else requested_attention
        self.check_backend(chosen)
        return super().get_correct_attn_implementation(chosen, is_init_check)
