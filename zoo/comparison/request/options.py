"""What a comparison can be asked for."""

from __future__ import annotations

MATCHES = ("none", "params", "flops")


WAYS = ("width", "intermediate", "depth")
"""What may be changed, in the order in which it is tried."""
