"""One readable file for any model: the plain code of all parts, decided for one configuration and proved equal to it.

Read in this order: `folding` (branches), `program` (definitions and names), `cleaning`, `specialising`, `plugins`,
`settings`, `writing`, `running` and `proof`, `ejecting`.
"""

from .ejecting import CodeDifference, Ejected, code_difference, eject

__all__ = ["CodeDifference", "Ejected", "code_difference", "eject"]
