"""transformers' trainer, with what a comparison needs to be fair, and a long run to be safe."""

from __future__ import annotations

import math
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType, DynamoBackend
from torch import Tensor, nn
from torch.utils.data import Sampler, SequentialSampler
from transformers import PreTrainedModel, SchedulerType, trainer
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints
from transformers.training_args import OptimizerNames

from zoo.base.errors import ConfigError, UnwritableError, ZooWarning
from zoo.data.tasks.streaming import is_streamed
from zoo.fast.chunked_loss import IGNORED
from zoo.fast.matmul import fast_matmul
from zoo.models import ZooPreTrainedModel
from zoo.models.feed_forwards.routing import has_router_loss

from .after_steps import AfterSteps, RunTotals
from .arguments import ZooTrainingArguments
from .averaging import WeightAverage
from .checkpoints import seal
from .evaluating_trainer import EvaluatingTrainer, samplers_of, without_labels
from .guard import LossGuard, OverflowFinder, check_weights, memory_explained
from .optimizers import (
    UNLIKE_ADAM,
    build_muon,
    check_optim_args,
    class_and_options,
    decayed_parameters,
    named_in_errors,
    refuse_mup,
    scaled_groups,
)
from .sampling import LengthGroupedSampler, have_many_lengths, lengths_of, order_of_blocks
from .saving import explained
from .temporary import temporarily

DECAY_SHARE = 0.2
"""Share of the updates in which "warmup_stable_decay" decays, unless `lr_scheduler_kwargs` has `num_decay_steps`."""


