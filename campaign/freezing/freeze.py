"""Freezes a campaign: the rules, the programs and the baseline, into a new home."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from campaign import documents, files
from campaign.config.model import Config
from campaign.errors import ConfigError, EvidenceError, StateError
from campaign.freezing import data, machine
from campaign.freezing.machine import Interpreter
from campaign.freezing.programs import Programs, copy_program
from campaign.freezing.reachability.check import require_reachable
from campaign.freezing.sides import FrozenSide, Progress, ask_interpreter, freeze_side, no_progress
from campaign.freezing.staging import clean_unfinished, publish_home, staging
from campaign.paths import HomePaths
from campaign.planning.power_check import assess_power, power_note
from campaign.planning.protocol import build_protocol, departures
from campaign.record.ledger import Ledger
from campaign.snapshot import read_listing


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a freeze did.

    Attributes:
        home: The campaign home.
        id: ``baseline``, or the candidate's id.
        snapshot_sha256: Digest of the side's snapshot.
        manifest_sha256: Digest of the manifest that describes it.
        num_files: Files of the snapshot, links included.
        num_bytes: Their size.
        left_out: What was left out of it, one line each.
        departures: Rules that differ from the default protocol; a baseline's alone.
        notes: What a person should know.
        is_new: False if the very same was frozen before, and nothing was done.
        power: What the convergence gates can find out; None for a candidate, and where the family is not declared.
    """

    home: Path
    id: str
    snapshot_sha256: str
    manifest_sha256: str
    num_files: int
    num_bytes: int
    left_out: tuple[str, ...]
    departures: tuple[str, ...]
    notes: tuple[str, ...]
    is_new: bool
    power: documents.Power | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Freezing:
    """One freeze at work.

    Attributes:
        config: The configuration that is read now.
        paths: The home.
        ledger: Its ledger, open for writing.
        progress: Called with the bytes copied so far and in all.
    """

    config: Config
    paths: HomePaths
    ledger: Ledger
    progress: Progress


# --- the baseline -----------------------------------------------------------------------------------------------------


def freeze_baseline(
    config: Config,
    paths: HomePaths,
    *,
    programs: Programs,
    environment: Mapping[str, str],
    clock: Callable[[], float],
    progress: Progress = no_progress,
    waiver: str = "",
) -> Result:
    """Freeze the rules, the programs and the baseline into a new home.

    Args:
        config: What to freeze.
        paths: The home: a folder that is new, empty, or left by a freeze that was killed.
        programs: The installed acceptance and harness.
        environment: The process's environment, of which the acceptance program is given a closed list.
        clock: Returns the seconds since the epoch.
        progress: Called with the bytes copied so far and in all.
        waiver: Why to freeze although the trainings may show too little; see `campaign.planning.power_check`.

    Raises:
        ConfigError: Something cannot be frozen.
        StateError: A baseline is frozen there already, or the source changed meanwhile.
    """
    protocol = build_protocol(config)
    is_new_folder = not paths.root.exists()
    _make_home(paths)
    try:
        with Ledger.open(paths, clock) as ledger:
            work = Freezing(config=config, paths=paths, ledger=ledger, progress=progress)
            if paths.manifest.exists():
                return _complete_baseline(work)
            cleaned = clean_unfinished(paths)
            power = assess_power(config, protocol.convergence, waiver)
            result = _freeze_baseline(work, protocol, power, programs, environment)
    except BaseException:
        if is_new_folder:
            with contextlib.suppress(OSError):
                paths.root.rmdir()  # it stays if anything is in it
        raise
    if power is not None and config.convergence is not None:
        result = with_note(result, power_note(power, waiver or config.convergence.power_waiver))
    return with_note(result, "removed what an interrupted freeze had left") if cleaned else result


def _make_home(paths: HomePaths) -> None:
    try:
        paths.root.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(f"the home cannot be created: {error.strerror}", where=str(paths.root)) from error
    except OSError as error:
        raise files.refusal(error, paths.root, "the home cannot be created") from error


def _freeze_baseline(
    work: Freezing,
    protocol: documents.Protocol,
    power: documents.Power | None,
    programs: Programs,
    environment: Mapping[str, str],
) -> Result:
    config, paths = work.config, work.paths
    with staging(paths) as work_folder:
        staged = work_folder.home
        staged.frozen.mkdir()
        staged.config.write_bytes(config.raw)
        staged.protocol.write_bytes(protocol.to_bytes())
        acceptance_sha256 = copy_program(programs.acceptance, staged.acceptance)
        reachable = require_reachable(
            config, protocol, staged.protocol, staged.acceptance, acceptance_sha256, environment=environment
        )
        harness_sha256 = copy_program(programs.harness, staged.harness)
        verifier_sha256 = copy_program(programs.verifier, staged.verifier)
        side = freeze_side(
            config,
            "baseline",
            config.baseline,
            staged.baseline,
            home=paths,
            identifier=staged.identifier,
            progress=work.progress,
        )
        harness = _harness_interpreter(config, side, staged.identifier)
        make_read_only(staged.config, staged.protocol, staged.baseline.listing, staged.baseline.patch)
        manifest = documents.Manifest(
            freeze_id=secrets.token_hex(16),
            campaign=config.name,
            protocol_sha256=files.sha256_file(staged.protocol),
            acceptance_sha256=acceptance_sha256,
            harness_sha256=harness_sha256,
            verifier_sha256=verifier_sha256,
            config_sha256=files.sha256_bytes(config.raw),
            harness_python=str(config.harness_python),
            harness_interpreter=harness.environment,
            baseline=side.side,
            data=_read_data(config),
            resources=config.resources(),
            departures=departures(protocol),
            left_out=side.snapshot.left_out,
            power=power,
            reachable=reachable,
            driver=driver_facts(config, {"baseline": side}),
            machine=machine.read_machine_facts(),
        )
        publish_home(work_folder, paths, manifest.to_bytes())
        _record_baseline(work.ledger, paths, manifest)
    return _baseline_result(paths, manifest, (*side.notes, *_harness_notes(config, harness)))


