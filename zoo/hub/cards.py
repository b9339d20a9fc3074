"""Model cards: what is known about a checkpoint, as the README of its repository; and Spaces in which to explore it."""

import importlib.metadata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from huggingface_hub import CommitOperationAdd, EvalResult, ModelCard, ModelCardData, SpaceCard, SpaceCardData

from zoo.base.errors import ZooError
from zoo.base.files import read_object
from zoo.base.folders import relative_files
from zoo.base.formats import installed_version
from zoo.base.manifest import CODE_FILE, MANIFEST_FILE
from zoo.models.fields import stated

from .addresses import MAIN, Address
from .client import LIBRARY, Hub
from .folders import CONFIG, WEIGHTS
from .pulling import is_distribution

LENGTH = 128  # Tokens of the text, or of source and target each, on which operations are counted


def describe_axes(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "variant" not in config:
        return [("Model type", str(config.get("model_type", "unknown")))]
    settings = SimpleNamespace(**config)

    def row(place: str, *words: str) -> str:
        return ", ".join((*words, *stated(settings, place)))

    one_stack = "decoder" if config.get("is_decoder") else "encoder"
    stack = "encoder-decoder" if config.get("is_encoder_decoder") else one_stack
    heads = _pair(config, "num_attention_heads", "decoder_attention_heads")
    wide = config.get("head_dim")
    biases = "with biases" if config.get("attention_bias") else "without biases"
    inner = _pair(config, "intermediate_size", "decoder_intermediate_size")
    shared = ["source and target shared"] if config.get("share_encoder_decoder_embeddings") else []
    tied = "tied to the output" if config.get("tie_word_embeddings") else "not tied"
    axes = {
        "Variant": f"`{config['variant']}`",
        "Stack": row("stack", stack),
        "Width": config.get("hidden_size"),
        "Layers": _pair(config, "num_hidden_layers", "decoder_layers"),
        "Vocabulary": _pair(config, "vocab_size", "decoder_vocab_size"),
        "Positions": row("positions", f"{config.get('position')}, up to {config.get('max_position_embeddings')}"),
        "Norm": f"{config.get('norm')}, placed: {config.get('norm_placement')}",
        "Attention": row("attention", f"{config.get('attention')}, {heads} heads, {wide} wide", biases),
        "Feed-forward": row("feed_forward", f"{config.get('feed_forward')}, {config.get('hidden_act')}, {inner} wide"),
        "Residual": row("residual") or "plain",
        "Embeddings": row("embeddings", tied, *shared),
        "Output": row("output") or None,
        "Other settings": row("other") or None,
    }
    return [(axis, str(value)) for axis, value in axes.items() if value is not None]


def _pair(config: Mapping[str, Any], field: str, decoder_field: str) -> str:
    own, decoder = config.get(field), config.get(decoder_field)
    return f"{own} and {decoder}" if config.get("is_encoder_decoder") and decoder is not None else str(own)


TEMPLATE, SPACE_TEMPLATE = (Path(__file__).with_name(f"{page}.md.jinja") for page in ("card", "space"))

PIPELINES = {
    "ForMaskedLM": ("AutoModelForMaskedLM", "fill-mask"),
    "ForSequenceClassification": ("AutoModelForSequenceClassification", "text-classification"),
    "ForTokenClassification": ("AutoModelForTokenClassification", "token-classification"),
    "ForCausalLM": ("AutoModelForCausalLM", "text-generation"),
    "ForConditionalGeneration": ("AutoModelForSeq2SeqLM", "text2text-generation"),
    "Model": ("AutoModel", "feature-extraction"),
}
"""The Auto class and the Hub's task of a saved class, by how its name ends."""

SEVERAL_LABELS = (
    "Labels {} positions of a text: transformers' pipeline for text classification, which reads one label, would take "
    "the largest of all scores for it; `zoo predict` gives each."
)
"""Text for a classifier of positions, which no pipeline supports."""

EARLIER = (
    "Predicts a masked token one position earlier: transformers' pipeline for masked words reads the prediction at the "
    "mask, and would give other words; `zoo predict` gives its own."
)
"""Text for a model of masked next-token prediction, which no pipeline supports."""

MARKUP = str.maketrans({character: f"&#{ord(character)};" for character in "&<>`*[]|\\~@"})
"""How a page shows characters that would be markup."""

VERSIONS = (LIBRARY, "torch", "transformers", "huggingface_hub")  # Distributions with versions in a card


@dataclass(frozen=True)
class CardFacts:
    """Facts for a card that are not in the checkpoint."""

    tags: tuple[str, ...] = ()  # Words to find the repository by
    license: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    # How well it does: `EvalResult`s, or mappings with their fields
    eval_results: tuple[EvalResult | Mapping[str, Any], ...] = ()
    limits: tuple[str, ...] = ()  # Known limitations, in sentences
    # Which exports were made: mappings with `target`, `verified` and `difference`
    exports: tuple[Mapping[str, Any], ...] = ()
    native: Mapping[str, str] | None = None  # The native export's `target`, `auto_class` and `revision`
    space: bool = False  # Whether a Space of the same name exists


def write_card(folder: Path, address: Address, facts: CardFacts) -> str:
    from zoo.converters.bundle import code_section
    from zoo.models.checkpoint_files import saved_shapes

    config = read_object(folder / CONFIG)
    shown = {
        key: value if isinstance(value, (int, float)) else as_text(value) for key, value in config.items() if value
    }
    about_model = facts_of_model(config)
    is_packed = "quantization_config" in config  # tensors have other sizes than parameters
    shapes = {} if is_packed else saved_shapes(sorted(folder.glob(WEIGHTS)))
    auto_class, pipeline = auto_class_of(config)
    known = variant_facts(config)
    if pipeline == "text-classification" and "classifier_positions" in shown:
        pipeline = None
        known["limits"] = (*known["limits"], SEVERAL_LABELS.format(shown["classifier_positions"]))
    if pipeline == "fill-mask" and shown.get("masked_next_token"):
        pipeline = None
        known["limits"] = (*known["limits"], EARLIER)
    results = [eval_result(result, pipeline) for result in facts.eval_results]
    name = address.repo_id.rpartition("/")[2]
    tags = list(dict.fromkeys(tag for tag in (LIBRARY, config.get("variant"), *facts.tags) if tag))
    about: dict[str, Any] = {"license": facts.license, "library_name": LIBRARY, "pipeline_tag": pipeline, "tags": tags}
    opening = f"A model of type `{shown.get('model_type', 'unknown')}`, pushed with the transformer-zoo."
    if "variant" in shown:
        opening = f"A `{shown['variant']}` Transformer of the transformer-zoo."
    data = ModelCardData(**about, model_name=name, eval_results=results or None)
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        model_name=name,
        repo_id=address.repo_id,
        address=str(address),
        revision_argument="" if address.revision == MAIN else f', revision="{address.revision}"',
        text=as_text,
        opening=opening,
        auto_class=auto_class,
        axes=describe_axes(shown),
        parameters=about_model.pop("parameters") or sum(map(prod, shapes.values())),
        has_code="auto_map" in config,
        code=code_section(folder) if (folder / CODE_FILE).is_file() else "",
        native=facts.native,
        space=facts.space,
        recipe=dict(facts.recipe),
        results=results,
        exports=facts.exports,
        provenance=provenance(shown, known.pop("origin", None)),
        new_plugin=f" {config['provider']}" if is_distribution(config.get("provider")) else "",
        **about_model,
        **{**known, "limits": (*map(as_text, facts.limits), *known["limits"])},
    )
    return str(card)


