"""The suite that every variant must pass, as plain functions, for those who add one.

With pytest, a plugin's whole test file is

```python
import pytest
from zoo.testing import cases

@pytest.mark.parametrize("case", cases("my-variant"), ids=str)
def test_my_variant(case):
    case()
```

and without it, `check_variant("my-variant")`. Each check builds a tiny model, or shares one, and raises AssertionError
with the property and the numbers where the model lacks it. `CHECKS.names()` lists the properties; what a variant's
`limits` exclude is left out by `cases("my-variant", skip=("check-name",))`. `with torch.device("cuda"): case()` runs a
case on an accelerator.
"""

from . import attending, backends, basics, engines, fast_paths, generating, training
from .cases import CHECKS, Case, Check, cases, check, check_variant
from .subjects import Subject, new_subject, randomize, subject_of, token_ids

# fmt: off
__all__ = [
    "CHECKS", "Case", "Check", "Subject", "attending", "backends", "basics", "cases", "check", "check_variant",
    "engines", "fast_paths", "generating", "new_subject", "randomize", "subject_of", "token_ids", "training",
]
