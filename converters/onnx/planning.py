"""What ONNX graphs cannot hold, as far as it is known without tracing."""

from __future__ import annotations

from zoo.models import ATTENTIONS, POSITIONS, ZooPreTrainedModel

from ..obstacles import Obstacle, Reason


def obstacles(model: ZooPreTrainedModel) -> tuple[str, ...]:
    """Explain why graphs do not hold a model: they are written with no caches but keys and values."""
    attention = model.config.attention
    if model.can_generate() and not ATTENTIONS.get(attention).caches_heads:
        cached = f"attention={attention!r} caches no keys and values of every layer's heads, which are what graphs take"
        return (Obstacle(cached, Reason.WRITER),)
    length = POSITIONS.get(model.config.position).changes_after(model.config)
    if model.can_generate() and length is not None:
        rotated = f"its rope_parameters rotate cached keys anew in texts of more than {length} tokens, graphs do not"
        return (Obstacle(rotated, Reason.ENGINE),)
    if model.config.mixer_layer_type is not None:
        state = f"mixer={model.config.mixer!r} keeps a state, and graphs take keys and values of heads"
        return (Obstacle(state, Reason.WRITER),)
    return ()
