"""What makes models faster: each file replaces something of PyTorch or transformers where that pays, to rounding.

It knows tensors, modules and transformers' interfaces, but no model of the zoo: `zoo.models` imports it, never the
other way round. Every fast path has a switch, see [`fast_paths`][].
"""

from .switches import FastPaths, fast_paths

__all__ = ["FastPaths", "fast_paths"]