def _harness_interpreter(config: Config, side: FrozenSide, identifier: Path) -> Interpreter:
    """Ask the interpreter that runs the harness, unless it is the baseline's, which has been asked."""
    is_own = config.harness_python != config.baseline.python or bool(config.baseline.launch)
    return ask_interpreter(config, str(config.harness_python), (), identifier) if is_own else side.interpreter


def _harness_notes(config: Config, interpreter: Interpreter) -> Iterator[str]:
    """Say where the interpreter that runs the harness seems to lack what it will need."""
    if config.numerical is None:
        return
    if interpreter.distributions is not None and "torch" not in interpreter.distributions:
        yield (
            f"harness: torch is not installed for {config.harness_python}, and the numerical cases are compared with "
            "it: campaign doctor; another interpreter can be named under [harness] python, before the freeze"
        )


def _complete_baseline(work: Freezing) -> Result:
    """Record a freeze that was killed between its manifest and its act; refuse any other second freeze."""
    config, paths, ledger = work.config, work.paths, work.ledger
    manifest = documents.Manifest.read(paths.manifest)
    if any(entry.act == "froze_baseline" for entry in ledger.entries):
        raise StateError(
            f"the campaign {manifest.campaign} is frozen here already",
            where=str(paths.root),
            why="what is frozen never changes",
            hint=f"campaign freeze --candidate --home {paths.root}, or give --home a new folder",
        )
    if not paths.staging.is_dir():
        raise lost_ledger(paths)
    if files.sha256_bytes(config.raw) != manifest.config_sha256:
        raise StateError(
            "a freeze of another configuration was interrupted here just before its end",
            where=str(paths.root),
            hint="freeze that configuration again to complete it, or give --home a new folder",
        )
    _record_baseline(ledger, paths, manifest)
    with staging(paths):
        pass  # the mark of the interrupted freeze is no longer needed
    return with_note(_baseline_result(paths, manifest, ()), "completed an interrupted freeze")


def _record_baseline(ledger: Ledger, paths: HomePaths, manifest: documents.Manifest) -> None:
    ledger.append(
        "froze_baseline",
        {
            "manifest_sha256": files.sha256_file(paths.manifest),
            "protocol_sha256": manifest.protocol_sha256,
            "acceptance_sha256": manifest.acceptance_sha256,
            "harness_sha256": manifest.harness_sha256,
            "verifier_sha256": manifest.verifier_sha256,
            "snapshot_sha256": manifest.baseline.snapshot_sha256,
            **({"power": manifest.power.to_json()} if manifest.power is not None else {}),
        },
    )


def _baseline_result(paths: HomePaths, manifest: documents.Manifest, notes: tuple[str, ...]) -> Result:
    num_files, num_bytes = _count(paths.baseline.listing)
    return Result(
        home=paths.root,
        id="baseline",
        snapshot_sha256=manifest.baseline.snapshot_sha256,
        manifest_sha256=files.sha256_file(paths.manifest),
        num_files=num_files,
        num_bytes=num_bytes,
        left_out=manifest.left_out,
        departures=manifest.departures,
        notes=notes,
        is_new=True,
        power=manifest.power,
    )


def _read_data(config: Config) -> dict[str, documents.DataIdentity]:
    identities = {}
    for name, declared in config.data.items():
        try:
            identities[name] = data.read_identity(declared.path)
        except ConfigError as error:
            why = "; ".join(part for part in (error.where, error.why) if part)
            raise config.error(("data", name, "path"), error.what, why=why, hint=error.hint) from error
    return identities


def _count(listing: Path) -> tuple[int, int]:
    entries = [entry for entry in read_listing(listing) if entry.type != "d"]
    return len(entries), sum(entry.num_bytes for entry in entries if entry.type == "f")


# --- both -------------------------------------------------------------------------------------------------------------


def driver_facts(config: Config, sides: dict[str, FrozenSide]) -> dict[str, Any]:
    """Return what a manifest says of the driver, and of the interpreters that it asked."""
    facts = machine.read_driver_facts(config.path)
    return {**facts, "interpreters": {key: dict(side.interpreter.facts) for key, side in sides.items()}}


def make_read_only(*written: Path) -> None:
    """Take write permission off files."""
    for file in written:
        file.chmod(0o444)


def with_note(result: Result, note: str) -> Result:
    """Return a result with one more note."""
    return replace(result, notes=(note, *result.notes))


def lost_ledger(paths: HomePaths) -> EvidenceError:
    """Return the error about a frozen thing that the ledger does not know."""
    return EvidenceError(
        "the ledger does not say when this was frozen",
        where=str(paths.ledger),
        why="it was removed, cut or replaced after the freeze",
        hint="restore it; without it no verdict can be given",
    )
