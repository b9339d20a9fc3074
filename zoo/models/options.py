"""What every forward takes beside its own arguments."""

from typing import TYPE_CHECKING, Any

from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs


if TYPE_CHECKING:
    CallOptions = Any
else:
    CallOptions = Unpack[TransformersKwargs]
    """`output_attentions`, `output_hidden_states`, `num_items_in_batch` and what attention backends take.

    transformers reads off the signatures of forwards that they take these, so modules that define one must not postpone
    the evaluation of annotations.
    """
