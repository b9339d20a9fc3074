"""From a variant's name to a configuration and a model."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from zoo.base.errors import ConfigError, InvalidChoiceError, UnknownOverrideError, ZooWarning
from zoo.building.completion import spell_out
from zoo.building.keywords import Settings
from zoo.building.proportions import SIZES, follow
from zoo.building.starting import UnequalStartWarning, unequal_starts
from zoo.models import TASK_CLASSES, Position, ZooConfig, ZooPreTrainedModel
from zoo.models.capabilities import limits_of
from zoo.models.choices import PARAMETRIZATIONS
from zoo.models.fields import BESIDE_FIELDS, SETTINGS, usual_range
from zoo.models.parametrization import mup_settings
from zoo.models.parts import ATTENTIONS, NORMS, PART_FIELDS, POSITIONS, deviations_of_parts
from zoo.models.validation import rescaled
from zoo.models.widths import BASE_WIDTH
from zoo.registry import VARIANTS, Facts, Task, Variant, find_facts_with, parse_name

if TYPE_CHECKING:
    from typing import Unpack

    from zoo.building.literals import TaskName, VariantName
    from zoo.building.loading import ModelOfAnyTask

OWN_STACK = {Task.CAUSAL_LM: "decoder", Task.SEQ2SEQ_LM: "encoder-decoder", Task.MASKED_LM: "encoder"}
"""The stack of tasks that leave no choice."""

KEPT_BESIDE = (
    *("num_labels", "problem_type", "layer_types", "rope_parameters"),
    *("num_nextn_predict_layers", "mtp_loss_weight"),
)
"""Keys of any configuration that are not fields of every one."""

KNOWN = {*(one.name for one in dataclasses.fields(ZooConfig)), *ZooConfig.attribute_map, *BESIDE_FIELDS}
KNOWN -= {"variant", "quirks", "providers"}
"""Settings that every variant takes."""

PATTERNS = frozenset({"layer_types", "nope_layers"})
"""Settings that are a pattern of layers. With fewer layers than the variant's pattern, its end is used."""


def stack_of(variant: Variant, task: str) -> str:
    if task in OWN_STACK:
        return OWN_STACK[Task(task)]
    if task == Task.FEATURE_EXTRACTION and variant.default_task != task:
        return stack_of(variant, variant.default_task)
    return "decoder" if Task.CAUSAL_LM in variant.tasks and Task.MASKED_LM not in variant.tasks else "encoder"


def config(
    name: VariantName | str,
    task: TaskName | str | None = None,
    *,
    faithful: bool = False,
    quirks: Iterable[str] = (),
    **overrides: Unpack[Settings],
) -> ZooConfig:
    """Put together the configuration of a variant.

    Sizes that are not given follow `hidden_size` and `num_attention_heads` in the proportions of the variant's
    definition or preset: the feed-forward's inner width, latent ranks, the number of heads and of key-value heads.
    A warning names the sizes that stay. `sizes="fixed"` leaves all as they are defined.

    Args:
        name: A variant's name, possibly with settings: "vanilla", "vanilla@small+faithful", "pre-norm:position=rotary".
        task: Task of the model, by default the variant's first task.
        faithful: Whether to switch on every quirk of the original.
        quirks: Names of quirks to switch on.
        overrides: Fields of [`ZooConfig`][] that differ from the variant's defaults.

    Raises:
        ZooError: When a name, task, quirk or field is unknown, or values contradict each other.
    """
    spec = parse_name(name)
    variant = VARIANTS.get(spec.name)
    task = variant.check_task(task)
    names = tuple(quirks) if isinstance(quirks, Iterable) and not isinstance(quirks, str) else (quirks,)
    if not all(isinstance(one, str) for one in names):
        raise ConfigError(f"quirks={quirks!r} was given; it must be names of quirks")
    quirks = variant.check_quirks((*spec.quirks, *names), faithful=faithful or spec.faithful)
    settings = variant.settings(task, preset=spec.preset, quirks=quirks)
    stack = stack_of(variant, task)
    settings.update(is_decoder=stack == "decoder", is_encoder_decoder=stack == "encoder-decoder")
    given = {**spec.overrides, **Settings(**overrides)}
    sizes = given.pop("sizes", "follow")
    InvalidChoiceError.check(sizes, valid=list(SIZES), kind="sizes")
    if sizes == "follow" and given.keys() & {"hidden_size", "num_attention_heads"}:
        settings.update(sizes_that_follow(name, settings, given))
    settings.update(with_own_rotations(settings, given) if "rope_parameters" in given else given)
    for field in PATTERNS - given.keys():
        if "num_hidden_layers" in settings and settings.get(field):
            settings[field] = settings[field][-settings["num_hidden_layers"] :]
    if settings.keys() - KNOWN:
        check_settings(variant, settings)
    parametrization = settings.pop("parametrization", "standard")
    made = ZooConfig(variant=variant.name, quirks=list(quirks), **settings)
    if parametrization == "standard":
        return made
    InvalidChoiceError.check(parametrization, valid=list(PARAMETRIZATIONS), kind="parametrization")
    return in_mup(made, settings, given)


spell_out(config, Settings)


