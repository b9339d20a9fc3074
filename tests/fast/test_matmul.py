"""Float32 products by another library: the same results, where a trial says that it pays, and nowhere else."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from every_variant import EACH, ONE_TASK

import zoo
from zoo.fast import matmul
from zoo.fast.matmul import EXACT, Trial, fast_matmul, try_matmul
from zoo.fast.switches import fast_paths
from zoo.training.training import determinism


def precision(*, device: str = "cpu") -> str:
    with fast_matmul(512, 64, device):
        return torch.get_float32_matmul_precision()


@pytest.fixture
def trial(monkeypatch):
    def pretend(**found: float) -> None:
        monkeypatch.setattr(matmul, "_try_matmul", lambda *sizes: Trial(**found))

    return pretend


@pytest.mark.parametrize(
    ("gain", "deviation", "expected"),
    [(2.0, 1e-7, "medium"), (1.3, 1e-7, "highest"), (2.0, 1e-3, "highest")],
    ids=["faster", "as fast", "faster and less exact"],
)
def test_a_trial_decides(trial, gain, deviation, expected):
    trial(gain=gain, deviation=deviation)
    assert precision() == expected
    assert torch.get_float32_matmul_precision() == "highest"


def test_switches_and_devices_come_first(trial):
    trial(gain=2.0, deviation=0.0)
    assert precision(device="cuda") == "highest"
    with fast_paths(onednn_matmul="never"):
        assert precision() == "highest"
    trial(gain=0.5, deviation=0.0)
    with fast_paths(onednn_matmul="always"):
        assert precision() == "medium"


def test_no_clock_decides_about_a_deterministic_run(trial):
    trial(gain=2.0, deviation=0.0)
    with determinism(wanted=True):
        assert precision() == "highest"
    with determinism(wanted=False):
        assert precision() == "medium"


def test_the_precision_of_before_comes_back_after_an_error():
    with pytest.raises(ZeroDivisionError), fast_paths(onednn_matmul="always"), fast_matmul(512, 64):
        1 / 0  # noqa: B018
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_choice_for_one_library_is_left_alone():
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        with fast_paths(onednn_matmul="always"), fast_matmul(512, 64):
            assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_trial_is_made_once_for_about_one_size():
    matmul._try_matmul.cache_clear()
    found = try_matmul(70, 40)
    assert found.gain > 0
    assert try_matmul(100, 33) is found
    assert try_matmul(700_000, 9000) is try_matmul(512, 1024)


@pytest.mark.thorough
@pytest.mark.parametrize("name", EACH)
def test_a_training_step_is_the_same_to_rounding(name):
    """In models that are wide enough for both libraries to round differently."""
    if try_matmul(512, 1024).deviation > EXACT:
        pytest.skip("this processor's oneDNN products are no float32")
    gradients = []
    ids = torch.arange(3, 43).view(4, 10)
    mask = (torch.arange(10) < torch.tensor([10, 7, 3, 9])[:, None]).long()
    layers = zoo.config(f"{name}@tiny").num_hidden_layers  # as many as have every kind
    sizes = f"hidden_size=256,intermediate_size=512,num_attention_heads=4,num_hidden_layers={layers}"
    model = zoo.build(f"{name}:{sizes}", task=ONE_TASK[name], vocab_size=50, seed=0, initializer_range=0.02).eval()
    for mode in ("never", "always"):
        with fast_paths(onednn_matmul=mode), fast_matmul(ids.numel(), model.config.hidden_size):
            model(input_ids=ids, attention_mask=mask, labels=ids).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
        model.zero_grad()
    largest = max(float(gradient.abs().max()) for gradient in gradients[0])  # biases of keys have nothing but rounding
    for plain, fast in zip(*gradients, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=EXACT * largest)


def test_the_precision_comes_back_however_threads_overlap():
    """The first to begin ends before the others, and one makes its trial meanwhile."""
    begun, ended = threading.Event(), threading.Event()

    def overlap():
        with fast_paths(onednn_matmul="always"), fast_matmul(512, 64):
            begun.set()
            assert ended.wait(60)
            return torch.get_float32_matmul_precision()

    with ThreadPoolExecutor(1) as thread:
        with fast_paths(onednn_matmul="always"), fast_matmul(512, 64):
            other = thread.submit(overlap)
            assert begun.wait(60)
            matmul._try_matmul.cache_clear()
            try_matmul(8, 8)
            assert torch.get_float32_matmul_precision() == "medium"
        assert torch.get_float32_matmul_precision() == "medium", "the other one has not finished"
        ended.set()
        assert other.result() == "medium"
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_precision_chosen_meanwhile_stays():
    try:
        with fast_paths(onednn_matmul="always"), fast_matmul(512, 64):
            torch.set_float32_matmul_precision("high")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
