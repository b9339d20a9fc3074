"""Model cards: what is known about a checkpoint, as the README of its repository."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from zoo.base.errors import ZooError
from zoo.models.fields import Fields

from .acceptance import is_distribution
from .addresses import MAIN, Address
from .architecture import describe_axes, forward_flops, parameter_count
from .client import LIBRARY
from .folders import CONFIG, read_object, tensor_shapes

TEMPLATE = Path(__file__).with_name("card.md.jinja")

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
"""What a card says of a classifier of positions, which is offered to no pipeline."""

MARKUP = str.maketrans({character: f"&#{ord(character)};" for character in "&<>`*[]|\\~@"})
"""How a page shows characters that would be markup."""

STACK_FIELDS = ("is_decoder", "is_encoder_decoder", "add_cross_attention")
"""What the task decides."""

VERSIONS = (LIBRARY, "torch", "transformers", "huggingface_hub")
"""The distributions whose versions a card records."""


@dataclass(frozen=True)
class CardFacts:
    """What a card says that cannot be read from the checkpoint.

    Args:
        tags: Words to find the repository by.
        license: The licence's identifier, None where the author gave none.
        recipe: How it was trained.
        eval_results: How well it does: `EvalResult`s, or mappings with their fields.
        limits: What it is known to get wrong, in sentences.
        exports: Which exports were made: mappings with `target`, `verified` and `difference`.
        native: The native export's `target`, `auto_class` and `revision`.
    """

    tags: tuple[str, ...] = ()
    license: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    eval_results: tuple[EvalResult | Mapping[str, Any], ...] = ()
    limits: tuple[str, ...] = ()
    exports: tuple[Mapping[str, Any], ...] = ()
    native: Mapping[str, str] | None = None


def write_card(folder: Path, address: Address, facts: CardFacts) -> str:
    """Write the model card of a checkpoint.

    Args:
        folder: The checkpoint.
        address: Where it goes.
        facts: What the checkpoint does not say.

    Returns:
        The text of its README, with the metadata that the Hub reads.
    """
    config = read_object(folder / CONFIG)
    shown = {
        key: value if isinstance(value, (int, float)) else as_text(value) for key, value in config.items() if value
    }
    shapes = tensor_shapes(folder)
    auto_class, pipeline = auto_class_of(config)
    known = variant_facts(config)
    if pipeline == "text-classification" and "classifier_positions" in shown:
        pipeline = None
        known["limits"] = (*known["limits"], SEVERAL_LABELS.format(shown["classifier_positions"]))
    results = [eval_result(result, pipeline) for result in facts.eval_results]
    name = address.repo_id.rpartition("/")[2]
    variant = config.get("variant")
    data = ModelCardData(
        license=facts.license,
        library_name=LIBRARY,
        pipeline_tag=pipeline,
        tags=list(dict.fromkeys(tag for tag in (LIBRARY, variant, *facts.tags) if tag)),
        model_name=name,
        eval_results=results or None,
    )
    card = ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        model_name=name,
        repo_id=address.repo_id,
        address=str(address),
        revision_argument="" if address.revision == MAIN else f', revision="{address.revision}"',
        text=as_text,
        opening=_opening(shown),
        auto_class=auto_class,
        drawing=drawing_of(config),
        axes=describe_axes(shown),
        parameters=parameter_count(shapes),
        flops=forward_flops(config, shapes),
        has_code="auto_map" in config,
        native=facts.native,
        recipe=dict(facts.recipe),
        results=results,
        exports=facts.exports,
        provenance=provenance(shown, known.pop("origin", None)),
        new_plugin=f" {config['provider']}" if is_distribution(config.get("provider")) else "",
        **{**known, "limits": (*map(as_text, facts.limits), *known["limits"])},
    )
    return str(card)


def as_text(value: Any) -> str:
    """Write what comes from a checkpoint's files so that a page shows it and does nothing else with it."""
    return " ".join(str(value).split()).translate(MARKUP).replace("://", "&#58;//")


def auto_class_of(config: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Which of transformers' Auto classes loads a checkpoint."""
    saved = str((config.get("architectures") or [""])[0])
    return next((pair for ending, pair in PIPELINES.items() if saved.endswith(ending)), (None, None))


def variant_facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Collect what the registry knows about a checkpoint's variant.

    Returns:
        Summary, description, paper, source, limits and the quirks that are on; little where the variant is not there.
    """
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
        "summary": variant.summary,
        "description": variant.description,
        "paper": variant.paper,
        "source": variant.source,
        "limits": (*limits, *lengths) or unknown["limits"],
        "quirks": {name: variant.quirks[name].description if name in variant.quirks else "" for name in on},
        "origin": variant.origin,
    }


def drawing_of(config: Mapping[str, Any]) -> str | None:
    """Draw a checkpoint's blocks.

    Returns:
        The drawing as text; None where the variant is not there.
    """
    if "variant" not in config:
        return None
    from zoo.analysis.drawing import draw, to_text
    from zoo.models import TASK_CLASSES

    auto_class, _ = auto_class_of(config)
    task = next((task for task, (name, _) in TASK_CLASSES.items() if name == auto_class), None)
    own = set(Fields.__annotations__) - {"variant", "quirks", "provider", *STACK_FIELDS}
    fields = {key: value for key, value in config.items() if key in own and value is not None}
    try:
        return to_text(draw("+".join((str(config["variant"]), *(config.get("quirks") or ()))), task, **fields))
    except ZooError:
        return None


def provenance(config: Mapping[str, Any], origin: Any = None) -> dict[str, str]:
    """Describe which software made a checkpoint."""
    versions = {}
    for distribution in VERSIONS:
        try:
            versions[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    if config.get("transformers_version"):
        versions["transformers, when saved"] = str(config["transformers_version"])
    if config.get("provider"):
        versions[f"plugin {config['provider']}"] = str(getattr(origin, "version", None) or "not installed when pushed")
    return versions


def _opening(config: Mapping[str, Any]) -> str:
    if "variant" in config:
        return f"A `{config['variant']}` Transformer of the transformer-zoo."
    return f"A model of type `{config.get('model_type', 'unknown')}`, pushed with the transformer-zoo."


def eval_result(result: EvalResult | Mapping[str, Any], pipeline: str | None) -> EvalResult:
    """An evaluation result of the Hub's client, of the given task if it names none."""
    if isinstance(result, EvalResult):
        return result
    return EvalResult(**{"task_type": pipeline or "other", **result})
