"""Device memory that two processes share, through the CUDA runtime library that PyTorch has loaded.

PyTorch's own way of sharing unpickles what the other process sends; here nothing but 64 opaque bytes and a device's
address on its bus change hands. DLPack, which needs no further package, makes tensors of plain addresses.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CPU, CUDA = 1, 2
"""DLPack's numbers of the kinds of device."""
_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1
_BUS_CHARACTERS = 32
_LIBRARY = re.compile(r"\s(/\S*/libcudart[^/\s]*\.so[^/\s]*)$")
_Handle = ctypes.c_char * _HANDLE_BYTES


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", _Handle)]


class CudaError(Exception):
    """The CUDA runtime refused something."""


# --- the runtime library ----------------------------------------------------------------------------------------------


def _library() -> ctypes.CDLL:
    """Return the CUDA runtime library that this process has loaded already, or the one that PyTorch was built for."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    for line in maps.splitlines():
        if found := _LIBRARY.search(line):
            return ctypes.CDLL(found.group(1))
    torch = sys.modules.get("torch")
    version = getattr(getattr(torch, "version", None), "cuda", None) or ""
    try:
        return ctypes.CDLL(f"libcudart.so.{version.partition('.')[0]}")
    except OSError as error:
        raise CudaError(f"no CUDA runtime library (libcudart) is loaded, nor found: {error}") from error


def _call(library: ctypes.CDLL, name: str, *arguments: Any) -> None:
    function = getattr(library, name)
    function.restype = ctypes.c_int
    status = function(*arguments)
    if status != 0:
        library.cudaGetErrorString.restype = ctypes.c_char_p
        text = library.cudaGetErrorString(ctypes.c_int(status)).decode("ascii", "replace")
        # Asking for the last error also forgets it: the next call of PyTorch's shall not report this one.
        library.cudaGetLastError()
        raise CudaError(f"{name}: error {status}: {text}")


@contextlib.contextmanager
def _on_device(library: ctypes.CDLL, index: int) -> Iterator[None]:
    """Make a device the current one for a while; the side may have chosen another."""
    before = ctypes.c_int()
    _call(library, "cudaGetDevice", ctypes.byref(before))
    _call(library, "cudaSetDevice", ctypes.c_int(index))
    try:
        yield
    finally:
        _call(library, "cudaSetDevice", before)


class DeviceMemory:
    """Device memory as a tensor of bytes; whoever opened it keeps this object as long as the tensor is used.

    Args:
        address: Its address on the device in this process.
        num_bytes: Its size.
        index: Number of the device.
        is_owner: Whether this process allocated it.
    """

    def __init__(self, address: int, num_bytes: int, index: int, *, is_owner: bool) -> None:
        self._address = address
        self._is_owner = is_owner
        self.num_bytes = num_bytes
        self.index = index

    def tensor(self) -> Any:
        """Return it as a flat tensor of bytes."""
        return tensor_at(self._address, self.num_bytes, CUDA, self.index)

    def handle(self) -> dict[str, Any]:
        """Return what another process opens it by."""
        library = _library()
        handle = _IpcHandle()
        _call(library, "cudaIpcGetMemHandle", ctypes.byref(handle), ctypes.c_void_p(self._address))
        bus = ctypes.create_string_buffer(_BUS_CHARACTERS)
        _call(library, "cudaDeviceGetPCIBusId", bus, ctypes.c_int(_BUS_CHARACTERS), ctypes.c_int(self.index))
        return {"ipc": bytes(handle).hex(), "bus": bus.value.decode("ascii"), "bytes": self.num_bytes}

    def close(self) -> None:
        """Give it back, in the process that allocated it, or let go of it."""
        name = "cudaFree" if self._is_owner else "cudaIpcCloseMemHandle"
        library = _library()
        with _on_device(library, self.index):
            _call(library, name, ctypes.c_void_p(self._address))


def allocate(num_bytes: int, index: int) -> DeviceMemory:
    """Allocate device memory that another process may open; PyTorch's own memory cannot be shared piece by piece."""
    library = _library()
    address = ctypes.c_void_p()
    with _on_device(library, index):
        _call(library, "cudaMalloc", ctypes.byref(address), ctypes.c_size_t(num_bytes))
    return DeviceMemory(address.value or 0, num_bytes, index, is_owner=True)


def open_handle(handle: dict[str, Any]) -> DeviceMemory:
    """Open what another process on this machine allocated."""
    library = _library()
    index = ctypes.c_int()
    _call(library, "cudaDeviceGetByPCIBusId", ctypes.byref(index), handle["bus"].encode("ascii"))
    address = ctypes.c_void_p()
    opened = _IpcHandle.from_buffer_copy(bytes.fromhex(handle["ipc"]))
    with _on_device(library, index.value):
        _call(library, "cudaIpcOpenMemHandle", ctypes.byref(address), opened, ctypes.c_uint(_LAZY_PEER_ACCESS))
    return DeviceMemory(address.value or 0, handle["bytes"], index.value, is_owner=False)


def pin(address: int, num_bytes: int) -> None:
    """Lock mapped host memory in place, so that the device copies to and from it at its full speed."""
    _call(_library(), "cudaHostRegister", ctypes.c_void_p(address), ctypes.c_size_t(num_bytes), ctypes.c_uint(0))


def unpin(address: int) -> None:
    """Undo `pin`."""
    _call(_library(), "cudaHostUnregister", ctypes.c_void_p(address))


# --- DLPack -----------------------------------------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("num_dimensions", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_kept: list[Any] = []
"""What tensors refer to for as long as they live; a few per process."""


def tensor_at(address: int, num_bytes: int, kind: int, index: int) -> Any:
    """Return a flat tensor of bytes over memory that somebody else holds.

    Args:
        address: Where it begins.
        num_bytes: Its size.
        kind: CPU or CUDA.
        index: Number of the device.
    """
    from torch.utils.dlpack import from_dlpack  # noqa: PLC0415 - torch is loaded by need

    shape = (ctypes.c_int64 * 1)(num_bytes)
    unsigned = 1
    described = _Tensor(
        data=address, device_kind=kind, device_index=index, num_dimensions=1,
        type_code=unsigned, type_bits=8, type_lanes=1, shape=shape, strides=None, byte_offset=0,
    )  # fmt: skip
    managed = _Managed(tensor=described, context=None, deleter=None)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    name = ctypes.c_char_p(b"dltensor")
    _kept.append((managed, shape, name))
    return from_dlpack(new(ctypes.byref(managed), name, None))
