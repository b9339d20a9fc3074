"""Sizes that follow the width and the number of heads, in the proportions of a variant's definition."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from zoo.models.fields import WIDEST, Fields, divisors

SIZES = {
    "follow": "Sizes that are not given follow hidden_size and num_attention_heads, in the variant's proportions.",
    "fixed": "Sizes that are not given are those of the variant's definition, or of its preset.",
}
"""The words that the setting `sizes` takes."""

OF_WIDTH = (
    *("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "q_lora_rank", "kv_lora_rank"),
)
"""Sizes proportional to `hidden_size`."""

OF_HEAD = (
    *("head_dim", "qk_nope_head_dim", "v_head_dim", "linear_head_dim", "linear_key_head_dim", "linear_value_head_dim"),
)
"""Sizes proportional to `hidden_size / num_attention_heads`."""

WIDTHS = ("_size", "_dim", "_rank", "_heads")
"""Ends of the names of sizes. A variant's own that is in no proportion stays, and is reported."""

COUNTS = ("vocab_size", "decoder_vocab_size", "type_vocab_size", "num_key_value_heads")
"""Settings with such names that are not widths, or where 1 selects a kind of attention."""


def follow(
    definition: Mapping[str, Any], given: Mapping[str, Any], head_multiple: int = 1
) -> tuple[dict[str, int], dict[str, int]]:
    """Sizes that follow others, and those of the definition that stay although the width is another."""
    own = {"hidden_size": Fields.hidden_size, "num_attention_heads": Fields.num_attention_heads}
    own |= {"intermediate_size": Fields.intermediate_size, **definition}
    width, heads = (given.get(name, own[name]) for name in ("hidden_size", "num_attention_heads"))
    if not all(type(size) is int and size > 0 for size in (width, heads)):
        return {}, {}  # which the configuration refuses by name
    found = {}
    wider = Fraction(width, own["hidden_size"])
    if wider != 1:
        found = {name: scaled(own[name], wider) for name in OF_WIDTH if own.get(name)}
        if "num_attention_heads" not in given:
            head_dim = given.get("head_dim") or Fraction(own["hidden_size"], own["num_attention_heads"])
            heads = found["num_attention_heads"] = nearest_divisor(width, width / head_dim, head_multiple, even=True)
    larger = Fraction(width, heads) / Fraction(own["hidden_size"], own["num_attention_heads"])
    if larger != 1:
        found |= {name: 2 * scaled(own[name] // 2, larger) for name in OF_HEAD if own.get(name)}
    groups = own.get("num_key_value_heads")
    if groups not in (None, 1) and heads != own["num_attention_heads"]:
        wanted = groups * heads / own["num_attention_heads"]
        found["num_key_value_heads"] = nearest_divisor(heads, wanted, head_multiple)
    known = {*found, *given, *OF_WIDTH, *OF_HEAD, *COUNTS, "num_attention_heads", "hidden_size"}
    sizes = {name: size for name, size in definition.items() if name.endswith(WIDTHS) and type(size) is int and size}
    stay = {name: size for name, size in sizes.items() if name not in known} if wider != 1 else {}
    return {name: size for name, size in found.items() if name not in given}, stay


def scaled(size: int, factor: Fraction) -> int:
    return min(max(1, round(size * factor)), WIDEST)


def nearest_divisor(total: int, wanted: float | Fraction, multiple: int = 1, *, even: bool = False) -> int:
    """Find the divisor of a total nearest to a number by ratio, if possible a multiple that leaves even parts."""
    fitting = [parts for parts in divisors(total) if parts % multiple == 0] or divisors(total)
    rotatable = [parts for parts in fitting if even and total // parts % 2 == 0] or fitting
    return min(rotatable, key=lambda parts: max(parts / wanted, wanted / parts))
