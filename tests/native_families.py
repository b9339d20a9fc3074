"""Every class of transformers that is written as a table, but for those of [`native_models`][]."""

from native_dense import DENSE_CASES
from native_experts import EXPERT_CASES

FAMILY_CASES = {
    f"{family}{head}-{number}": (family, head, settings)
    for family, head, choices in (*DENSE_CASES, *EXPERT_CASES)
    for number, settings in enumerate(choices)
}
"""The family, the head and the settings that matter."""
