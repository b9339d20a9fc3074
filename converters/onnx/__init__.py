"""ONNX: a model as graphs that run without torch, and those graphs as a model again."""
