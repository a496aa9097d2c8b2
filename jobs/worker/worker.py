"""The worker: one side of a measurement, in the side's own interpreter, doing what the parent asks line by line.

Everything that it needs is imported here, before any folder of the side is on the import path, so that a module of the
side's cannot stand in for one of the standard library within the harness itself.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.strict import plain_unicode
from ..processes import bytecode, installed, origins
from ..processes.opened import Opened
from ..processes.serving import SideError, serve
from . import devices
from .returned import check_counts, check_engaged, check_evaluation, check_examples, check_loss, check_progress

if TYPE_CHECKING:
    from .matched_updates import Matched

REQUIRED = ("updates", "sync")
OPTIONAL = (
    "loss",
    "load_state",
    "state",
    "update_on",
    "batch",
    "optimizer_check",
    "mix",
    "evaluate",
    "save",
    "load",
    "engaged",
    "families",
    "memory_estimate",
    "modules",
    "progress",
    "attention",
    "lengths",
    "examples",
    "close",
)
"""What an adapter's object may offer beside; docs/adapter.md says what of it this release uses."""
_clock = time.perf_counter


def _versions() -> dict[str, str]:
    """Return the version of the interpreter and of every loaded top-level package that states one."""
    found = {"python": platform.python_version(), "implementation": platform.python_implementation()}
    for name, module in list(sys.modules.items()):
        version = getattr(module, "__dict__", {}).get("__version__")
        if type(name) is not str or "." in name or name in sys.stdlib_module_names:
            continue
        if isinstance(version, str):
            found[plain_unicode(name)] = plain_unicode(version)
    return {**found, **devices.versions()}


def _not_imported(*_arguments: Any, **_named: Any) -> Any:
    raise RuntimeError("build before import")


# --- the commands -----------------------------------------------------------------------------------------------------


