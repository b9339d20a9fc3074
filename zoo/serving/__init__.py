"""The zoo's checkpoints in engines that serve. What these read of a model is in the model; here they are told of it."""
