"""Fast paths: faster replacements of code in PyTorch and transformers. Results are equal up to rounding.

This package depends on tensors, modules and transformers' interfaces; `zoo.models` imports it, never the other way
round. Every fast path has a switch, see [`fast_paths`][].
"""

from .switches import FastPaths, fast_paths

__all__ = ["FastPaths", "fast_paths"]
