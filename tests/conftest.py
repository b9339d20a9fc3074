"""One thread a test process, as models are tiny and tests run in parallel; no progress bars; no clock that fails."""

import torch
import transformers.utils.logging
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
settings.register_profile("zoo", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("zoo")
