"""The releases of vLLM that this project has installed."""

from pathlib import Path

from harness.core.releases import Releases

VLLM = Releases(
    package="vllm",
    root=Path(".swarden/engines/vllm"),
    requirements=Path(__file__).with_name("packages.txt"),
    release_size="240 to 340 MB",
    shared_size="about 40 MB",
    from_environment=("torch",),
    kept_files=(".py",),  # its compiled files are GPU libraries
)
