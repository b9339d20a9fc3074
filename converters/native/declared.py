"""Native formats as tables: fields and weights of a class, and those of the zoo."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar

import torch
from transformers import CONFIG_MAPPING
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto import modeling_auto

from zoo.base.errors import enumerate_names
from zoo.models import ZooConfig
from zoo.models.configuration import MODEL_TYPE
from zoo.models.fields import ANY
from zoo.registry import Registry, Task

from ..errors import ConversionError, LostInputWarning, NoCounterpartError, UnknownConverterError
from ..key_map import KeyMap, Keys, pairs
from ..symmetries.base import Needs, State, admissible, plain_needs
from ..transforms import Transform, zero_bias
from .common import COUNTS_TOKENS, TABLE_POSITIONS, a_stack, labels, tokens


class UnknownNativeError(UnknownConverterError):
    """No such class of transformers is known."""

    kind = "model type of transformers"


AUTO_CLASSES: Mapping[str, Mapping[str, str]] = {  # transformers' own classes by task and model type
    Task.FEATURE_EXTRACTION: modeling_auto.MODEL_MAPPING_NAMES,
    Task.MASKED_LM: modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    Task.CAUSAL_LM: modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    Task.SEQ2SEQ_LM: modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    Task.SEQUENCE_CLASSIFICATION: modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    Task.TOKEN_CLASSIFICATION: modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
}

RELATED = {  # Reasons why model types cannot be converted: the zoo's own, and those that resemble convertible ones
    MODEL_TYPE: "it is a model of the zoo already; zoo.load opens its folder",
    "apertus": "its activation has weights",
    "blenderbot-small": "its decoder's embeddings are normalised before positions are added",
    "encoder-decoder": "convert its encoder and its decoder each by itself",
    "hunyuan_v1_dense": "its queries and keys are normalised after their rotation",
    "lfm2_moe": "weights of the experts that a token sees are divided by a millionth more than their sum",
    "modernbert-decoder": "its language model's head transforms what it projects, as those for masked words do",
    "phimoe": "each of its two experts is weighed among those that score nearly as well as it does",
    "qwen3_5": "convert its language model, which transformers.AutoModelForCausalLM loads by itself",
    "umt5": "every layer has its own relative positions, where all layers of t5 share one table",
}

NORM_BIAS = re.compile(r"norm(_in|_branch|_out)?\.bias$")

RATES = ("dropout", "attention_dropout", "activation_dropout")

RATE = re.compile(r"(?!classifier|qa_|seq_classif|summary)\w*drop")
"""Names of rates of dropout, but for those that only heads read."""

EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Field:
    """A native field and the zoo's, where it is more than another name."""

    name: str
    # Makes the zoo's value of the native configuration, by default the field's value
    read: Callable[[Any], Any] | None = None
    # Makes the native value of the zoo's configuration, by default the zoo's value
    write: Callable[[ZooConfig], Any] | None = None
    has: Any = None  # Values that the class can have, as in `Needs`; any value if not given


def choice(name: str, field: str, values: Mapping[Any, Any]) -> Field:
    """A native field with one value for each of the zoo's values."""
    back = {native: zoo for zoo, native in values.items()}
    return Field(
        name, lambda native: back[getattr(native, name)], lambda config: values[getattr(config, field)], tuple(values)
    )


EMBEDDING_NORM: Mapping[str, Any] = {"embedding_norm": True, "embedding_norm_eps": lambda config: config.layer_norm_eps}
"""A norm on the embeddings, with the epsilon of all norms."""

ALL_BIASES = ("attention_bias", "attention_out_bias", "mlp_bias")


def one_bias(name: str, fields: tuple[str, ...]) -> dict[str, str | Field]:
    """One native field for the biases of several of the zoo's fields: if any layer has some, all get some."""
    return dict.fromkeys(fields, Field(name, has=lambda config: any(getattr(config, field) for field in fields)))


def same(*names: str) -> dict[str, str]:
    """Fields that have the same name on both sides."""
    return {name: name for name in names}


WIDTH_AND_DEPTH = ("hidden_size", "num_hidden_layers", "num_attention_heads")
"""Fields that every configuration of transformers has, which are written by its own names (its `attribute_map`)."""

