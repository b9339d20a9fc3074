"""One thread a test process, as the models are tiny and tests run in parallel; and no progress bars."""

import torch
import transformers.utils.logging

torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
