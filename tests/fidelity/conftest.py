import pytest
import torch
from transformers.utils import logging


@pytest.fixture(autouse=True, scope="session")
def quiet():
    logging.disable_progress_bar()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
