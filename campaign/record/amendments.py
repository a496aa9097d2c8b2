"""Amendments: a person says what changed while a campaign ran, and which slots' attempts so far are void by it.

The protocol never changes. What is void stays where it is, and in the evidence tables; its slots are measured again.
Whoever may choose which results to measure again can look for better ones, so that an amendment makes the whole past of
a slot void, everything that rests on it has to go with it, and the report names it in its first sentence.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from campaign import redact
from campaign.documents import Amended, Change, Entry, Slot
from campaign.errors import ConfigError, InfrastructureError, StateError
from campaign.frozen import Frozen, check_recorded
from campaign.keys import AttemptKey
from campaign.planning.calibration import CASE_KINDS
from campaign.record.ledger import Ledger, read_entries
from campaign.submission import acts
from campaign.submission.desk import Desk, Say
from campaign.watching.state import AttemptState, AttemptStatus

MOST_CHARACTERS = 2000
"""Most characters of a text that a person gives."""
VALID = "all other slots"
MEASURED_KINDS = ("solo", "control_pair", "pair")
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person asks for."""

    what: Change
    changed: str
    """What changed, in words."""
    patterns: tuple[str, ...]
    """Glob patterns of the slots that become void."""
    keep_reason: str
    """Why all others stay valid."""
    by: str
    reason: str


def require_text(text: str, option: str) -> str:
    """Return a person's text as it is recorded.

    Args:
        text: What was given.
        option: The option, for messages.

    Raises:
        ConfigError: It is empty, too long, no plain text, or looks like a secret.
    """
    words = " ".join(text.split())
    if not words:
        raise ConfigError(f"{option} is empty", hint=f'{option} "..."')
    if len(words) > MOST_CHARACTERS:
        raise ConfigError(f"{option} has {len(words)} characters", why=f"at most {MOST_CHARACTERS} are recorded")
    if not words.isprintable():
        raise ConfigError(f"{option} holds characters that cannot be shown", hint="give plain text")
    if found := redact.find_token(words):
        why = "the ledger is read by whoever audits the campaign"
        raise ConfigError(f"{option} holds what looks like {found}", why=why, hint="leave it out")
    return words


def select(names: Mapping[str, Slot], history: acts.History, patterns: Sequence[str]) -> dict[str, int]:
    """Return the slots that patterns make void, with the number of attempts so far, in the order of their names.

    Args:
        names: Every slot of the home.
        history: What the ledger says.
        patterns: Glob patterns.

    Raises:
        StateError: A pattern matches no slot, or none that has an attempt that is not void yet.
    """
    chosen: dict[str, int] = {}
    for pattern in patterns:
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching:
            close = difflib.get_close_matches(pattern, list(names), n=3, cutoff=0.4)
            hint = f"campaign status; close to it: {', '.join(close)}" if close else "campaign status"
            raise StateError(f"no slot matches {pattern!r}", hint=hint)
        tried = {name: number for name in matching if (number := _num_valid(history, name))}
        if not tried:
            raise StateError(
                f"nothing to make void at {pattern!r}",
                why=f"{len(matching)} slot(s) match, and none has an attempt that counts",
                hint="leave the pattern out: what was not tried is measured as things are now",
            )
        chosen |= tried
    return dict(sorted(chosen.items()))


def _num_valid(history: acts.History, slot: str) -> int:
    """Return the number of a slot's last attempt; 0 if there is none, or it is void already."""
    last = max((one.attempt for one in history.attempts(slot)), default=0)
    return 0 if history.is_void(slot, last) else last


def require_ended(chosen: Collection[str], statuses: Mapping[AttemptKey, AttemptStatus]) -> None:
    """Refuse to make void what is under way.

    Raises:
        StateError: An attempt at one of the slots has not ended.
    """
    going = [one for key, one in statuses.items() if key.slot in chosen and one.state is not AttemptState.ENDED]
    if going:
        raise StateError(
            f"{going[0].key.text} has not ended: it is {going[0].state.value}",
            why=f"{len(going)} attempt(s) of the chosen slots are under way, and what they will show is not known",
            hint="wait for them (campaign status --watch), or end them: campaign cancel --reason TEXT",
        )


def require_whole(chosen: Collection[str], names: Mapping[str, Slot], history: acts.History) -> None:
    """Refuse to make a pilot void and to keep what was measured by its numbers, or from the states it recorded.

    Raises:
        StateError: Something that rests on a chosen pilot is not chosen.
    """
    left: list[str] = []
    for pilot in (name for name in chosen if names[name].kind == "pilot"):
        resting = [name for name, slot in names.items() if rests_on(name, slot, pilot, names[pilot])]
        left += [name for name in resting if name not in chosen and _num_valid(history, name)]
    if left:
        listed = ", ".join(left[:_MOST_NAMED]) + (f" and {len(left) - _MOST_NAMED} more" if left[_MOST_NAMED:] else "")
        raise StateError(
            "what rests on a void pilot cannot stay valid",
            why=f"these were measured by its numbers, or from what it recorded: {listed}",
            hint="name them as well, or leave the pilot out: " + " ".join(f"--void '{name}'" for name in left[:3]),
        )


