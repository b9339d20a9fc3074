"""OpenVINO: a model as graphs with a cache that stays in the engine, and those graphs as a model again."""
