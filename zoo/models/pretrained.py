"""The one PreTrainedModel that all variants share, and the door to their bodies."""

from __future__ import annotations

import itertools
import math
import os
import warnings
import weakref
from contextlib import ExitStack, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_utils import PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from zoo.base.errors import CheckpointError, UnsupportedOperationError, ZooWarning
from zoo.base.manifest import MANIFEST_FILE, recorded, verified
from zoo.fast.experts import has_values

from .capabilities import AttentionBackends
from .checkpoint_files import (
    EXPECTED,
    IN_FLOAT32,
    assign_weights,
    check_described,
    read_errors,
    refuse_other_sizes,
    weight_files,
)
from .configuration import ZooConfig
from .embedding import ValueEmbedding
from .parallel import fully_sharded_plan, pipeline_parallel_plan, tensor_parallel_plan
from .parts import ATTENTIONS, FEED_FORWARDS, INITIALIZERS
from .transformer import transformer_of
from .unit import UnitEmbedding

# Keywords of every forward: `output_attentions`, `output_hidden_states`, `num_items_in_batch` and those of attention
# backends. transformers reads off a forward's signature that it takes them, so a module that defines one
# must not postpone its annotations.
if TYPE_CHECKING:
    from typing import Self

    CallOptions = Any
else:
    CallOptions = Unpack[TransformersKwargs]

EVAL_MODE = (
    "the gradient of a loss is computed in evaluation mode, without dropout, for a {} that was never in training mode: "
    "call model.train() before training; zoo.build and zoo.load return models in evaluation mode, and Lightning's "
    "Trainer leaves them in it"
)


