"""transformers' generation with a preallocated KV cache and captured decode steps."""

import copy
from functools import partial, update_wrapper, wraps
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import QuantizedCache
from transformers.generation import GenerationMixin, GenerationMode, LogitsProcessorList, PromptLookupCandidateGenerator

from zoo.base.errors import ConfigError, UnsupportedBackendError, UnsupportedOperationError

from .captured_steps import PREPACK_AFTER, captured_steps_of, replayed_steps
from .graph_capture import SHORTEST
from .preallocated_cache import CACHE_NAME, hold_every_row, let_grow
from .switches import current, fast_paths


class LogitsProcessors(LogitsProcessorList):
    """transformers' LogitsProcessorList without inspecting every signature in every decode step."""

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        """Process the scores of the next token. *Shape:* (batch_size, vocab_size)."""
        if kwargs:
            return super().__call__(input_ids, scores, **kwargs)
        for processor in self:
            scores = processor(input_ids, scores)
        return scores


class OrderedGenerationMixin(GenerationMixin):
    """transformers' generation with logits processors by their `place`: -1 before all others, 1 after them."""

    def _get_logits_processor(self, *args: Any, **kwargs: Any) -> LogitsProcessorList:
        processors = LogitsProcessors(super()._get_logits_processor(*args, **kwargs))
        processors.sort(key=lambda one: getattr(one, "place", 0))
        return processors


