"""Float32 products by another library: the same results, where a processor gains by it, and nowhere else."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from datasets import Dataset
from every_variant import EACH, ONE_TASK
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import zoo
from zoo.fast import matmul
from zoo.fast.matmul import EXACT, deviation_of_onednn, fast_matmul
from zoo.fast.switches import fast_paths
from zoo.serving.served import ServedModel
from zoo.training.suites.scoring import Query, compute


def precision(*, device: str = "cpu") -> str:
    with fast_matmul(device):
        return torch.get_float32_matmul_precision()


@pytest.fixture
def processor(monkeypatch):
    def pretend(maker: str = "AuthenticAMD", instructions: str = "AVX512", deviation: float = 1e-7) -> None:
        matmul.onednn_pays.cache_clear()
        monkeypatch.setattr(matmul, "processor_facts", lambda: {"vendor_id": maker})
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
        monkeypatch.setattr(matmul, "deviation_of_onednn", lambda: deviation)

    yield pretend
    matmul.onednn_pays.cache_clear()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, "medium"),
        ({"maker": "GenuineIntel"}, "highest"),
        ({"maker": "CentaurHauls"}, "highest"),
        ({"instructions": "AVX2"}, "highest"),
        ({"deviation": 1e-3}, "highest"),
    ],
    ids=["faster", "Intel", "not measured", "narrow", "less exact"],
)
def test_the_processor_decides(processor, found, expected):
    processor(**found)
    assert precision() == expected
    assert torch.get_float32_matmul_precision() == "highest"


def test_no_clock_decides(processor, monkeypatch):
    """The libraries round differently, and a run gives the same numbers however busy its machine is."""
    processor()
    monkeypatch.setattr("time.perf_counter", lambda: pytest.fail("a clock was read"))
    assert precision() == "medium"


def test_switches_and_devices_come_first(processor):
    processor()
    assert precision(device="cuda") == "highest"
    with fast_paths(onednn_matmul="never"):
        assert precision() == "highest"
    processor(maker="GenuineIntel")
    with fast_paths(onednn_matmul="always"):
        assert precision() == "medium"


def test_the_precision_of_before_comes_back_after_an_error():
    with pytest.raises(ZeroDivisionError), fast_paths(onednn_matmul="always"), fast_matmul():
        1 / 0  # noqa: B018
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_choice_for_one_library_is_left_alone():
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        with fast_paths(onednn_matmul="always"), fast_matmul():
            assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.thorough
@pytest.mark.parametrize("name", EACH)
def test_a_training_step_is_the_same_to_rounding(name):
    """In models that are wide enough for both libraries to round differently."""
    if deviation_of_onednn() > EXACT:
        pytest.skip("this processor's oneDNN products are no float32")
    gradients = []
    ids = torch.arange(3, 43).view(4, 10)
    mask = (torch.arange(10) < torch.tensor([10, 7, 3, 9])[:, None]).long()
    layers = zoo.config(f"{name}@tiny").num_hidden_layers  # as many as have every kind
    sizes = f"hidden_size=256,intermediate_size=512,num_attention_heads=4,num_hidden_layers={layers}"
    model = zoo.build(f"{name}:{sizes}", task=ONE_TASK[name], vocab_size=50, seed=0, initializer_range=0.02).eval()
    for mode in ("never", "always"):
        with fast_paths(onednn_matmul=mode), fast_matmul():
            model(input_ids=ids, attention_mask=mask, labels=ids).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
        model.zero_grad()
    largest = max(float(gradient.abs().max()) for gradient in gradients[0])  # biases of keys have nothing but rounding
    for plain, fast in zip(*gradients, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=EXACT * largest)


@torch.no_grad()
def infer_without_padding():
    with fast_paths(unpadding="always"):
        zoo.build("nlpt-encoder@tiny", "feature-extraction").eval()(**PADDED)


PADDED = {"input_ids": torch.arange(3, 19).view(2, 8), "attention_mask": torch.arange(8) < torch.tensor([[8], [3]])}
SENTENCES, LANGUAGES = ["The house is old.", "O gato dorme."], ["English", "Portuguese"]
CALLS = {
    "labels": lambda: zoo.predict("vanilla.language", SENTENCES),
    "evaluation": lambda: zoo.evaluate(
        "vanilla.language",
        data=Dataset.from_dict({"text": SENTENCES, "label": LANGUAGES}),
        n_bootstrap=1,
    ),
    "suites": lambda: compute(zoo.build("gpt2-style@tiny"), [Query(0, [3, 4, 5], [0, 1], [4, 5])]),
    "embeddings": lambda: ServedModel("nlpt-encoder.mlm-en").embed([torch.arange(3, 9)]),
    "inference without padding": infer_without_padding,
}


class Precisions(TorchFunctionMode):
    """The precision in which each linear layer multiplied."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is F.linear:
            self.found.append(torch.get_float32_matmul_precision())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_that_read_whole_texts_use_it(call):
    for mode, expected in (("always", "medium"), ("never", "highest")):
        with fast_paths(onednn_matmul=mode), Precisions() as precisions:
            call()
        assert precisions.found[-1] == expected  # loading may compare outputs before, without it


def test_a_step_of_training_by_hand_keeps_one_library():
    """Its backward pass runs after the model's call, where PyTorch's own choice holds."""
    with fast_paths(unpadding="always", onednn_matmul="always"), Precisions() as precisions:
        zoo.build("nlpt-encoder@tiny", "feature-extraction")(**PADDED)
    assert set(precisions.found) == {"highest"}


def test_the_precision_comes_back_however_threads_overlap():
    """The first to begin ends before the others, and one compares the libraries meanwhile."""
    begun, ended = threading.Event(), threading.Event()

    def overlap():
        with fast_paths(onednn_matmul="always"), fast_matmul():
            begun.set()
            assert ended.wait(60)
            return torch.get_float32_matmul_precision()

    with ThreadPoolExecutor(1) as thread:
        with fast_paths(onednn_matmul="always"), fast_matmul():
            other = thread.submit(overlap)
            assert begun.wait(60)
            deviation_of_onednn.cache_clear()
            assert deviation_of_onednn() > 0
            assert torch.get_float32_matmul_precision() == "medium"
        assert torch.get_float32_matmul_precision() == "medium", "the other one has not finished"
        ended.set()
        assert other.result() == "medium"
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_precision_chosen_meanwhile_stays():
    try:
        with fast_paths(onednn_matmul="always"), fast_matmul():
            torch.set_float32_matmul_precision("high")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
