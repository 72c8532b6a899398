"""Every Python process of an SGLang server on a CPU runs this first: stand-ins for packages that need a GPU, and a bug.

A stand-in does nothing when it is called.  SWARDEN_TEST_BUG plants a use after free.
"""

import os

from swarden.harness.kit.stand_ins import provide_absent
from tests.engines.planting import plant_in_sglang

provide_absent(["torchvision", "sgl_kernel", "soundfile"])
if "SWARDEN_TEST_BUG" in os.environ:
    plant_in_sglang()