class Worker:
    """One side while it runs: the adapter's object and what is known of its surroundings."""

    def __init__(self) -> None:
        self._opened = Opened()
        self._opened.install()
        self._roots = origins.read_roots()
        self._installed_bytecode = bytecode.use_installed_bytecode(self._roots.packages)
        self._private: list[str] = []
        self._function: Callable[..., Any] = _not_imported
        self._adapter: Any = None
        self._device = ""
        self._matched_type: type[Matched] | None = None
        self._prepared: Matched | None = None
        self.is_closed = False

    def ready(self) -> dict[str, Any]:
        """Say who this is, before anything of the side is imported."""
        roots = self._roots.as_json()
        return {"pid": os.getpid(), "roots": roots, "installed_bytecode": self._installed_bytecode}

    def do_identify(self, _command: dict[str, Any]) -> dict[str, Any]:
        """Say what this interpreter is and what is installed for it, before anything of the side is imported."""
        return {name: plain_unicode(text) for name, text in installed.identify().items()}

    def do_import(self, command: dict[str, Any]) -> dict[str, Any]:
        """Put the snapshot's folders first on the import path and import the adapter."""
        if command["matched"]:
            # Before any folder of the side is on the path, as all that the harness needs; most runs need none of it.
            from .matched_updates import Matched  # noqa: PLC0415 - as is said

            self._matched_type = Matched
        self._private = list(command["private"])
        self._opened.declare(command["declared"], self._private, command["log"])
        sys.path[:0] = command["paths"]
        module_name, _, function = command["adapter"].partition(":")
        module = importlib.import_module(module_name)
        found: Any = module
        for name in function.split("."):
            found = getattr(found, name, None)
        if not callable(found):
            raise SideError("adapter_incomplete", f"module {module_name} has no function {function}")
        self._function = found
        return {"foreign": self._foreign(), "opened": self._files()}

    def do_build(self, command: dict[str, Any]) -> dict[str, Any]:
        """Call the adapter's function; say what its object offers."""
        self._device = command["device"]
        devices.reset_peaks(self._device)
        self._adapter = self._function(command["config"], seed=command["seed"], device=self._device)
        return {"missing": self._lacking(REQUIRED), "offers": self._offered((*REQUIRED, *OPTIONAL))}

    def do_updates(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do updates on the production path and wait until they are done."""
        began = _clock()
        returned = self._adapter.updates(command["n"]) if command["n"] else (0, 0, 0, 0)
        self._adapter.sync()
        devices.synchronize(self._device)
        seconds = _clock() - began
        return {**check_counts(returned), "seconds": seconds}

    def do_finish(self, command: dict[str, Any]) -> dict[str, Any]:
        """Collect the result: the last loss, the engaged path and the device's peaks of memory."""
        loss = check_loss(self._adapter.loss()) if command["loss"] and self._offers("loss") else None
        engaged = self._engaged()
        peaks = devices.read_peaks(self._device)
        if peaks is None and self._device != "cpu":
            raise SideError("adapter_incomplete", "the peak memory of the device is known for PyTorch alone")
        return {"loss": loss, "engaged": engaged, "peaks": peaks}

    # --- runs ---------------------------------------------------------------------------------------------------------

    def do_evaluate(self, _command: dict[str, Any]) -> dict[str, Any]:
        """Take the loss over the whole validation split."""
        returned, seconds = self._timed(self._adapter.evaluate)
        nats, targets = check_evaluation(returned)
        return {"nats": nats, "targets": targets, "seconds": seconds}

    def do_save(self, command: dict[str, Any]) -> dict[str, Any]:
        """Let the side write its state into a folder."""
        return {"seconds": self._timed(self._adapter.save, Path(command["folder"]))[1]}

    def do_restore(self, command: dict[str, Any]) -> dict[str, Any]:
        """Let the side take up a state that it has written into a folder."""
        return {"seconds": self._timed(self._adapter.load, Path(command["folder"]))[1]}

    def do_progress(self, _command: dict[str, Any]) -> dict[str, Any]:
        """Say where the training stands."""
        return {"progress": check_progress(self._adapter.progress())}

    def do_examples(self, command: dict[str, Any]) -> dict[str, Any]:
        """Say which examples this process takes in one update."""
        return {"examples": check_examples(self._adapter.examples(command["step"]))}

    def do_engaged(self, _command: dict[str, Any]) -> dict[str, Any]:
        """Say which path really runs."""
        return {"engaged": self._engaged()}

    def _timed(self, method: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
        """Call a method of the side and wait until the devices are done; return what it returned, and seconds."""
        began = _clock()
        returned = method(*arguments)
        devices.synchronize(self._device)
        return returned, _clock() - began

    # --- matched updates ----------------------------------------------------------------------------------------------

    def do_stage(self, command: dict[str, Any]) -> dict[str, Any]:
        """Take the memory through which tensors are offered."""
        is_device = command["transport"] == "device"
        return {"handle": self._matched.stage(command["path"], command["half_bytes"], is_device=is_device)}

    def do_open(self, command: dict[str, Any]) -> dict[str, Any]:
        """Begin to offer one quantity."""
        entries, tied = self._matched.open(command["what"])
        return {"tensors": [entry.as_json() for entry in entries], "tied": tied}

    def do_fill(self, command: dict[str, Any]) -> dict[str, Any]:
        """Copy the next elements into a half of the memory."""
        self._matched.fill(command["half"], command["pieces"])
        return {}

    def do_load(self, command: dict[str, Any]) -> dict[str, Any]:
        """Load a canonical state in place and look whether it is there."""
        self._matched.load(command["files"], command["step"])
        return {}

    def do_update(self, command: dict[str, Any]) -> dict[str, Any]:
        """Make one local update on given inputs."""
        losses, seconds = self._matched.update(command["path"], command["identity"])
        return {"losses": losses, "seconds": seconds}

    def do_isolate(self, command: dict[str, Any]) -> dict[str, Any]:
        """Prepare one of the isolated checks."""
        sd, seed = float(command["sd"]), command["seed"]
        if command["check"] == "optimizer":
            self._matched.isolate_optimizer(command["steps"], sd, seed)
        else:
            self._matched.isolate_consensus(command["round"], sd, seed)
        return {}

    def do_forget(self, _command: dict[str, Any]) -> dict[str, Any]:
        """Drop what is kept for matched updates."""
        self._matched.forget()
        return {}

    # --- the end ------------------------------------------------------------------------------------------------------

    def do_inspect(self, _command: dict[str, Any]) -> dict[str, Any]:
        """Say what is loaded and where it came from."""
        return {"foreign": self._foreign(), "opened": self._files(), "versions": _versions()}

    def do_close(self, _command: dict[str, Any]) -> dict[str, Any]:
        """Let the side release what it holds."""
        if self._offers("close"):
            self._adapter.close()
        self.is_closed = True
        return {}

    def _engaged(self) -> dict[str, int | str] | None:
        return check_engaged(self._adapter.engaged()) if self._offers("engaged") else None

    @property
    def _matched(self) -> Matched:
        if self._matched_type is None:
            raise RuntimeError("matched updates in a run that was to have none")
        if self._prepared is None:
            self._prepared = self._matched_type(self._adapter, self._device)
        return self._prepared

    def _offers(self, name: str) -> bool:
        return callable(getattr(self._adapter, name, None))

    def _offered(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if self._offers(name)]

    def _lacking(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if not self._offers(name)]

    def _foreign(self) -> list[str]:
        return [plain_unicode(origin) for origin in origins.find_foreign(sys.modules, self._roots, self._private)]

    def _files(self) -> list[str]:
        return [plain_unicode(path) for path in self._opened.files(self._roots)]


def main(command_fd: int, answer_fd: int) -> int:
    """Serve the parent until it has closed this side, which ends the process, or is gone.

    Args:
        command_fd: Where commands come from.
        answer_fd: Where answers go.
    """
    # The side shall see neither the harness's arguments nor the descriptors in them.
    sys.argv[1:] = []
    # This process alone fills the private folder of bytecode; what it starts reads it.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    return serve(Worker, command_fd, answer_fd)