def as_text(value: Any) -> str:
    """Write what comes from a checkpoint's files so that a page shows it and does nothing else with it."""
    return " ".join(str(value).split()).translate(MARKUP).replace("://", "&#58;//")


def auto_class_of(config: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Which of transformers' Auto classes loads a checkpoint."""
    named = config.get("architectures")
    saved = str(named[0]) if isinstance(named, list) and named else ""
    return next((pair for ending, pair in PIPELINES.items() if saved.endswith(ending)), (None, None))


def variant_facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """The registry's facts about a checkpoint's variant; few if it is not registered."""
    from zoo.models import ZooConfig
    from zoo.models.capabilities import limits_of
    from zoo.models.parts import deviations_of_parts
    from zoo.registry import VARIANTS

    listed = config.get("quirks")
    on = [str(name) for name in listed] if isinstance(listed, list) else []
    unknown: dict[str, Any] = {"limits": ("As its training and data.",), "quirks": dict.fromkeys(map(as_text, on), "")}
    if "variant" not in config:
        return unknown
    try:
        variant = VARIANTS.get(str(config["variant"]))
        settings = ZooConfig.from_dict(dict(config))
        limits = (*variant.limits, *limits_of(settings), *variant.deviations, *deviations_of_parts(vars(settings)))
    except ZooError:
        return unknown
    positions = config.get("max_position_embeddings")
    lengths = (f"Made for sequences of up to {positions:,} tokens.",) if isinstance(positions, int) else ()
    return {
        **{name: getattr(variant, name) for name in ("summary", "description", "paper", "source", "origin")},
        "limits": (*limits, *lengths) or unknown["limits"],
        "quirks": {name: variant.quirks[name].description if name in variant.quirks else "" for name in on},
    }


def facts_of_model(config: Mapping[str, Any]) -> dict[str, Any]:
    """Draw a checkpoint's blocks as text, and count its parameters and operations.

    Nothing of what a variant's own code prevents. Exports have no tensors to count, and quantised weights other ones.
    """
    facts: dict[str, Any] = {"drawing": None, "parameters": None, "flops": None, "length": 0}
    if "variant" not in config:
        return facts
    import torch

    from zoo.analysis.drawing import draw, to_text
    from zoo.analysis.measuring import flops_per_token
    from zoo.analysis.own_settings import own_settings
    from zoo.models import TASK_CLASSES, ZooConfig
    from zoo.registry import VARIANTS

    auto_class, _ = auto_class_of(config)
    found = next((task for task, (name, _) in TASK_CLASSES.items() if name == auto_class), None)
    try:
        settings = ZooConfig.from_dict(dict(config))
        task = VARIANTS.get(settings.variant).check_task(found)
        name, own = own_settings(settings, task)
        facts["drawing"] = to_text(draw(name, task, sizes="fixed", **own))
    except ZooError:
        return facts
    length = min(LENGTH, settings.max_position_embeddings or LENGTH)
    with suppress(Exception):  # a plugin's model may need numbers
        with torch.device("meta"):
            model = TASK_CLASSES[task][1](settings)
        facts["parameters"] = model.num_parameters()
        facts |= {"flops": round(flops_per_token(model, length).forward), "length": length}
    return facts


def provenance(config: Mapping[str, Any], origin: Any = None) -> dict[str, str]:
    versions = {name: version for name in VERSIONS if (version := installed_version(name)) is not None}
    if config.get("transformers_version"):
        versions["transformers, when saved"] = str(config["transformers_version"])
    if config.get("provider"):
        versions[f"plugin {config['provider']}"] = str(getattr(origin, "version", None) or "not installed when pushed")
    return versions


def eval_result(result: EvalResult | Mapping[str, Any], pipeline: str | None) -> EvalResult:
    """An evaluation result of the Hub's client, of the given task if it names none."""
    return result if isinstance(result, EvalResult) else EvalResult(**{"task_type": pipeline or "other", **result})


SDK = "6.31.0"  # The version of Gradio that a Space runs

APP = """\"\"\"The explorer for {model}, as `zoo push --space` writes it.\"\"\"

from zoo.inside.explorer import build_page, publish

publish(build_page(["{model}"], others=False))
"""


def space_files(address: Address, license: str | None = None, page: Path | None = None) -> dict[str, bytes]:
    """Write the files of a Space: of a static page, or of one that runs the explorer by Gradio."""
    model = str(address)
    data = SpaceCardData(
        title=address.repo_id.rpartition("/")[2],
        sdk="static" if page else "gradio",
        sdk_version=None if page else SDK,
        app_file="index.html" if page else "app.py",
        license=license,
        models=[address.repo_id],
        tags=[LIBRARY],
    )
    about: dict[str, Any] = {"model": model, "repo_id": address.repo_id, "static": page is not None}
    text = SpaceCard.from_template(data, template_path=str(SPACE_TEMPLATE), **about)
    card = {"README.md": f"{text}\n".encode()}
    if page is not None:
        return card | {path: (page / path).read_bytes() for path in relative_files(page) if path != MANIFEST_FILE}
    requirement = f"{LIBRARY}[explore]=={importlib.metadata.version(LIBRARY)}\n"
    return card | {"app.py": APP.format(model=model).encode(), "requirements.txt": requirement.encode()}


def push_space(hub: Hub, address: Address, files: dict[str, bytes], private: bool | None) -> str:
    """Create or update the Space that has the model's name. Other files in it stay."""
    sdk = "gradio" if "app.py" in files else "static"
    at: dict[str, Any] = {"repo_id": address.repo_id, "repo_type": "space"}
    create = partial(hub.api.create_repo, space_sdk=sdk, private=private, exist_ok=True, **at)
    url = hub.ask("creating the Space", address, create)
    added = [CommitOperationAdd(path, content) for path, content in files.items()]
    write = partial(hub.api.create_commit, operations=added, commit_message=f"Explore {address}", **at)
    try:
        hub.ask("writing the Space", address, write)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"its Space may have been written or not; look at {url}") from None
    return str(url)
