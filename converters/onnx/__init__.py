"""ONNX: a model as graphs that run without torch, and those graphs as a model again."""

from .graphs import Graph, graphs_of
from .running import load_onnx
from .writing import check_onnx, write_onnx

__all__ = ["Graph", "check_onnx", "graphs_of", "load_onnx", "write_onnx"]
