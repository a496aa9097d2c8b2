"""Staging memory: on the host, and on a device, whose runtime library a few lines stand in for."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.tensors import cuda
from jobs.tensors.staging_memory import Staging, allocate_device, map_host, open_device
from tests.support.serving import Stage

HALF = mmap.PAGESIZE
BUS = b"0000:3A:00.0"


class Runtime:
    """What of the CUDA runtime is used, over memory of the host."""

    def __init__(self) -> None:
        self.current = 1
        self.memory: dict[int, Any] = {}
        self.opened: list[int] = []
        self.pinned: dict[int, int] = {}
        self.fails: set[str] = set()
        self.devices: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return Function(self, name)

    def cuda_malloc(self, address: Any, num_bytes: Any) -> int:
        memory = ctypes.create_string_buffer(num_bytes.value + 64)
        found = -(-ctypes.addressof(memory) // 64) * 64
        self.memory[found] = memory
        address._obj.value = found
        return 0

    def cuda_free(self, address: Any) -> int:
        del self.memory[address.value]
        return 0

    def cuda_get_device(self, index: Any) -> int:
        index._obj.value = self.current
        return 0

    def cuda_set_device(self, index: Any) -> int:
        self.current = index.value
        self.devices.append(index.value)
        return 0

    def cuda_ipc_get_mem_handle(self, handle: Any, address: Any) -> int:
        ctypes.memmove(handle, address.value.to_bytes(64, "little"), 64)
        return 0

    def cuda_ipc_open_mem_handle(self, address: Any, handle: Any, _flags: Any) -> int:
        address._obj.value = int.from_bytes(bytes(handle), "little")
        self.opened.append(address._obj.value)
        return 0

    def cuda_ipc_close_mem_handle(self, address: Any) -> int:
        self.opened.remove(address.value)
        return 0

    def cuda_device_get_p_c_i_bus_id(self, name: Any, _length: Any, _index: Any) -> int:
        name.value = BUS
        return 0

    def cuda_device_get_by_p_c_i_bus_id(self, index: Any, name: bytes) -> int:
        index._obj.value = 0 if name == BUS else 7
        return 0

    def cuda_host_register(self, address: Any, num_bytes: Any, _flags: Any) -> int:
        self.pinned[address.value] = num_bytes.value
        return 0

    def cuda_host_unregister(self, address: Any) -> int:
        del self.pinned[address.value]
        return 0


class Function:
    """One function of the runtime."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self._runtime = runtime
        self._name = name
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._name in self._runtime.fails:
            return 2
        if self._name == "cudaGetErrorString":
            return b"out of memory"
        if self._name == "cudaGetLastError":
            return 2
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self._name)
        return vars(Runtime)[snake](self._runtime, *arguments)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    made = Runtime()
    monkeypatch.setattr(cuda, "_library", lambda: made)
    monkeypatch.setattr(cuda, "CUDA", cuda.CPU)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    return made


@pytest.fixture
def host(tmp_path: Path) -> Iterator[tuple[Staging, Stage]]:
    stage = Stage(tmp_path / "stage", HALF)
    made = map_host(str(stage.path), HALF, torch)
    yield made, stage
    made.close()


# --- the host's -------------------------------------------------------------------------------------------------------


def test_what_is_written_to_a_view_stands_in_the_file(host: tuple[Staging, Stage]) -> None:
    mapped, stage = host
    mapped.view(1, "int16", 3, 8).copy_(torch.tensor([1, 2, -1], dtype=torch.int16))
    assert stage.read(1, 6, 8) == b"\1\0\2\0\xff\xff"
    stage.write(0, b"\0\0\x80\x3f")
    assert mapped.view(0, "float32", 1, 0).tolist() == [1.0]
    assert mapped.handle() is None
    assert not mapped.is_on_device


