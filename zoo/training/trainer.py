"""transformers' trainer, with what a comparison needs to be fair."""

from __future__ import annotations

from typing import Any

import torch
from datasets import Dataset
from torch import nn
from torch.utils.data import Sampler, SequentialSampler
from transformers import PreTrainedModel, Seq2SeqTrainer

from .sampling import LengthGroupedSampler

IGNORED = -100
"""The label of padding."""


class ZooTrainer(Seq2SeqTrainer):
    """A `Seq2SeqTrainer` that counts tokens, evaluates the plain loss per token, and orders data by the seed alone.

    Attributes:
        train_tokens: Source and target tokens that have been trained on, padding excluded, on this process.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.label_smoother: Any = self.label_smoother
        self.train_tokens = torch.zeros((), dtype=torch.long, device=self.args.device)
        self._evaluated = torch.zeros(2, dtype=torch.float64)

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler[int] | None:
        dataset = self.train_dataset  # with its lengths, which the one that is given here has lost
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        seed = self.args.data_seed if self.args.data_seed is not None else self.args.seed
        batch_size = self.args.train_batch_size * self.args.gradient_accumulation_steps
        return LengthGroupedSampler(list(dataset[self.args.length_column_name]), batch_size, seed)

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler[int] | None:
        # In order, so that outputs can be put beside their examples.
        return SequentialSampler(eval_dataset)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Count the batch, and train on it. Arguments as in the base class."""
        self.train_tokens += (inputs["attention_mask"].sum() + inputs["labels"].ne(IGNORED).sum()).to(
            self.train_tokens.device
        )
        return super().training_step(model, inputs, num_items_in_batch)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Compute the loss. Arguments as in the base class."""
        if self.label_smoother is not None and "decoder_input_ids" not in inputs:
            # With smoothing the model does not see the labels, of which it makes its decoder's inputs by its own rule.
            inputs = {**inputs, "decoder_input_ids": self._decoder_inputs(model, inputs)}
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def _decoder_inputs(self, model: nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
        plain = self.accelerator.unwrap_model(model)
        if hasattr(plain, "decoder_inputs"):
            shifted: torch.Tensor = plain.decoder_inputs(inputs["input_ids"], inputs["labels"])
            return shifted
        return plain.prepare_decoder_input_ids_from_labels(inputs["labels"])

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Evaluate a batch without label smoothing. Arguments as in the base class."""
        smoother, self.label_smoother = self.label_smoother, None
        try:
            loss, outputs, labels = super().prediction_step(
                model, inputs, prediction_loss_only, ignore_keys=ignore_keys, **gen_kwargs
            )
        finally:
            self.label_smoother = smoother
        if loss is not None:
            tokens = inputs["labels"].ne(IGNORED).sum().item()
            self._evaluated += torch.tensor([loss.item() * tokens, tokens], dtype=torch.float64)
        return loss, outputs, labels

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate, with the loss per token instead of the mean over batches. Arguments as in the base class."""
        self._evaluated.zero_()
        output = super().evaluation_loop(*args, **kwargs)
        total, tokens = self.accelerator.reduce(self._evaluated.to(self.args.device, torch.float32)).tolist()
        prefix = kwargs.get("metric_key_prefix", "eval")
        if tokens and f"{prefix}_loss" in output.metrics:
            output.metrics[f"{prefix}_loss"] = total / tokens
        return output

    def trained_model(self) -> PreTrainedModel:
        """Unwrap the model.

        Returns:
            The model, in evaluation mode.
        """
        model: PreTrainedModel = self.accelerator.unwrap_model(self.model)
        return model.eval()