class ZooPreTrainedModel(AttentionBackends):
    """Loading, saving, initialisation and capabilities of every model of the zoo."""

    config_class = ZooConfig
    all_tied_weights_keys: dict[str, str]
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _skip_keys_device_placement = ["past_key_values", "cache"]
    _keep_in_fp32_modules_strict = IN_FLOAT32
    _can_compile_fullgraph = True
    ties: ClassVar[dict[str, tuple[str, str]]] = {}
    """{setting: (target, source)} of parameters that are one if the setting is true."""
    chose_mode = False
    """Whether it was in training mode since it was built, or a warning of evaluation mode was given."""

    @property
    def drops_masks(self) -> bool:
        """Whether an attention mask that masks nothing is as good as none."""
        return transformer_of(self.config).attention_mask is None

    @classmethod
    def from_pretrained(
        cls, *args: Any, use_safetensors: bool | None = True, verify: bool | None = None, **kwargs: Any
    ) -> Any:
        """Load a checkpoint, as transformers does, but from safetensors files only.

        Args:
            args: The folder or repository, and what follows it.
            use_safetensors: Anything but False: a pickled checkpoint can run code when it is opened.
            verify: Whether to compare the weights of a folder with its manifest, if it has one. By default weights that
                differ, as other tools rewrite them, are a warning; with True, as in [`zoo.load`][], an error.

        Returns:
            The model; with `output_loading_info`, also what was missing or unexpected.

        Raises:
            CheckpointError: When pickled weights are asked for, or weights cannot be read, are not those that were
                saved, or are of other sizes than those in the configuration.
        """
        if use_safetensors is False:
            raise CheckpointError("use_safetensors=False was given; the zoo reads weights from safetensors files only")
        source = args[0] if args else kwargs.get("pretrained_model_name_or_path")
        with ExitStack() as stack:
            stack.enter_context(read_errors(source))
            if isinstance(source, (str, os.PathLike)) and os.path.isdir(source):
                folder = Path(source, kwargs.get("subfolder", ""))
                weight_files(folder, kwargs.get("variant"))  # refuses an index that names files elsewhere
                if verify is not False:
                    stack.enter_context(verified(folder, strict=bool(verify)))
            return super().from_pretrained(*args, use_safetensors=True, **kwargs)

    @staticmethod
    def _load_pretrained_model(
        model: PreTrainedModel, state_dict: Any, checkpoint_files: Any, load_config: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Compare the model with the weights of its checkpoint, then load them, as they are if possible."""
        if (expected := EXPECTED.get()) is not None:
            model.tie_weights(recompute_mapping=False)
            check_described(model, expected.shapes, expected.folder)
            expected.is_checked = True
        if state_dict is None and (loaded := assign_weights(model, checkpoint_files, load_config)) is not None:
            return loaded, None
        return PreTrainedModel._load_pretrained_model(model, state_dict, checkpoint_files, load_config, *args, **kwargs)

    @staticmethod
    def _finalize_model_loading(model: PreTrainedModel, load_config: Any, loading_info: Any) -> Any:
        """Refuse weights of other sizes with their names, which transformers only logs."""
        if loading_info.mismatched_keys and not load_config.ignore_mismatched_sizes:
            refuse_other_sizes(model, loading_info.mismatched_keys)
        return PreTrainedModel._finalize_model_loading(model, load_config, loading_info)

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], is_main_process: bool = True, *args: Any, **kwargs: Any
    ) -> None:
        """Save a checkpoint, as transformers does, and write into the folder's manifest what was saved.

        Args:
            is_main_process: Whether this process writes the configuration and the manifest.
        """
        self.follow_ties()
        with recorded(Path(save_directory)) if is_main_process else nullcontext():
            super().save_pretrained(save_directory, is_main_process, *args, **kwargs)

    def _upload_modified_files(
        self, working_dir: Any, repo_id: str, files_timestamps: dict[str, float], *args: Any, **kwargs: Any
    ) -> Any:
        """Push what was saved, as transformers does, but for the manifest, which is about one folder only."""
        timestamps = {**files_timestamps, MANIFEST_FILE: math.inf}
        return super()._upload_modified_files(working_dir, repo_id, timestamps, *args, **kwargs)

    def _can_set_experts_implementation(self: Any = None) -> bool:
        """Whether a model can choose how its experts compute; False of a class, as the configuration decides."""
        return "num_experts_per_tok" in getattr(self and FEED_FORWARDS.get(self.config.feed_forward), "options", {})

    def init_parallel_plans(self) -> None:
        """Leave plans to be made by the existing modules when they are read; transformers makes them by the class."""

    _ep_plan: dict[str, str] = {}
    _tp_plan = cached_property(tensor_parallel_plan)
    _pp_plan = cached_property(pipeline_parallel_plan)
    _fsdp_plan = cached_property(fully_sharded_plan)

    def train(self, mode: bool = True) -> Self:
        self.chose_mode = self.chose_mode or mode
        if all(module.training is mode for module in self.modules()):  # as in every step of transformers' trainer
            return self
        return super().train(mode)

    def warn_in_eval_mode(self, loss: Tensor) -> Tensor:
        """Warn at the first backward pass of a loss in evaluation mode, of a model that was never in training mode."""
        if self.training or self.chose_mode or not loss.requires_grad or not has_values(loss):
            return loss
        model = weakref.ref(self)

        def warn(gradient: Tensor) -> None:
            if (one := model()) is not None and not one.training and not one.chose_mode:
                one.chose_mode = True
                warnings.warn(EVAL_MODE.format(type(one).__name__), ZooWarning, stacklevel=2)

        loss.register_hook(warn)
        return loss

    @property
    def _ddp_params_and_buffers_to_ignore(self) -> list[str]:
        """Buffers that modules declare as `buffers_of_process`; DDP would overwrite them by the first process's."""
        named = ((name, getattr(module, "buffers_of_process", ())) for name, module in self.named_modules())
        return [f"{name}.{buffer}" for name, buffers in named for buffer in buffers]

    @property
    def _is_stateful(self) -> bool:
        return self.config.mixer_layer_type is not None

    def _set_gradient_checkpointing(self, enable: bool = True, *args: Any, **kwargs: Any) -> None:
        """Refuse reentrant checkpointing where gradients reach a layer by another way than its input."""
        function = kwargs.get("gradient_checkpointing_func", args[0] if args else None)
        reentrant = getattr(function, "keywords", {}).get("use_reentrant")
        if enable and reentrant and ATTENTIONS.get(self.config.attention).reads_earlier_layers:
            raise UnsupportedOperationError(
                f"use_reentrant=True was given, which loses gradients with attention={self.config.attention!r}: its "
                "layers read what earlier ones keep; give gradient_checkpointing_kwargs={'use_reentrant': False}"
            )
        super()._set_gradient_checkpointing(enable, *args, **kwargs)

    def _resize_token_embeddings(
        self, new_num_tokens: int | None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resize the embedding, and with it every further table of the same ids."""
        before = self.config.vocab_size
        embedding: nn.Embedding = super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if isinstance(embedding, UnitEmbedding):
            embedding.normalize_from(before)
        for module in self.modules():
            if isinstance(module, ValueEmbedding) and module.num_embeddings == self.config.vocab_size:
                self._get_resized_embeddings(module, embedding.num_embeddings, mean_resizing=mean_resizing)
        return embedding

    def prune_heads(self, heads_to_prune: dict[int, list[int]]) -> None:
        """Raise UnsupportedOperationError: heads of a single layer cannot be removed."""
        raise UnsupportedOperationError(
            "heads cannot be pruned; build a model with fewer num_attention_heads, or zero the heads' columns of o_proj"
        )

    @property
    def _tied_weights_keys(self) -> dict[str, str]:
        """{target: source} of this model's own tied parameters, which transformers reads of an instance."""
        return {target: source for setting, (target, source) in self.ties.items() if getattr(self.config, setting)}

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """{target: source} of every tied parameter, by the configuration's two switches.

        transformers knows one switch, `tie_word_embeddings`; sharing source and target embeddings is independent of it.
        """
        return super().get_expanded_tied_weights_keys(True) if all_submodels else self._tied_weights_keys

    def follow_ties(self) -> None:
        """Correct the settings of ties where weights are tied otherwise, as merging adapters may leave them."""
        for model in reversed([one for one in self.modules() if isinstance(one, ZooPreTrainedModel)]):
            for setting, names in model.ties.items():
                target, source = (weight_at(model, name) for name in names)
                if target is None or source is None:
                    continue
                tied = target is source or (getattr(model.config, setting) and may_be_tied(target, source))
                for config in (self.config, model.config):
                    setattr(config, setting, tied)

    @classmethod
    def get_init_context(cls, *args: Any, **kwargs: Any) -> list[Any]:
        """Context managers for building a model before its weights are read: no random numbers on the meta device."""
        contexts: list[Any] = super().get_init_context(*args, **kwargs)
        is_hollow = any(getattr(context, "type", None) == "meta" for context in contexts)
        return [*contexts, init.no_init_weights()] if is_hollow else contexts

    def mark_tied_weights_as_initialized(self, loading_info: Any) -> None:
        """Mark what will be tied, but not a module that has several names: its weights have no other source.

        transformers would take such a weight for initialised, and not report that a checkpoint lacks it.
        """
        tied = self.all_tied_weights_keys
        self.all_tied_weights_keys = {
            target: source
            for target, source in tied.items()
            if self.get_parameter(target) is not self.get_parameter(source)
        }
        super().mark_tied_weights_as_initialized(loading_info)
        self.all_tied_weights_keys = tied

    def _initialize_missing_keys(self, *args: Any, **kwargs: Any) -> None:
        tensors = itertools.chain(self.parameters(), self.buffers())
        if not all(getattr(tensor, "_is_hf_initialized", False) for tensor in tensors):
            super()._initialize_missing_keys(*args, **kwargs)

    def _initialize_weights(self, module: nn.Module, *args: Any) -> None:
        """Initialise one module, even one without its own parameters."""
        super()._initialize_weights(module)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise one module: first as transformers does, then by the chosen scheme, then by its own rule."""
        super()._init_weights(module)
        INITIALIZERS.get(self.config.initializer)(module, self.config)
        own_rule = getattr(module, "init_weights", None)
        if own_rule is not None and not isinstance(module, PreTrainedModel):
            own_rule()


def may_be_tied(target: Tensor, source: Tensor) -> bool:
    """Whether two weights have equal values; assumed of those that are sharded, which one process cannot compare."""
    if any(weight.is_meta or type(weight.data) is not Tensor for weight in (target, source)):
        return True
    alike = (target.shape, target.dtype) == (source.shape, source.dtype)
    return alike and torch.equal(target, source.to(target.device))


def weight_at(model: nn.Module, name: str) -> Tensor | None:
    """A weight of a model by its name without adapters; None of a module without one."""
    path, _, attribute = name.rpartition(".")
    module: Any = model.get_submodule(path)
    while hasattr(module, "base_layer"):
        module = module.base_layer
    return getattr(module, attribute, None)


class ZooModel(ZooPreTrainedModel):
    """The body of a model, without a head: an encoder, a decoder or both, as the configuration describes.

    Called by itself it builds the right one of [`ZooEncoder`][], [`ZooDecoder`][] and [`ZooEncoderDecoder`][], so that
    it represents all of them in transformers' `AutoModel`.
    """

    def __new__(cls, config: ZooConfig | None = None, *args: Any, **kwargs: Any) -> ZooModel:
        """Choose the class by the configuration's stack; copying and unpickling come with the class and without one."""
        return super().__new__(BODIES[config.stack] if cls is ZooModel and config is not None else cls)

    def forward(self, input_ids: Tensor | None = None, attention_mask: Any = None, **kwargs: Any) -> Any:
        """Compute hidden states. Arguments of every body; the three classes take more, and describe their outputs.

        Args:
            input_ids: Token ids. *Shape:* (batch_size, seq_len)
            attention_mask: 1 for real tokens, 0 for padding. *Shape:* (batch_size, seq_len)
            kwargs: As for the class that the configuration describes.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")


BODIES: dict[str, type[ZooModel]] = {}  # The body class of every kind of stack, filled where the classes are defined
