"""What a process needs before it drives engines for long."""

import gc
import tempfile
from pathlib import Path

import torch
from hypothesis.configuration import set_hypothesis_home_dir


def prepare_process() -> None:
    """One thread (on tensors this small more are slower), no looking for garbage in what is imported.

    What Hypothesis keeps beside its database, which is off, goes where nobody has to clean up.
    """
    set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "swarden-hypothesis")
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
