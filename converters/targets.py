"""Registers the targets that come with the zoo."""

from .bundle import BundleTarget
from .ctranslate2.target import CTranslate2Target
from .gguf.target import GgufTarget
from .onnx.target import OnnxTarget
from .openvino.target import OpenVinoTarget
from .transformers_js.target import TransformersJsTarget

__all__ = ["BundleTarget", "CTranslate2Target", "GgufTarget", "OnnxTarget", "OpenVinoTarget", "TransformersJsTarget"]
