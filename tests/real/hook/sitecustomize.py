"""Every Python process of an SGLang server on a CPU runs this first.

It gets stand-ins for packages that need a GPU, which do nothing when they are called, and the fix of the known bug by
which torch attends to windowed layers wrongly.  SWARDEN_TEST_BUG plants a use after free in requests with so many
outputs.
"""

import os

from swarden.harness.kit.stand_ins import provide_absent
from tests.engines.planting import plant_in_sglang, plant_late

provide_absent(["torchvision", "sgl_kernel", "soundfile"])
plant_late("sglang.srt.layers.attention.torch_native_backend", "tests.engines.planting:plant_fix_of_attention")
if "SWARDEN_TEST_BUG" in os.environ:
    plant_in_sglang(int(os.environ["SWARDEN_TEST_BUG"]))
