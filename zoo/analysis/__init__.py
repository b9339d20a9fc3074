"""What a model is and costs: drawings, source, parameters, operations, memory, and training runs on paper."""
