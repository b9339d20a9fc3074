"""Common keyword arguments of every forward."""

from typing import TYPE_CHECKING, Any

from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

# `output_attentions`, `output_hidden_states`, `num_items_in_batch` and what attention backends take. transformers reads
# off a forward's signature that it takes them, so a module that defines one must not postpone its annotations.
if TYPE_CHECKING:
    CallOptions = Any
else:
    CallOptions = Unpack[TransformersKwargs]
