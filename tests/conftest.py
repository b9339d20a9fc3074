"""One thread a test process, as models are tiny and tests run in parallel; no progress bars; no clock that fails."""

import os

import torch
import transformers.utils.logging
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
# Where a commit is judged, the same examples every time; everywhere else new ones.
settings.register_profile(
    "zoo", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("zoo")
