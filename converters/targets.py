"""Registers the targets that come with the zoo."""

from .bundle import BundleTarget
from .ctranslate2.target import CTranslate2Target
from .onnx.target import OnnxTarget
from .openvino.target import OpenVinoTarget

__all__ = ["BundleTarget", "CTranslate2Target", "OnnxTarget", "OpenVinoTarget"]