class ZooTrainer(EvaluatingTrainer):
    """A `Seq2SeqTrainer` that counts tokens, evaluates the plain loss per token, and orders data by the seed alone.

    `run` are the settings that decide the final weights, for its checkpoints. `train_tokens` are those that this
    process has read since it was made, padding excluded, and for an encoder-decoder also those that it learns to write.
    """

    args: ZooTrainingArguments
    optimizer: Any

    def __init__(self, *, run: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run = run or {}
        self.kept: str | None = None
        self._goes_on = False
        self.train_tokens = torch.zeros((), dtype=torch.long, device=self.args.device)
        self.guard = LossGuard(self.args.device, lambda: self.kept)
        self.hooks = ExitStack()  # removes those of `debug` when it is closed
        self._writes = bool(self.model.config.is_encoder_decoder)
        self._flops_per_token = 6 * self.model.num_parameters(exclude_embeddings=True)
        self.average = None if self.args.average is None else WeightAverage(self.model, self.args)
        if self.args.z_loss and not self._is_language_model:
            raise ConfigError(f"z_loss={self.args.z_loss:g} was given, and {type(self.model).__name__} has none")
        self._balances = self._is_language_model and has_router_loss(self.model.config)
        dynamo = self.accelerator.state.dynamo_plugin
        if dynamo.backend != DynamoBackend.NO and dynamo.dynamic is None and have_many_lengths(self.train_dataset):
            dynamo.dynamic = True  # from the first batch on, which would else be compiled for its own length
        self.add_callback(RunTotals())
        self.add_callback(AfterSteps())
        if self.average is not None:
            self.add_callback(self.average)

    @property
    def totals(self) -> RunTotals:
        """Tokens and seconds of the whole run; transformers replaces the object when it resumes."""
        return next(callback for callback in self.callback_handler.callbacks if isinstance(callback, RunTotals))

    def total_tokens(self) -> int:
        return self.totals.tokens + int(self.accelerator.reduce(self.train_tokens).item())

    get_optimizer_cls_and_kwargs = staticmethod(class_and_options)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        trained = self.model if model is None else model
        with named_in_errors(optim=self.args.optim, optim_args=self.args.optim_args):
            check_optim_args(self.args, trained)
            if self.args.uses_muon and self.optimizer is None:
                self.optimizer = build_muon(trained, self.get_decay_parameter_names(trained), self.args)
            elif self.optimizer is None and getattr(self.model.config, "initializer", None) == "mup":
                kind, options = class_and_options(self.args, trained)
                if self.args.optim in UNLIKE_ADAM or options.get("scale_parameter"):
                    refuse_mup(self.model, OptimizerNames(self.args.optim).value)
                decayed = self.get_decay_parameter_names(trained)
                self.optimizer = kind(scaled_groups(trained, decayed, options["lr"], self.args.weight_decay), **options)
            return super().create_optimizer(model)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Make the schedule; a decay of "warmup_stable_decay" may be a share. Warns of a warm-up without an end."""
        warmup = self.args.get_warmup_steps(num_training_steps)
        if warmup >= num_training_steps and self.args.lr_scheduler_type != SchedulerType.CONSTANT:
            warnings.warn(
                f"warmup_steps={warmup} is not less than the {num_training_steps} updates of the run, which ends below "
                f"learning_rate={self.args.learning_rate}",
                ZooWarning,
                stacklevel=2,
            )
        if self.args.lr_scheduler_type == SchedulerType.WARMUP_STABLE_DECAY:
            given = dict(self.args.lr_scheduler_kwargs or {})
            decay, left = given.get("num_decay_steps", DECAY_SHARE), num_training_steps - warmup
            if decay < 1:
                fits = self.args.warmup_steps + decay < 1 + 1e-5  # shares; each is rounded up to whole updates
                decay = math.ceil(round(decay * num_training_steps, 6))
                decay = min(decay, left) if fits else decay
            if 0 < left < decay:
                raise ConfigError(
                    f"the warm-up of {warmup} updates and the decay of {decay:g} are longer than the run of "
                    f"{num_training_steps}: give fewer warmup_steps, or num_decay_steps in lr_scheduler_kwargs"
                )
            self.args.lr_scheduler_kwargs = {**given, "num_decay_steps": decay}
        given = {name: getattr(self.args, name) for name in ("lr_scheduler_type", "lr_scheduler_kwargs")}
        with named_in_errors(**given):
            return super().create_scheduler(num_training_steps, optimizer)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        return decayed_parameters(model, self.args.decay)

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int] | None:
        if (order := order_of_blocks(self.train_dataset, self.args)) is not None:
            return order
        if is_streamed(self.train_dataset) or self.args.train_sampling_strategy == "sequential":
            return SequentialSampler(self.train_dataset)
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        together = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        # The data with its lengths, which the one that is given here has lost.
        return LengthGroupedSampler(lengths_of(self.train_dataset), together, self.args.order_seed)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], *args: Any, **kwargs: Any) -> Any:
        """Take the batches of an update, and count their tokens."""
        return super().get_batch_samples(map(self._taken, epoch_iterator), *args, **kwargs)

    def _taken(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """A batch without repeated examples; where it has no others, with one, without its labels."""
        real = self._real_rows(inputs)
        self.train_tokens += self._tokens({name: rows[:real] for name, rows in inputs.items()}).to(self.args.device)
        return inputs if real is None else without_labels({k: rows[: max(real, 1)] for k, rows in inputs.items()}, real)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        with fast_matmul(self.args.device):
            loss = super().training_step(model, inputs, num_items_in_batch)
        self.guard.see(loss, self.state.global_step + 1)
        return loss

    def _tokens(self, inputs: dict[str, Any]) -> Tensor:
        mask = inputs.get("attention_mask")
        if mask is None and "position_ids" in inputs:  # packed documents; padding is one without labels
            return inputs["labels"].ne(IGNORED).sum()
        read = torch.as_tensor(inputs["input_ids"].numel()) if mask is None else mask.sum()
        return read + inputs["labels"].ne(IGNORED).sum() if self._writes else read

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        """Clip gradients, on a single device without what accelerate looks at."""
        if self.accelerator.distributed_type != DistributedType.NO or self.accelerator.scaler is not None:
            return super()._clip_grad_norm(model)
        return nn.utils.clip_grad_norm_(model.parameters(), self.args.max_grad_norm)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Estimate the work of a batch; the base class counts all parameters each time."""
        return int(inputs["input_ids"].numel()) * self._flops_per_token

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, unless the loss was no number, how far the run has come."""
        self.guard.check()
        logs.update(tokens=self.total_tokens(), seconds=round(self.totals.elapsed(), 3))
        super().log(logs, start_time)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        if self._is_language_model:
            options = {} if self.label_smoother is None else {"loss_smoothing": self.label_smoother.epsilon}
            if not return_outputs:
                options |= self._without_logits()
            if self._balances:  # even if the configuration asks for it, an evaluation is of the plain loss
                options["output_router_logits"] = model.training
            if self.args.z_loss and model.training:
                options["z_loss"] = self.args.z_loss
            with temporarily(self, label_smoother=None):
                return super().compute_loss(model, {**inputs, **options}, return_outputs, num_items_in_batch)
        if self.label_smoother is not None and "shift_labels" in inputs:
            # The base class would shift labels once more, those of blocks too.
            with temporarily(self, label_smoother=None, compute_loss_func=self.label_smoother):
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if self.label_smoother is not None and "decoder_input_ids" not in inputs:
            # With smoothing the model does not see the labels, and cannot make its decoder's inputs from them.
            inputs = {**inputs, **self._decoder_inputs(model, inputs)}
        of_model = self.label_smoother is None and self.compute_loss_func is None and "shift_labels" not in inputs
        is_part = model.training and num_items_in_batch is not None and not return_outputs and self.args.n_gpu <= 1
        if of_model and is_part and not isinstance(self.model, ZooPreTrainedModel):
            # Some classes of transformers take the number of labels, and return the mean over the batch even so.
            processes = self.accelerator.num_processes // self.get_tp_size()
            labels = inputs["labels"].ne(IGNORED).sum() * (processes if self.args.average_tokens_across_devices else 1)
            loss = super().compute_loss(model, inputs)
            return (loss if labels else loss.nan_to_num()) * labels / num_items_in_batch  # a mean of nothing is NaN
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def _decoder_inputs(self, model: nn.Module, inputs: dict[str, Any]) -> dict[str, Tensor]:
        plain = self.accelerator.unwrap_model(model)
        if hasattr(plain, "decoder_inputs"):
            return {"decoder_input_ids": plain.decoder_inputs(inputs["input_ids"], inputs["labels"])}
        if plain.config.is_encoder_decoder:
            return {"decoder_input_ids": plain.prepare_decoder_input_ids_from_labels(inputs["labels"])}
        return {}

    def train(self, resume_from_checkpoint: Any = None, **kwargs: Any) -> Any:
        self.kept = resume_from_checkpoint
        self._goes_on = resume_from_checkpoint is not None
        if self._goes_on and self.average is not None:
            self.average.load(Path(resume_from_checkpoint))
        finder = partial(OverflowFinder, hooks=self.hooks)
        with memory_explained(self.args), temporarily(trainer, DebugUnderflowOverflow=finder):
            return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def _run_epoch(self, **kwargs: Any) -> None:
        """Train for an epoch, unless the checkpoint that the run goes on from is its last one. Arguments as there."""
        if self._goes_on:
            self._goes_on = False
            self._globalstep_last_logged = self.totals.logged_step
            self._tr_loss.fill_(self.totals.loss)
            control = self.state.stateful_callbacks["TrainerControl"]["args"]
            if control["should_training_stop"] or self.state.global_step >= self.state.max_steps:
                self.control.should_training_stop = True
                return
        # In a loader that skips batches, accelerate sets no epoch on the data nor, with several processes, the sampler.
        for part in samplers_of(kwargs["train_dataloader"]):
            if hasattr(part, "set_epoch"):
                part.set_epoch(kwargs["epoch"])
        if hasattr(self.train_dataset, "set_epoch"):
            self.train_dataset.set_epoch(kwargs["epoch"])
        super()._run_epoch(**kwargs)

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> Any:
        """Evaluate, while training with averaged weights as well; training draws the same numbers as without it."""
        began = time.perf_counter()
        with torch.random.fork_rng([self.args.device] if self.args.device.type == "cuda" else []):
            output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
            if self.average is not None and self.average.updates and metric_key_prefix == "eval":
                with self.average.in_place():
                    averaged = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
                output.metrics["eval_average_loss"] = averaged.metrics["eval_loss"]
        self.totals.pause(began)
        return output

    def mean_loss(self) -> float:
        """Compute the mean training loss, over all processes, of a run that has logged none."""
        whole = self.totals.loss if self._goes_on else self.accelerator.reduce(self._tr_loss, "mean").item()
        return whole / max(self.state.global_step, 1)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save, seal complete checkpoints, and remove unfinished ones."""
        began = time.perf_counter()
        self.check_trained()
        self.totals.tokens, self.train_tokens = self.total_tokens(), self.train_tokens.zero_()
        self.totals.logged_step = self._globalstep_last_logged
        self.totals.loss = self.accelerator.reduce(self._tr_loss, "mean").item()
        for callback in [*self.callback_handler.callbacks, self.control]:
            if isinstance(callback, ExportableState):  # one that the run was not begun with
                self.state.stateful_callbacks.setdefault(type(callback).__name__, {})
        folder = Path(self.args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        limit = self.args.save_total_limit
        try:
            # The base class would remove an earlier checkpoint before this one is sealed.
            with temporarily(self.args, save_total_limit=None), explained(folder, self.kept):
                super()._save_checkpoint(model, trial)
                self.accelerator.wait_for_everyone()
                if self.args.should_save:
                    if self.average is not None:
                        self.average.save(folder)
                    seal(folder, self.run)
                    rotate_checkpoints(self.args.output_dir, limit, self.state.best_model_checkpoint)
        except UnwritableError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.kept = str(folder)
        self.totals.pause(began)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Describe what a checkpoint lacks, except for weights that are another's."""
        tied = self.accelerator.unwrap_model(self.model).all_tied_weights_keys
        load_result.missing_keys[:] = [name for name in load_result.missing_keys if name not in tied]
        super()._issue_warnings_after_load(load_result)

    def check_trained(self) -> None:
        """Refuse to go on with a model that is spoiled."""
        self.guard.check()
        check_weights(self.model, self.state.global_step, self.kept)

    def trained_model(self) -> PreTrainedModel:
        model: PreTrainedModel = self.accelerator.unwrap_model(self.model)
        return model.eval()


def without_mixed_precision(model: PreTrainedModel) -> PreTrainedModel:
    """Undo accelerate's change of a model's forward, so that the model computes as it does when saved and loaded."""
    original = vars(model).pop("_original_forward", None)
    if original is not None:
        del model.forward
        if getattr(original, "__func__", None) is not type(model).forward:  # a user's own
            model.forward = original
    return model
