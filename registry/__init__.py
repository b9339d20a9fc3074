"""Names of the zoo: variants and parts, what is known about them, and the plugins that bring more.

Imports nothing but the standard library, and knows no model.
"""

from .cards import Card, Facts, describe, find_facts_with
from .names import VariantSpec, parse_name, parse_value
from .origins import Origin
from .table import Registry
from .tasks import TASKS, Task, require_task
from .variants import SIZES, VARIANTS, Quirk, Variant, list_variants, register

__all__ = [
    "SIZES",
    "TASKS",
    "VARIANTS",
    "Card",
    "Facts",
    "Origin",
    "Quirk",
    "Registry",
    "Task",
    "Variant",
    "VariantSpec",
    "describe",
    "find_facts_with",
    "list_variants",
    "parse_name",
    "parse_value",
    "register",
    "require_task",
]
