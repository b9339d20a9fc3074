"""Models by any name: a variant, weights, a folder, a repository on the Hub."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, overload

from zoo.base.errors import ConfigError
from zoo.building import builder
from zoo.building.completion import spell_out
from zoo.building.keywords import BuildOptions
from zoo.building.loading import AnyModel
from zoo.building.weights import locate, locate_weights
from zoo.converters.opening import open_folder
from zoo.hub import is_address
from zoo.registry import find_weights, is_weights_name

TYPE_CHECKING = False  # for jedi, which would take the overloads alone
if TYPE_CHECKING:
    from typing import Unpack

    from zoo.building.literals import TaskName, VariantName, WeightsName
    from zoo.building.loading import ModelOfAnyTask
    from zoo.models import (
        ZooForCausalLM,
        ZooForConditionalGeneration,
        ZooForMaskedLM,
        ZooForSequenceClassification,
        ZooForTokenClassification,
        ZooModel,
    )

HUB_OPTIONS = ("revision", "cache_dir", "token", "offline", "force_download")
"""Arguments of [`zoo.pull`][] that `load` passes on."""


if TYPE_CHECKING:

    @overload
    def build(name: str, task: Literal["feature-extraction"], **overrides: Unpack[BuildOptions]) -> ZooModel: ...
    @overload
    def build(name: str, task: Literal["masked-lm"], **overrides: Unpack[BuildOptions]) -> ZooForMaskedLM: ...
    @overload
    def build(
        name: str, task: Literal["sequence-classification"], **overrides: Unpack[BuildOptions]
    ) -> ZooForSequenceClassification: ...
    @overload
    def build(
        name: str, task: Literal["token-classification"], **overrides: Unpack[BuildOptions]
    ) -> ZooForTokenClassification: ...
    @overload
    def build(name: str, task: Literal["causal-lm"], **overrides: Unpack[BuildOptions]) -> ZooForCausalLM: ...
    @overload
    def build(
        name: str, task: Literal["seq2seq-lm"], **overrides: Unpack[BuildOptions]
    ) -> ZooForConditionalGeneration: ...
    @overload
    def build(
        name: VariantName | WeightsName | str,
        task: TaskName | str | None = None,
        *,
        faithful: bool = False,
        quirks: Iterable[str] = (),
        seed: int | None = None,
        weights: str | None = None,
        **overrides: Unpack[BuildOptions],
    ) -> ModelOfAnyTask: ...


def build(
    name: str,
    task: str | None = None,
    *,
    faithful: bool = False,
    quirks: Iterable[str] = (),
    seed: int | None = None,
    weights: str | None = None,
    **overrides: Any,
) -> AnyModel:
    """Build a model of a variant, with new weights or named ones, in evaluation mode.

    Call `model.train()` before a training loop of your own: transformers' `from_pretrained` does the same, and its
    Trainer switches modes by itself.

    Args:
        name: A variant's name, possibly with settings: "vanilla", "vanilla@small+faithful", "pre-norm:position=rotary";
            that of weights, "vanilla.en-pt" ([`zoo.list_weights`][]); or "hf-hub:org/name@revision" for a model on the
            Hub, with its weights.
        task: Task of the model, by default the variant's first task: one of feature-extraction, masked-lm,
            sequence-classification, token-classification, causal-lm, seq2seq-lm.
        faithful: Whether to switch on every quirk of the original.
        quirks: Names of quirks to switch on.
        seed: Makes the weights reproducible; the generators' state is left as it was.
        weights: The tag of weights of the variant: `build("vanilla", weights="en-pt")` is `build("vanilla.en-pt")`.
        overrides: Fields of [`zoo.models.ZooConfig`][] that differ from the variant's defaults, `attn_implementation`,
            `dtype`; for trained weights as for [`load`][], where another `num_labels` or `vocab_size` makes a new head.

    Returns:
        A `PreTrainedModel` with random weights, or those that were named, in evaluation mode.

    Raises:
        ZooError: When a name, task, quirk or field is unknown, values contradict each other, or weights are damaged.
    """
    if weights is None and not (isinstance(name, str) and (is_weights_name(name) or is_address(name))):
        options = BuildOptions(**overrides)  # type: ignore[typeddict-item]
        return builder.build(name, task, faithful=faithful, quirks=quirks, seed=seed, **options)
    new = {"faithful": faithful, "quirks": quirks, "seed": seed is not None}
    return open_trained(name, task, weights, [key for key, is_given in new.items() if is_given], **overrides)


spell_out(build, BuildOptions)


def open_trained(name: str, task: str | None, weights: str | None, given: list[str], **overrides: Any) -> AnyModel:
    """Open named weights, or a model on the Hub; `given` are arguments for new weights."""
    on_hub = isinstance(name, str) and is_address(name)
    if given or (on_hub and weights is not None):
        kind = f"{name} is" if weights is None else f"{name} with weights={weights!r} is"
        raise ConfigError(f"{kind} built as it was trained, so it takes no {(given or ['weights'])[0]}")
    if on_hub:
        return load(name, task, **overrides)
    hub_options = {key: overrides.pop(key) for key in HUB_OPTIONS if key in overrides}
    return open_folder(locate_weights(find_weights(name, weights), **hub_options), task, **overrides)


if TYPE_CHECKING:

    @overload
    def load(path: str | Path, task: Literal["feature-extraction"], **kwargs: Any) -> ZooModel: ...
    @overload
    def load(path: str | Path, task: Literal["masked-lm"], **kwargs: Any) -> ZooForMaskedLM: ...
    @overload
    def load(
        path: str | Path, task: Literal["sequence-classification"], **kwargs: Any
    ) -> ZooForSequenceClassification: ...
    @overload
    def load(path: str | Path, task: Literal["token-classification"], **kwargs: Any) -> ZooForTokenClassification: ...
    @overload
    def load(path: str | Path, task: Literal["causal-lm"], **kwargs: Any) -> ZooForCausalLM: ...
    @overload
    def load(path: str | Path, task: Literal["seq2seq-lm"], **kwargs: Any) -> ZooForConditionalGeneration: ...
    @overload
    def load(path: str | Path, task: str | None = None, **kwargs: Any) -> ModelOfAnyTask: ...


def load(path: str | Path, task: str | None = None, **kwargs: Any) -> AnyModel:
    """Load a checkpoint of the zoo, or convert one of transformers' own classes, from a folder or the Hub.

    Args:
        path: A folder that `save_pretrained` wrote; the name of weights, "vanilla.en-pt"; or "org/name",
            "org/name@revision", "hf-hub:name".
        task: The head to load, by default the one that was saved.
        kwargs: As for `from_pretrained`: `dtype`, `device_map`, `attn_implementation`, `subfolder`, `variant` (of the
            weight files), ...; where the checkpoint is converted, only `dtype`, `attn_implementation` and `subfolder`;
            another `num_labels` or `vocab_size`, for a new head; `verify=False` to load weights that are not those of
            the folder's manifest; for a repository also `revision`, `cache_dir`, `token`, `offline` and
            `force_download` as for [`zoo.pull`][].

    Returns:
        The model, in evaluation mode.

    Raises:
        CheckpointError: When the folder is missing, empty, truncated, or holds something else.
        ConversionError: When a checkpoint of transformers' own classes cannot be converted.
        UnknownOverrideError: When it can, but not with these options.
        MissingPluginError: When the variant, or a part, comes from a plugin that is not there.
        HubError: When a repository cannot be had.
        ZooError: When the configuration is not valid.
    """
    hub_options = {key: kwargs.pop(key) for key in HUB_OPTIONS if key in kwargs}
    return open_folder(locate(path, **hub_options) / kwargs.pop("subfolder", ""), task, **kwargs)
