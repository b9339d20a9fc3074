"""One readable file for any model: the plain code of all parts, decided for one configuration and proved equal to it.

Read in this order: `program` (definitions and names), `folding` (branches, variables), `specialising`, `plugins`,
`settings`, `running` and `proof`, `ejecting`.
"""

from .ejecting import CodeDifference, Ejected, code_difference, eject

__all__ = ["CodeDifference", "Ejected", "code_difference", "eject"]
