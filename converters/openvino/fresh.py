"""Runs graphs in a process that has OpenVINO and nothing else of the zoo's, and writes down what they compute.

Run as a script: `python -I fresh.py REQUEST`. It imports neither torch nor transformers.
"""

import json
import sys

import numpy as np
import openvino
from safetensors.numpy import load_file, save_file


def main(path: str) -> None:
    """Do what a request file says."""
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    tensors, results = load_file(request["inputs"]), dict[str, np.ndarray]()
    core = openvino.Core()
    for number, graph in enumerate(request["calls"]):
        given = {name.partition(".")[2]: tensor for name, tensor in tensors.items() if name.startswith(f"{number}.")}
        run = core.compile_model(graph, "CPU", request["settings"])
        given[request["order"]] = np.arange(len(given["input_ids"]), dtype=np.int32)
        outputs = run({port.any_name: given[port.any_name] for port in run.inputs})
        results |= {f"{number}.{port.any_name}": outputs[port] for port in run.outputs}
    save_file(results, request["results"])


if __name__ == "__main__":
    main(sys.argv[1])
