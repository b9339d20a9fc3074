"""Names of the graphs, as Optimum Intel and OpenVINO GenAI look for them."""

PREFIX, GRAPH_ENDING = "openvino_", ".xml"
