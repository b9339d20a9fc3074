"""Every property of `zoo.testing`, for every task of every variant that the registry lists."""

import pytest

from zoo.testing import Case, cases


@pytest.mark.parametrize("case", cases(), ids=str)
def test_every_variant(case: Case) -> None:
    case()
