"""Names of the graphs, as the files that Hugging Face Optimum and transformers.js look for."""

ENCODER, DECODER, WHOLE = "encoder_model", "decoder_model", "model"

GRAPH_ENDING = ".onnx"