def with_own_rotations(settings: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Given settings, with rotary ones that keep the base and the share of channels of the variant's definition."""
    position = {**settings, **given}.get("position")
    part = POSITIONS.get(position) if isinstance(position, str) and position in POSITIONS else Position
    own = settings.get("rope_parameters", part.default_rope_parameters)
    return {**given, "rope_parameters": rescaled(given["rope_parameters"], own)}


def in_mup(made: ZooConfig, settings: dict[str, Any], given: dict[str, Any]) -> ZooConfig:
    """The configuration that settings make in maximal update parametrization, by the one that they make without."""
    if "initializer" in given:
        raise ConfigError(f"initializer={made.initializer!r} was given; parametrization='mup' has its own")
    scaled = mup_settings(made)  # which refuses wrong base widths
    as_base = {"initializer_range": usual_range(settings.get("mup_base_width", BASE_WIDTH), made.initializer_width)}
    return ZooConfig(variant=made.variant, quirks=made.quirks, **{**as_base, **settings, **scaled})


def sizes_that_follow(name: str, settings: dict[str, Any], given: dict[str, Any]) -> dict[str, int]:
    """Sizes of a definition that follow given ones; a warning names those that stay."""
    attention = {**settings, **given}.get("attention")
    part = ATTENTIONS.get(attention) if isinstance(attention, str) and attention in ATTENTIONS else None
    followed, stay = follow(settings, given, getattr(part, "head_multiple", 1))
    if stay:
        kept = ", ".join(f"{size}={value}" for size, value in stay.items())
        warnings.warn(f"hidden_size={given['hidden_size']} is given, and {name!r} keeps {kept}", ZooWarning, 3)
    return followed


def check_settings(variant: Variant, settings: dict[str, Any]) -> None:
    """Refuse settings that no variant takes, unless this one or its parts have them."""
    known = {*KNOWN, *variant.defaults, *(key for preset in variant.presets.values() for key in preset)}
    parts = (registry.get(settings[key]) for key, registry in PART_FIELDS.items() if settings.get(key) in registry)
    known.update(option for part in parts for option in getattr(part, "options", ()))
    if "pretrained" in settings:
        value = settings["pretrained"]
        raise ConfigError(f"pretrained={value} was given; zoo.build makes new weights, zoo.load loads trained ones")
    UnknownOverrideError.check(*settings, valid=sorted(known), owner=f"variant {variant.name!r}")


def build(name: str, task: str | None = None, *, seed: int | None = None, **settings: Any) -> ModelOfAnyTask:
    """Build a new model of a variant, as [`zoo.build`][] does."""
    loading = {key: settings.pop(key) for key in ("attn_implementation", "dtype") if key in settings}
    model_config = config(name, task, **settings)
    task = VARIANTS.get(model_config.variant).check_task(task)
    with nullcontext() if seed is None else seeded(seed):
        model = TASK_CLASSES[task][1]._from_config(model_config, **loading)
    if ":" in name or settings.keys() - {"faithful", "quirks"}:
        warn_of_settings(model, name, task, settings)
    return model.eval()


def check_seed(seed: int) -> None:
    """Refuse a seed that torch's generators do not take."""
    if not -(2**63) <= seed < 2**64:
        raise ConfigError(f"seed={seed} is not valid; valid: {-(2**63)} to {2**64 - 1}")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw reproducible numbers for a while, on the device where tensors are made, and no other's generator touched."""
    check_seed(seed)
    device = torch.get_default_device()
    if device.type in ("cpu", "meta"):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            yield
        return
    generators = torch.get_device_module(device)
    index = generators.current_device() if device.index is None else device.index
    with torch.random.fork_rng(devices=[index], device_type=device.type), torch.device(device.type, index):
        torch.default_generator.manual_seed(seed)
        generators.manual_seed(seed)
        yield


def skeleton(name: str, task: str | None = None, **settings: Any) -> ZooPreTrainedModel:
    """Build a model without weights: all of its modules and shapes, on the meta device, where nothing is allocated."""
    model_config = config(name, task, **settings)
    task = VARIANTS.get(model_config.variant).check_task(task)
    with torch.device("meta"):
        return TASK_CLASSES[task][1](model_config).eval()


def count_parameters(name: str, task: str | None = None, **overrides: Any) -> int:
    """Count the parameters of a variant without allocating them."""
    return skeleton(name, task, **overrides).num_parameters()


@find_facts_with
def find_facts(name: str) -> Facts:
    settings = config(name)
    return Facts(count_parameters(name), limits_of(settings), deviations_of_parts(vars(settings)))


def warn_of_settings(model: ZooPreTrainedModel, name: str, task: str, overrides: dict[str, Any]) -> None:
    """Warn of an unequal start, and of settings that differ from a variant's own and change nothing in the model."""
    for phrase in unequal_starts(model):
        warnings.warn(f"{name!r}: {phrase}", UnequalStartWarning, stacklevel=4)
    spec = parse_name(name)
    own = VARIANTS.get(spec.name).settings(task, preset=spec.preset, quirks=model.config.quirks)
    given = {field: value for field, value in {**spec.overrides, **overrides}.items() if field in SETTINGS}
    changed = (field for field, value in given.items() if own.get(field, SETTINGS[field].default) != value)
    if unread := [f"{field}={given[field]}" for field in changed if not is_read(field, model, task)]:
        warnings.warn(f"a model of {spec.name!r} for {task} does not read {', '.join(unread)}", ZooWarning, 4)


def is_read(field: str, model: ZooPreTrainedModel, task: str) -> bool:
    """Whether a setting can change a model for a task with the other settings of its configuration."""
    setting, config = SETTINGS[field], model.config
    if setting.changes not in ("shapes", "numbers"):
        return True
    norm = NORMS.get(config.norm)
    if field in ("norm", "layer_norm_eps") and isinstance(norm, type):  # of ReZero, for one, models have no norms
        return any(isinstance(module, norm) or hasattr(module, "eps") for module in model.modules())
    parts = [registry.get(getattr(config, part)) for part, registry in PART_FIELDS.items()]
    if any(field in part.unread(config) for part in parts if hasattr(part, "unread")):
        return False
    return setting.is_read(task) and setting.is_read_in(config)
