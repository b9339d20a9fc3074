"""transformers' trainer for sequences, with the plain loss per token in evaluation."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, SequentialSampler
from transformers import Seq2SeqTrainer

from zoo.data.tasks.blocks import items_of_blocks
from zoo.fast.chunked_loss import IGNORED
from zoo.fast.matmul import fast_matmul
from zoo.fast.switches import without_trials
from zoo.models.language_modeling import LanguageModel
from zoo.models.partly_causal import items_of_kinds, weights_of_kinds

from .arguments import ZooTrainingArguments
from .temporary import temporarily


class EvaluatingTrainer(Seq2SeqTrainer):
    """A `Seq2SeqTrainer` that evaluates the plain loss per token, without logits where they are not needed."""

    args: ZooTrainingArguments

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.label_smoother: Any = self.label_smoother
        precise = torch.float32 if self.args.device.type == "mps" else torch.float64
        self._evaluated = torch.zeros(3, dtype=precise, device=self.args.device)  # sums of losses, weights and labels
        self._items: Tensor | None = None  # Labels of causal rows and of others, over their shares of all rows
        self._predicts = False
        # Which smooths labels itself, and can leave logits out.
        self._is_language_model = isinstance(self.model, LanguageModel)

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler[int] | None:
        # In order, so that outputs match their examples.
        return SequentialSampler(eval_dataset)

    def _get_dataloader(self, *args: Any, is_training: bool = False, **kwargs: Any) -> DataLoader[Any]:
        """Load all examples for evaluation, also those of an incomplete last batch, and in every epoch alike."""
        options = {} if is_training else {"dataloader_drop_last": False}
        if not is_training or hasattr(self.train_dataset, "set_epoch"):  # persistent workers have that of their start
            options["dataloader_persistent_workers"] = False
        with temporarily(self.args, **options):
            return super()._get_dataloader(*args, is_training=is_training, **kwargs)

    def _without_logits(self) -> dict[str, Any]:
        # If the projection's weights are sharded, only their own modules can gather them, not the loss.
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
        """Evaluate a batch without label smoothing."""
        inputs = without_labels(inputs, self._real_rows(inputs))
        if prediction_loss_only:
            inputs = {**inputs, **self._without_logits()}
        # The base class writes every default of transformers into the model's own settings, as if they were wanted.
        generation = copy.deepcopy(getattr(self.model, "generation_config", None))
        with (
            temporarily(self, label_smoother=None, _predicts=True),
            temporarily(self.args, average_tokens_across_devices=False),  # the mean over a process's own labels
            temporarily(self.model, generation_config=generation),
            without_trials(),
            fast_matmul(self.args.device),
        ):
            loss, outputs, labels = super().prediction_step(
                model, inputs, prediction_loss_only, ignore_keys=ignore_keys, **gen_kwargs
            )
        if loss is not None:
            tokens = inputs["labels"].ne(IGNORED).sum().to(self._evaluated)
            if self._items is None:
                weight = tokens
                total = torch.where(tokens > 0, loss.to(self._evaluated) * tokens, 0)  # a mean of nothing is no number
            else:  # already a share of the mean over all batches
                total = loss.to(self._evaluated)
                kinds = inputs["shift_labels"].cpu(), inputs["causal_rows"].cpu()
                weight = weights_of_kinds(*kinds, self._items).sum().to(self._evaluated)
            self._evaluated += torch.stack([total, weight, tokens])
        return loss, outputs, labels

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Tensor | int | None:
        if self._predicts and self._items is not None:
            return self._items.to(device)
        items = super()._get_num_items_in_batch(batch_samples, device)
        if items is None:
            return None
        items = torch.as_tensor(items).clamp(min=1)  # of short blocks without masks, which have no gradient
        if "causal_rows" not in batch_samples[0]:
            return items
        found = [items_of_kinds(batch["shift_labels"], batch["causal_rows"]).to(device) for batch in batch_samples]
        sums = torch.stack(found).sum(dim=0)
        if self.args.average_tokens_across_devices:
            sums = self.accelerator.reduce(sums)
        labels, rows = sums
        return items * (labels / labels.sum()) / (rows / rows.sum())

    def _real_rows(self, inputs: dict[str, Any]) -> int | None:
        """Number of rows before those that fill up the last batch of several processes; None for all."""
        state, processes = self.accelerator.gradient_state, self.accelerator.num_processes
        loader: Any = state.active_dataloader
        if processes == 1 or not self.accelerator.even_batches or not state.end_of_dataloader or loader._drop_last:
            return None
        *_, sampler = samplers_of(loader)  # accelerate's own `remainder` is of the data, and lacks in resumed epochs
        size = len(inputs["labels"])
        rest = len(sampler) % (size * processes)
        return min(max(rest - size * self.accelerator.process_index, 0), size) if rest else None

    def evaluation_loop(self, dataloader: DataLoader[Any], *args: Any, **kwargs: Any) -> Any:
        """Evaluate, with the loss per token instead of the mean over batches."""
        self._evaluated.zero_()
        if hasattr(dataloader, "set_epoch"):  # accelerate counts passes over it as epochs, by which masks are drawn
            dataloader.set_epoch(0)
        self._items = items_of_blocks(dataloader.dataset)
        # Which drops the repetitions that fill up the last batch of several processes; the base class keeps them.
        self.gather_function = self.accelerator.gather_for_metrics
        output = super().evaluation_loop(dataloader, *args, **kwargs)
        total, weight, labels = self.accelerator.reduce(self._evaluated).tolist()
        prefix = kwargs.get("metric_key_prefix", "eval")
        if labels and f"{prefix}_loss" in output.metrics:
            output.metrics[f"{prefix}_loss"] = total / weight
            output.metrics[f"{prefix}_labels"] = int(labels)
        return output


def samplers_of(loader: Any) -> Iterator[Any]:
    """Samplers of a data loader, each after the one that reads it."""
    part = loader.batch_sampler
    while part is not None:
        yield part
        part = getattr(part, "batch_sampler", None) or getattr(part, "sampler", None)


def without_labels(inputs: dict[str, Any], begin: int | None) -> dict[str, Any]:
    """Take the labels off the rows of a batch from one on; off none where it is None."""
    if begin is None:
        return inputs
    kept: dict[str, Any] = {name: inputs[name].clone() for name in ("labels", "shift_labels") if name in inputs}
    for labels in kept.values():
        labels[begin:] = IGNORED
    return {**inputs, **kept}
