"""The releases of SGLang that this project has installed."""

from pathlib import Path

from harness.core.releases import Releases

SGLANG = Releases(
    package="sglang",
    root=Path(".swarden/engines/sglang"),
    requirements=Path(__file__).with_name("packages.txt"),
    release_size="6 to 40 MB",
    shared_size="about 60 MB",
    from_environment=("torch",),
)
