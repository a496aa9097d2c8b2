"""The element types that tensors may have here: PyTorch's names, the names of safetensors files, and their sizes."""

from __future__ import annotations

import functools

FLOATS = ("float16", "bfloat16", "float32", "float64")
"""What can be compared."""
_NAMES = {
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
    "int8": ("I8", 1),
    "int16": ("I16", 2),
    "int32": ("I32", 4),
    "int64": ("I64", 8),
    "uint8": ("U8", 1),
    "bool": ("BOOL", 1),
}
SAFETENSORS = {name: short for name, (short, _) in _NAMES.items()}
"""PyTorch's name, without prefix, to that of a safetensors header."""
TORCH = {short: name for name, short in SAFETENSORS.items()}
"""The other way round."""
ITEM_BYTES = {name: size for name, (_, size) in _NAMES.items()}
"""Bytes of one element, by PyTorch's name."""


@functools.cache
def dtype_name(dtype: object) -> str:
    """Return PyTorch's name of an element type without its prefix."""
    return str(dtype).removeprefix("torch.")
