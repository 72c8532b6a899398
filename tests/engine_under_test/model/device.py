"""The device of the tests of models: the CPU, or the one that the environment names."""

import os

import torch

VARIABLE = "SWARDEN_TEST_DEVICE"  # of `make test-cuda`
DEVICE = torch.device(os.environ.get(VARIABLE, "cpu"))
