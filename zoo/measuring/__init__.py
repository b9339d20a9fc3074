"""What models cost: operations, activations, speed, and how near they come to what the machine can do."""

from .costs import Costs
from .flops import Flops, FlopsPerToken, count_flops, flops_per_token

__all__ = ["Costs", "Flops", "FlopsPerToken", "count_flops", "flops_per_token"]
