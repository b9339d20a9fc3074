"""Descriptions and costs of a model: drawings, source, parameters, operations, memory, and plans of training runs."""
