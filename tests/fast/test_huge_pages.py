"""Copies of weights in huge pages."""

import mmap

import pytest
import torch

from zoo.fast import huge_pages
from zoo.fast.huge_pages import ALIGNMENT, HugePages


@pytest.mark.parametrize("asks", [True, False])
def test_copies_are_equal_and_do_not_overlap(asks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not asks:  # as on systems that have none
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    monkeypatch.setattr(huge_pages, "CHUNK", 4096)
    pages = HugePages()
    weights = [torch.randn(3, 5), torch.randn(7, 4).T, torch.randn(40, 50), torch.randn(6, dtype=torch.float64)]
    copies = [pages.copy(weight) for weight in weights]
    del pages
    for weight, copy in zip(weights, copies, strict=True):
        assert torch.equal(copy, weight) and copy.dtype == weight.dtype
        assert copy.is_contiguous() and copy.data_ptr() % ALIGNMENT == 0


def test_reserved_memory_is_taken_as_it_is_written() -> None:
    resident = "/proc/self/statm"

    def pages_of_process() -> int:
        with open(resident, encoding="ascii") as file:
            return int(file.read().split()[1])

    try:
        before = pages_of_process()
    except OSError:
        pytest.skip("not Linux")
    kept = HugePages()
    copies = [kept.copy(torch.ones(1000)) for _ in range(10)]
    assert len(copies) == 10
    assert (pages_of_process() - before) * mmap.PAGESIZE < huge_pages.CHUNK // 4