SIZES: Mapping[str, str] = same("vocab_size", *WIDTH_AND_DEPTH, "tie_word_embeddings")  # Fields of nearly every class


def biasless(names: Mapping[str, str]) -> dict[tuple[str, str], tuple[str, Transform]]:
    """Layer norms that have no bias, which the zoo's have."""
    return {(f"{zoo}.weight", f"{zoo}.bias"): (f"{native}.weight", zero_bias()) for zoo, native in names.items()}


class NativeFormat:
    """A family of classes of transformers with one configuration: its settings and keys, and those of the zoo.

    Most of it is tables; the names of its classes follow from its model type. Attributes may be in the header of a
    subclass as well as in its body; one with a name of its own is registered.
    """

    name: ClassVar[str]  # Name for users, which is its model type
    rank: ClassVar[int]  # Of several classes that fit equally well, that of the lowest rank is taken
    # Model types of transformers that are read in this format, by default its name; the first is written
    model_types: ClassVar[tuple[str, ...]]
    variant: ClassVar[str]  # The variant that its checkpoints become
    stack: ClassVar[str]  # Which stacks its models have: "encoder", "decoder" or "encoder-decoder"
    classes: ClassVar[Mapping[str, str]]  # The class of transformers for every task, by default transformers' own
    prefix: ClassVar[str] = "model."  # Prefix of a body's weights in a model with a head
    computes_in_double: ClassVar[bool] = True  # Whether its classes compute anything in float64
    # Phrases for settings of a model that the class lacks, by field
    reasons: ClassVar[Mapping[str, str]] = EMPTY
    fields: ClassVar[Mapping[str, str | Field]] = EMPTY  # Native fields by the zoo's
    read: ClassVar[Mapping[str, Field]]  # The same, where names alone have become fields
    always: ClassVar[Mapping[str, Any]] = EMPTY  # Settings of the class that differ from `plain_needs`, as in `Needs`
    of_task: ClassVar[Mapping[str, Mapping[str, Any]]] = EMPTY  # More settings of the class, by the task of its head
    only: ClassVar[Mapping[str, Any]] = EMPTY  # Native fields with the only value that can be converted
    # Native fields that follow from the zoo's settings, and are not read; `differences` names other rates of dropout
    follows: ClassVar[Mapping[str, Callable[[ZooConfig], Any]]] = EMPTY
    layers: ClassVar[str] = "layers.{n}"  # Prefix of the layers, with `{n}` for a layer's number
    body: ClassVar[Keys]  # The keys outside of the layers, the zoo's after `model.`
    layer: ClassVar[Keys] = EMPTY
    heads: ClassVar[Mapping[str, Keys]]  # The keys of heads by task
    copies: ClassVar[Mapping[str, str]] = EMPTY  # Native weights that are stored twice, with the name that is read
    unread: ClassVar[tuple[str, ...]] = ()  # Native weights that are computed
    biased_norms: ClassVar[bool] = True  # Whether its layer norms have biases
    untrained: ClassVar[str | None] = None  # Parameters of the zoo's models that its own lack, in the plural
    # What the class needs the id of padding for, as the end of a phrase; None if it needs none
    padding: ClassVar[str | None] = None

    def __init_subclass__(cls, **attributes: Any) -> None:
        super().__init_subclass__()
        for attribute, value in {"rank": vars(cls).get("rank", 1000), **attributes}.items():
            setattr(cls, attribute, value)
        cls.read = {zoo: Field(field) if isinstance(field, str) else field for zoo, field in cls.fields.items()}
        if "name" in vars(cls):
            cls.model_types = vars(cls).get("model_types", (cls.name,))
            known = {task: AUTO_CLASSES[task].get(cls.name) for task in cls.heads}
            cls.classes = vars(cls).get("classes", {task: name for task, name in known.items() if name})
            NATIVE.register(cls.name, cls(), module=cls.__module__)

    def key_map(self, config: ZooConfig, task: str) -> KeyMap:
        """The key map for the task's head: native keys on the left, the zoo's on the right."""
        rows = [
            *pairs(self.keys_of_body(config), "model.", self.prefix, config),
            *pairs(self.keys_of_layer(config), "model.layers.{n}.", f"{self.prefix}{self.layers}.", config),
            *pairs(self.heads[task], "", "", config),
        ]
        return KeyMap.of(*rows, owner=self.name)

    def keys_of_body(self, config: ZooConfig) -> Keys:
        """The keys outside of the layers, where they depend on the settings, as `body`."""
        return self.body

    def keys_of_layer(self, config: ZooConfig) -> Keys:
        """The keys in a layer, where they depend on the settings, as `layer`."""
        return self.layer

    def needs(self, config: ZooConfig, task: str) -> Needs:
        """Values that the classes require, by field, for the settings of a model; other fields are free."""
        return self.has(task)

    def has(self, task: str) -> dict[str, Any]:
        """Settings of the class, for any model."""
        mapped = {name: ANY if field.has is None else field.has for name, field in self.read.items()}
        return {**plain_needs(task), **self.always, **mapped, **self.of_task.get(task, EMPTY)}

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        """Fields of [`ZooConfig`][], for a task, that differ from the variant's defaults, or might."""
        fixed = {name: value for name, value in self.of_task.get(task, EMPTY).items() if self.fields.get(name) == name}
        self.refuse(native, **self.only, **fixed)
        # A class without a field for one of these drops nothing there, whatever the variant's default.
        settings: dict[str, Any] = dict.fromkeys(RATES, 0.0)
        settings |= {zoo: f.read(native) if f.read else getattr(native, f.name) for zoo, f in self.read.items()}
        needs = {name: need for name, need in self.has(task).items() if name not in settings}
        for name, need in sorted(needs.items(), key=lambda item: callable(item[1])):  # those that follow come last
            value = admissible(need, SimpleNamespace(**settings))[0]  # type: ignore[arg-type]
            settings |= {} if value is ANY else {name: value}
        return {**settings, **tokens(native, self.stack), **labels(native, task)}

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        """Fields of the native configuration, for settings that fulfil `needs`."""
        written = {**self.only, **{name: write(config) for name, write in self.follows.items()}}
        written |= {f.name: f.write(config) if f.write else getattr(config, name) for name, f in self.read.items()}
        names = CONFIG_MAPPING[self.model_types[0]].attribute_map
        written |= {names[name]: written.pop(name) for name in WIDTH_AND_DEPTH if name in {*names} & {*written}}
        return {**written, **tokens(config, self.stack), **labels(config, task)}

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        """Obstacles other than settings, such as weights."""
        found = [] if config.stack == self.stack else [f"it is {a_stack(config)}, this is {a_stack(self)}"]
        if not self.biased_norms and any(NORM_BIAS.search(name) and value.any() for name, value in state.items()):
            found.append("its norms have biases, which this class's lack")
        if self.padding is not None and config.pad_token_id is None:
            found.append(f"pad_token_id is None{self.padding}")
        return found

    def meaningless(self, task: str) -> tuple[str, ...]:
        """Names of native weights that are stored twice, or that the zoo has no use for."""
        return (*self.copies, *self.unread)

    def compute_in_float32(self, model: Any) -> None:
        """Compute again what the class rounds to the weights' 16 bits, and the zoo does not."""
        for module in model.modules():
            if hasattr(module, "scalar_embed_scale"):  # A factor on embeddings, as of Gemma
                module.embed_scale = torch.tensor(module.scalar_embed_scale)

    def read_weights(self, native: Any, state: State, task: str) -> State:
        """Prepare native weights for the key map, with a warning if exports will have another model type."""
        if native.model_type != self.model_types[0]:
            warnings.warn(
                f"the way back from the zoo is {self.model_types[0]!r}, {native.model_type!r} has the same code; "
                "a tokenizer that is chosen by the model type has to be named",
                LostInputWarning,
                stacklevel=2,
            )
        meaningless = self.meaningless(task)
        return {name: tensor for name, tensor in state.items() if name not in meaningless}

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Complete native weights after the key map: add what is stored twice or means nothing."""
        return {**state, **{copy: state[name] for copy, name in self.copies.items() if name in state}}

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        """Add settings that only weights show (computed positions, tied embeddings); return the other weights."""
        return state

    def output(self, config: ZooConfig, task: str) -> str:
        """Where the class returns the model's output: "logits", "last_hidden_state" or "hidden_states[-2]"."""
        return "last_hidden_state" if task == Task.FEATURE_EXTRACTION else "logits"

    def notes(self, config: ZooConfig, task: str) -> list[str]:
        counts_tokens = self.needs(config, task).get("position") == TABLE_POSITIONS
        return [COUNTS_TOKENS] if counts_tokens and config.position != TABLE_POSITIONS[0] else []

    def differences(self, native: Any, read: Mapping[str, Any], config: ZooConfig) -> list[str]:
        """Name differences, after `read_config`, that outputs of the two models do not show, as rates of dropout."""
        names = (*RATES, "classifier_dropout") if "id2label" in read else RATES  # classifiers alone have labels
        ours = {name: getattr(config, name) for name in names} | self.further_rates(native, config)
        theirs = {**vars(native), "classifier_dropout": read.get("dropout", config.dropout), **read}
        lost = {name: rate for name, rate in ours.items() if theirs.get(name, rate) != rate}
        listed = "; ".join(f"{name}={theirs[name]} in {self.name}, {rate} in the zoo" for name, rate in lost.items())
        found = [f"rates of dropout differ: {listed}"] if lost else []
        if untrained := self.untrained or (None if self.biased_norms else "biases of norms"):
            found.append(f"{untrained} are trained in the zoo, and {self.name} has none: freeze them to go back")
        return found

    def further_rates(self, native: Any, config: ZooConfig) -> dict[str, float]:
        """The zoo's rates in place of those of a class that no setting has, by the class's names."""
        names = {name for name in native.to_dict() if RATE.match(name)} - {field.name for field in self.read.values()}
        return {name: self.follows[name](config) if name in self.follows else 0.0 for name in sorted(names)}

    def refuse(self, native: Any, **expected: Any) -> None:
        """Raise NoCounterpartError, naming every field with another value than the only one expected."""
        wrong = []
        for field, value in expected.items():
            if (given := getattr(native, field, value)) != value:
                wrong.append(f"{field}={given!r} is set, only {value!r} can be converted")
        if wrong:
            raise NoCounterpartError(self.name, wrong)