class TargetGeneration(GenerationMixin):
    """transformers' generation, also by encoder-decoders with target ids that are no source ids."""

    @wraps(GenerationMixin.compute_transition_scores)
    def compute_transition_scores(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Scores of the written tokens, as transformers computes them, in the target's vocabulary."""
        return GenerationMixin.compute_transition_scores(self.get_decoder(), *args, **kwargs)

    def _get_candidate_generator(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Make candidates as transformers does, in the target's vocabulary."""
        candidates = super()._get_candidate_generator(*args, **kwargs)
        if isinstance(candidates, PromptLookupCandidateGenerator):
            candidates.vocab_size = self.get_decoder().config.vocab_size
        return candidates

    def _get_logits_processor(self: Any, generation_config: Any, *args: Any, **kwargs: Any) -> LogitsProcessorList:
        """Make processors as transformers does, a watermark in the target's vocabulary."""
        size, watermark = self.get_decoder().config.vocab_size, generation_config.watermarking_config
        for name, unset in (("encoder_repetition_penalty", 1.0), ("encoder_no_repeat_ngram_size", 0)):
            value = getattr(generation_config, name)
            if self.config.is_encoder_decoder and value not in (None, unset) and size != self.config.vocab_size:
                raise UnsupportedOperationError(
                    f"{name}={value} was given, which looks for target ids in the source, and the model has a "
                    "vocabulary for each; leave it out"
                )
        if watermark is not None:
            made = partial(watermark.construct_processor, size)
            generation_config = copy.copy(generation_config)
            generation_config.watermarking_config = SimpleNamespace(construct_processor=lambda _, device: made(device))
        return super()._get_logits_processor(generation_config, *args, **kwargs)

    def _prepare_cache_for_generation(self: Any, generation_config: Any, *args: Any, **kwargs: Any) -> Any:
        if self.config.is_encoder_decoder and generation_config.prefill_chunk_size is not None:
            raise UnsupportedOperationError(
                f"prefill_chunk_size={generation_config.prefill_chunk_size} is for decoders, whose prompt it splits; "
                "leave it out"
            )
        if self.config.is_encoder_decoder and generation_config.guidance_scale not in (None, 1):
            raise UnsupportedOperationError(
                f"guidance_scale={generation_config.guidance_scale} is for decoders: transformers would give the "
                "target's tokens to the encoder; leave it out"
            )
        return super()._prepare_cache_for_generation(generation_config, *args, **kwargs)


class Generation(TargetGeneration):
    """transformers' generation, also with keys that are rotated by the length of the text."""

    def prepare_inputs_for_generation(
        self: Any,
        input_ids: Tensor,
        next_sequence_length: int | None = None,
        past_key_values: Any = None,
        attention_mask: Any = None,
        inputs_embeds: Tensor | None = None,
        is_first_iteration: bool | None = False,
        cache: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Prepare a step as transformers does, and recompute a cache with keys that are rotated for another length."""
        past_key_values = past_key_values if cache is None else cache
        if past_key_values is not None and (position := self.get_decoder().position).changes_after(self.config):
            embeds = None if self.config.is_encoder_decoder else inputs_embeds
            written = 0 if embeds is None else embeds.shape[1]
            seen, new = int(past_key_values.get_seq_length()), next_sequence_length or input_ids.shape[1]
            mask = kwargs.get("decoder_attention_mask") if self.config.is_encoder_decoder else attention_mask
            whole = written + input_ids.shape[1] == seen + new
            if whole and position.outgrows_cache(mask, seen, seen + new):
                past_key_values.reset()
                next_sequence_length = None
                if embeds is not None:
                    inputs_embeds = torch.cat([embeds, self.get_input_embeddings()(input_ids)], dim=1)
                    is_first_iteration = True
        given = (input_ids, next_sequence_length, past_key_values, attention_mask, inputs_embeds, is_first_iteration)
        return super().prepare_inputs_for_generation(*given, **kwargs)

    def _get_static_cache_init_shape(self) -> None:
        """None, so that a static cache takes its shapes from what attention first stores: latent vectors, for one."""

    def _prepare_cache_for_generation(
        self: Any, generation_config: Any, model_kwargs: dict[str, Any], mode: Any, *args: Any, **kwargs: Any
    ) -> Any:
        threshold = self.get_decoder().position.changes_after(self.config)
        if threshold and mode == GenerationMode.ASSISTED_GENERATION and generation_config.max_length > threshold:
            raise UnsupportedOperationError(
                f"assisted generation up to {generation_config.max_length} tokens was asked for, but beyond "
                f"{threshold} this rope_type rotates keys by the length of the text, which drafts change; leave the "
                "assistant out"
            )
        result = super()._prepare_cache_for_generation(generation_config, model_kwargs, mode, *args, **kwargs)
        cache = model_kwargs.get(CACHE_NAME)
        if mode == GenerationMode.ASSISTED_GENERATION and isinstance(cache, QuantizedCache):
            raise UnsupportedOperationError(
                "assisted generation was asked with a quantized cache, which transformers cannot crop; leave one out"
            )
        is_static = getattr(cache, "is_compileable", False)
        if is_static and self.config._attn_implementation == "flex_attention":
            raise UnsupportedBackendError(
                "flex_attention cannot generate with a static cache, as transformers cannot prepare its masks: leave "
                "cache_implementation out, or call model.set_attn_implementation('sdpa') or 'eager' before"
            )
        return result


class CachedGenerationMixin(OrderedGenerationMixin, Generation):
    """transformers' generation with a preallocated cache, and decode steps that are captured and replayed."""

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate tokens. Arguments and result as for transformers' own."""
        if not getattr(assistant := kwargs.get("assistant_model"), "can_assist", True):
            raise UnsupportedOperationError(
                f"a {type(assistant).__name__} was given as assistant_model; exports do not assist: give the checkpoint"
            )
        with replayed_steps(self):
            written = super().generate(*args, **kwargs)
        hold_every_row(getattr(written, CACHE_NAME, None))
        return written

    # transformers reads the signature. As a decorator, `wraps` would make it a function without self for type checkers.
    update_wrapper(generate, GenerationMixin.generate)

    def prepare_for_generation(self: Any, batch_size: int = 1, *, padded: bool | None = None, **options: Any) -> bool:
        """Capture a decode step now, so that the first text on a CPU is generated as fast as later ones.

        Otherwise a step is captured after some hundred steps of its kind, because capturing takes about as long as
        they save. A copy of the weights, laid out for the batch size that was prepared last, stays in memory as long
        as the model is unchanged: later texts begin with it, after a look at all weights.

        Args:
            batch_size: Number of texts at a time, at least 1: steps of other batch sizes are of another kind.
            padded: Whether the texts of a batch differ in length, another kind too; by default with several texts.
            options: Arguments of the later `generate` call that change its steps: `num_beams`, ...

        Returns:
            Whether such steps will be replayed. If not, `generate` returns the same without replay: on a GPU, with a
            cache or a module that is not the zoo's, PyTorch's or transformers', or with ZOO_GRAPH_CAPTURE=never.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size} is not valid; at least 1 text at a time")
        if current().graph_capture == "never" or (known := captured_steps_of(self)) is None:
            return False
        before = known.replays
        ids = torch.zeros(batch_size, SHORTEST, dtype=torch.long, device=self.device)
        mask = torch.ones_like(ids)
        if batch_size > 1 if padded is None else padded:
            mask[0, 0] = 0
        tokens = min(PREPACK_AFTER + 3, self.config.max_position_embeddings - SHORTEST)
        lengths = {"max_new_tokens": tokens, "min_new_tokens": tokens, "max_length": None}
        known.is_preparing = True
        try:
            with fast_paths(graph_capture="always"):
                self.generate(input_ids=ids, attention_mask=mask, **{**options, "do_sample": False, **lengths})
        finally:
            known.is_preparing = False
        return known.replays > before

    def _prepare_cache_for_generation(
        self: Any, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        given = model_kwargs.get(CACHE_NAME)
        result = super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        if given is None and current().cache_room != "never":
            copies = max(generation_config.num_beams or 1, generation_config.num_return_sequences or 1)
            let_grow(model_kwargs.get(CACHE_NAME), copies, generation_config.max_length or 0)
        return result
