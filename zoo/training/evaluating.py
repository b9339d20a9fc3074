"""transformers' trainer with an evaluation that can be compared: the plain loss per token, of every example once."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Sampler, SequentialSampler
from transformers import Seq2SeqTrainer

from zoo.fast.chunked_loss import IGNORED
from zoo.models.language_modeling import LanguageModel

from .arguments import ZooTrainingArguments


class EvaluatingTrainer(Seq2SeqTrainer):
    """A `Seq2SeqTrainer` that evaluates the plain loss per token, without logits where nobody looks at them."""

    args: ZooTrainingArguments

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.label_smoother: Any = self.label_smoother
        precise = torch.float32 if self.args.device.type == "mps" else torch.float64
        self._evaluated = torch.zeros(2, dtype=precise, device=self.args.device)  # the sum of losses, and of labels
        # Which smooths labels itself, and can leave logits out.
        self._is_language_model = isinstance(self.model, LanguageModel)

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler[int] | None:
        # In order, so that outputs can be put beside their examples.
        return SequentialSampler(eval_dataset)

    def _without_logits(self) -> dict[str, Any]:
        """What a model is called with where nobody looks at its logits."""
        # Whoever shares the projection's weights out gives them to the modules that they belong to, and to no loss.
        shared_out = self.is_fsdp_enabled or self.is_deepspeed_enabled or self.get_tp_size() > 1 or self.args.n_gpu > 1
        return {"skip_logits": True} if self._is_language_model and not shared_out else {}

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Evaluate a batch without label smoothing. Arguments as in the base class."""
        inputs = self._without_repetitions(inputs)
        if prediction_loss_only:
            inputs = {**inputs, **self._without_logits()}
        smoother, self.label_smoother = self.label_smoother, None
        # The base class writes every default of transformers into the model's own settings, as if they were wanted.
        generation = getattr(self.model, "generation_config", None)
        self.model.generation_config = copy.deepcopy(generation)
        try:
            loss, outputs, labels = super().prediction_step(
                model, inputs, prediction_loss_only, ignore_keys=ignore_keys, **gen_kwargs
            )
        finally:
            self.label_smoother, self.model.generation_config = smoother, generation
        if loss is not None:
            tokens = inputs["labels"].ne(IGNORED).sum().to(self._evaluated)
            total = torch.where(tokens > 0, loss.to(self._evaluated) * tokens, 0)  # a mean of nothing is no number
            self._evaluated += torch.stack([total, tokens])
        return loss, outputs, labels

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Tensor | int | None:
        # Evaluation needs the mean over a process's own labels; the base class divides by those of all processes.
        if self.accelerator.num_processes > 1 and not self.model.training:
            return None
        return super()._get_num_items_in_batch(batch_samples, device)

    def _without_repetitions(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Take the labels off the examples with which accelerate fills up the last batch of several processes."""
        state, processes = self.accelerator.gradient_state, self.accelerator.num_processes
        if processes == 1 or not state.end_of_dataloader or state.remainder <= 0:
            return inputs
        size = len(inputs["labels"])
        real = min(max(state.remainder - size * self.accelerator.process_index, 0), size)
        kept: dict[str, Any] = {name: inputs[name].clone() for name in ("labels", "shift_labels") if name in inputs}
        for labels in kept.values():
            labels[real:] = IGNORED
        return {**inputs, **kept}

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate, with the loss per token instead of the mean over batches. Arguments as in the base class."""
        self._evaluated.zero_()
        # Which drops the repetitions that fill up the last batch of several processes; the base class keeps them.
        self.gather_function = self.accelerator.gather_for_metrics
        output = super().evaluation_loop(*args, **kwargs)
        total, labels = self.accelerator.reduce(self._evaluated).tolist()
        prefix = kwargs.get("metric_key_prefix", "eval")
        if labels and f"{prefix}_loss" in output.metrics:
            output.metrics[f"{prefix}_loss"] = total / labels
            output.metrics[f"{prefix}_labels"] = int(labels)
        return output