def rests_on(name: str, slot: Slot, pilot: str, of: Slot) -> bool:
    """Return whether a slot's evidence rests on a pilot: on its rate or, of a case, on the states it recorded.

    Args:
        name: The slot's name in the home.
        slot: The slot as the protocol has it.
        pilot: The pilot's name in the home.
        of: The pilot as the protocol has it.
    """
    if slot.workload != of.workload:
        return False
    if of.side == "baseline":
        return slot.kind in (*MEASURED_KINDS, *CASE_KINDS)
    return slot.kind in MEASURED_KINDS and name.partition("/")[0] == pilot.partition("/")[0]


def shown_before(chosen: Mapping[str, int], history: acts.History, entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the slots of which a report had shown how an attempt ended that becomes void now.

    Args:
        chosen: The slots, with the number of attempts so far.
        history: What the ledger says.
        entries: The ledger.
    """
    known: set[str] = set()
    shown: set[str] = set()
    for entry in entries:
        if entry.act in ("sealed", "collected"):
            keys = [AttemptKey.parse(name) for name in entry.data.get("receipts", {})]
            known |= {key.slot for key in keys if _becomes_void(key, chosen, history)}
        elif entry.act == "ended":
            key = AttemptKey(str(entry.data["slot"]), int(entry.data["attempt"]))
            known |= {key.slot} if _becomes_void(key, chosen, history) else set()
        elif entry.act == "reported":
            owners = ("baseline", str(entry.data["candidate"]))
            shown |= {slot for slot in known if slot.partition("/")[0] in owners}
    return tuple(sorted(shown))


def _becomes_void(key: AttemptKey, chosen: Mapping[str, int], history: acts.History) -> bool:
    return key.slot in chosen and not history.is_void(key.slot, key.attempt)


def build(
    wish: Wish,
    frozen: Frozen,
    history: acts.History,
    statuses: Mapping[AttemptKey, AttemptStatus],
    entries: Sequence[Entry],
) -> Amended:
    """Return the act that a wish amounts to; writes nothing.

    Args:
        wish: What a person asks for.
        frozen: The frozen documents.
        history: What the ledger says.
        statuses: The state of every attempt.
        entries: The ledger.

    Raises:
        ConfigError: A text cannot be recorded.
        StateError: The slots cannot become void.
    """
    names = frozen.slots()
    chosen = select(names, history, wish.patterns)
    require_ended(chosen, statuses)
    require_whole(chosen, names, history)
    shown = shown_before(chosen, history, entries)
    return Amended(
        what=wish.what,
        changed=require_text(wish.changed, "--changed"),
        void=tuple(chosen),
        voided_attempts=chosen,
        valid=VALID,
        keep_reason=require_text(wish.keep_reason, "--keep-reason"),
        by=require_text(wish.by, "--by"),
        reason=require_text(wish.reason, "--reason"),
        after_report=bool(shown),
        shown=shown,
        platform=wish.what == "platform",
    )


def propose(desk: Desk, wish: Wish, say: Say) -> Amended:
    """Return what an amendment would record now.

    Args:
        desk: The campaign's desk; endings that nobody recorded yet are recorded.
        wish: What a person asks for.
        say: Where it is told what happened meanwhile.

    Raises:
        ConfigError: A text cannot be recorded.
        StateError: The slots cannot become void, or the campaign is closed.
        EvidenceError: What was frozen or recorded is not what it was.
    """
    desk.require_open("nothing of it can become void")
    try:
        desk.settle(say)
    except (InfrastructureError, StateError) as error:  # what is not known to have ended cannot become void
        say(f"some jobs' endings are not known yet: {'; '.join(filter(None, [error.what, error.why]))}")
    entries = read_entries(desk.paths)
    check_recorded(desk.paths, desk.frozen, entries)
    view = desk.view("")
    return build(wish, desk.frozen, view.history, view.attempts, entries)


def amend(desk: Desk, wish: Wish, shown: Amended) -> Entry:
    """Record an amendment.

    Args:
        desk: The campaign's desk.
        wish: What a person asks for.
        shown: What it was said to amount to.

    Raises:
        StateError: It amounts to something else by now.
    """
    with Ledger.open(desk.paths, desk.clock) as ledger:
        view = desk.view("")
        act = build(wish, desk.frozen, view.history, view.attempts, ledger.entries)
        if act != shown:
            raise StateError("the campaign has changed since the amendment was shown", hint="campaign amend again")
        return ledger.append("amended", act.to_json())


def describe(act: Amended) -> str:
    """Return what an amendment does, in a few lines."""
    attempts = [
        f"  {slot}: attempt {'1' if last == 1 else f'1 to {last}'}" for slot, last in act.voided_attempts.items()
    ]
    lines = [
        f"{act.what}: {act.changed}",
        f"reason: {act.reason}",
        f"by: {act.by}",
        f"void from then on, {len(act.void)} slot(s):",
        *attempts,
        f"valid: {act.valid}, because: {act.keep_reason}",
    ]
    if act.shown:
        lines.append(
            f"a report had shown how {len(act.shown)} of them ended; every report says so in its first sentence"
        )
    return "\n".join(lines)
