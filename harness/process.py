"""What a process needs before it drives engines for long."""

import gc

import torch


def prepare_process() -> None:
    """One thread a process (on tensors this small more are slower), and no looking for garbage in what is imported."""
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