OUTSIDE = [
    (2, "float32", 1, 0),
    (-1, "float32", 1, 0),
    (0, "float32", 1, HALF),
    (0, "float32", HALF // 4 + 1, 0),
    (0, "float32", 1, -4),
    (0, "float32", -1, 4),
    (0, "float64", 1, 4),
]


@pytest.mark.parametrize(("half", "dtype", "count", "offset"), OUTSIDE)
def test_no_view_reaches_beyond_its_half(
    host: tuple[Staging, Stage], half: int, dtype: str, count: int, offset: int
) -> None:
    with pytest.raises(ValueError, match="of half"):
        host[0].view(half, dtype, count, offset)


def test_an_empty_view_may_stand_at_the_end(host: tuple[Staging, Stage]) -> None:
    assert len(host[0].view(0, "float32", 0, HALF)) == 0


@pytest.mark.parametrize("half_bytes", [0, HALF + 1, 2 * HALF])
def test_a_file_of_another_size_is_refused(tmp_path: Path, half_bytes: int) -> None:
    stage = Stage(tmp_path / "stage", HALF)
    with pytest.raises(ValueError, match=r"hal[fv]"):
        map_host(str(stage.path), half_bytes, torch)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage", HALF)
    (tmp_path / "link").symlink_to(stage.path)
    with pytest.raises(OSError, match="link"):
        map_host(str(tmp_path / "link"), HALF, torch)


def test_host_memory_is_pinned_for_a_device_and_let_go(host: tuple[Staging, Stage], runtime: Runtime) -> None:
    host[0].pin()
    assert list(runtime.pinned.values()) == [2 * HALF]
    host[0].close()
    assert runtime.pinned == {}


def test_memory_that_cannot_be_pinned_is_used_as_it_is(
    host: tuple[Staging, Stage], runtime: Runtime, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime.fails.add("cudaHostRegister")
    host[0].pin()
    assert "stays pageable: cudaHostRegister: error 2: out of memory" in capfd.readouterr().err
    assert len(host[0].view(0, "uint8", HALF, 0)) == HALF


# --- the device's -----------------------------------------------------------------------------------------------------


def test_device_memory_is_opened_by_its_handle(runtime: Runtime) -> None:
    owned = allocate_device(HALF, 0, torch)
    handle = owned.handle()
    assert handle is not None
    assert (handle["bytes"], handle["bus"], len(handle["ipc"])) == (2 * HALF, BUS.decode(), 128)
    opened = open_device(handle, HALF, torch)
    owned.view(1, "float32", 2, 16).copy_(torch.tensor([1.0, 2.0]))
    assert opened.view(1, "float32", 2, 16).tolist() == [1.0, 2.0]
    assert opened.is_on_device
    opened.close()
    owned.close()
    assert (runtime.memory, runtime.opened) == ({}, [])


def test_the_current_device_stays_what_it_was(runtime: Runtime) -> None:
    owned = allocate_device(HALF, 3, torch)
    assert runtime.devices == [3, 1]
    owned.close()
    assert runtime.current == 1


def test_a_handle_of_another_size_is_refused(runtime: Runtime) -> None:
    handle = allocate_device(HALF, 0, torch).handle()
    assert handle is not None
    with pytest.raises(ValueError, match="2 halves"):
        open_device(handle, 2 * HALF, torch)
    assert runtime.opened == []


@pytest.mark.parametrize("name", ["cudaMalloc", "cudaSetDevice", "cudaGetDevice"])
def test_memory_that_is_not_to_be_had_says_why(runtime: Runtime, name: str) -> None:
    runtime.fails.add(name)
    with pytest.raises(cuda.CudaError, match=f"{name}: error 2: out of memory"):
        allocate_device(HALF, 0, torch)


def test_a_handle_that_cannot_be_opened_says_why(runtime: Runtime) -> None:
    handle = allocate_device(HALF, 0, torch).handle()
    assert handle is not None
    runtime.fails.add("cudaIpcOpenMemHandle")
    with pytest.raises(cuda.CudaError, match="cudaIpcOpenMemHandle"):
        open_device(handle, HALF, torch)


def test_without_a_runtime_library_it_says_so() -> None:
    with pytest.raises(cuda.CudaError, match="libcudart"):
        cuda.allocate(1, 0)