NATIVE: Registry[NativeFormat] = Registry(
    "native class", built_in="zoo.converters.native", error=UnknownNativeError, definition=type
)
"""All native formats by name. Plugins may add some."""


def format_of(native: PreTrainedConfig, origin: str | None = None, name: str = "the checkpoint") -> NativeFormat:
    """The format of a configuration, which has to be `origin` if that is given; `name` is for the message."""
    by_type = {model_type: NATIVE.get(name) for name in NATIVE for model_type in NATIVE.get(name).model_types}
    if native.model_type in RELATED:
        raise NoCounterpartError(native.model_type, [RELATED[native.model_type]])
    UnknownNativeError.check(native.model_type, valid=sorted(by_type))
    found = by_type[native.model_type]
    if origin not in (None, found.name):
        raise ConversionError(f"origin={origin!r} was given, but {name} is {found.name}")
    return found


def class_names(found: NativeFormat, model_type: str) -> dict[str, str]:
    """The classes of a model type, which may be a sibling that shares the format's code."""
    if model_type == found.model_types[0]:
        return dict(found.classes)
    return {task: AUTO_CLASSES[task][model_type] for task in found.classes if model_type in AUTO_CLASSES[task]}


def task_of_class(found: NativeFormat, native: PreTrainedConfig, *names: str) -> str:
    tasks = {name: task for task, name in class_names(found, native.model_type).items()}
    for name in names:
        if name in tasks:
            return tasks[name]
    by_class = ", ".join(f"{name} ({task})" for name, task in tasks.items())
    if found.stack == "encoder-decoder" and names[0].endswith(("EncoderModel", "ForCausalLM")):
        lacks = f"{names[0]} is one stack of an encoder-decoder; converted are {by_class}"
        raise NoCounterpartError(found.name, [lacks])
    lacks = (
        f"{names[0]} has a head that no model of the zoo has; converted are {by_class}; with task= (on the command "
        "line --set task=...) another head is taken, or with feature-extraction none"
    )
    raise NoCounterpartError(found.name, [lacks])


def task_of_architecture(found: NativeFormat, native: PreTrainedConfig, name: str) -> str:
    if not native.architectures:
        raise ConversionError(
            f"the configuration of {name} names no architecture, so its head is not known; give task= (on the command "
            f"line --set task=...), one of {enumerate_names(found.classes)}; feature-extraction leaves heads out"
        )
    return task_of_class(found, native, native.architectures[0])
