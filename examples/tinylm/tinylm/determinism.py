"""The same bits in every run: what the key `deterministic` asks of torch, for the whole process.

On CUDA, matrix products add in a fixed order once cuBLAS has a workspace of its own for every stream; embedding,
cross-entropy, norms and the fused AdamW are deterministic as they are. Attention is not: the backward pass of the
flash kernel adds with atomics unless deterministic algorithms are asked for, when it adds in order, and cuDNN's has no
such mode. So attention runs on the flash kernel, or as plain products and a softmax where that has none (fp32).
Whatever else has no deterministic kernel raises an error.
"""

import os
from typing import Any

import torch
import torch.utils.deterministic

from tinylm.config import ConfigError

WORKSPACE_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACE = ":4096:8"


def make_deterministic() -> None:
    """Let this process use deterministic algorithms alone from now on; before CUDA starts.

    Raises:
        ConfigError: if CUDA has started with another workspace of cuBLAS, which it does not look up again.
    """
    given = os.environ.get(WORKSPACE_VARIABLE)
    if given != WORKSPACE and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        raise ConfigError(
            "deterministic",
            f"CUDA has started in this process with {WORKSPACE_VARIABLE} {given or 'unset'}; "
            f"set it to {WORKSPACE} before, or make this trainer before anything else uses the device",
        )
    os.environ[WORKSPACE_VARIABLE] = WORKSPACE
    torch.use_deterministic_algorithms(mode=True)
    # Fresh memory is written before it is read; to fill it as well would cost time and change nothing.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a property of the module
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)
    torch.backends.cuda.enable_mem_efficient_sdp(enabled=False)


def in_words() -> str:
    """Whether this process is held to deterministic algorithms."""
    if not torch.are_deterministic_algorithms_enabled():
        return "no"
    return f"yes, attention by {' or '.join(_attention_kernels())}"


def _attention_kernels() -> list[str]:
    cuda: Any = torch.backends.cuda  # torch leaves some of these functions untyped
    enabled = {
        "cudnn": cuda.cudnn_sdp_enabled(),
        "efficient": cuda.mem_efficient_sdp_enabled(),
        "flash": cuda.flash_sdp_enabled(),
        "math": cuda.math_sdp_enabled(),
    }
    return [name for name, is_enabled in enabled.items() if is_enabled]
