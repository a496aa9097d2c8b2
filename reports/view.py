"""What a page shows, as plain values: the HTML and the Markdown template render the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.numbers import ABSENT
from reports.status import Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table."""

    text: str
    value: str | None = None
    """The unrounded number behind the text."""
    mark: Mark | None = None
    """Outcome to show as shape and colour before the text."""
    code: bool = False
    """Whether the text is an identifier or a digest."""
    note: str = ""
    """What else is to be said of it, on a line of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    title: str
    numeric: bool = False
    hint: str = ""
    """What the column means, where its title does not say it."""


MOST_ROWS = 2000
"""Of an auditor's table on the page: a browser is slow with more, and whoever needs them has the download."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table. The first column names the row."""

    name: str
    """Unique on the page: the element's id."""
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str = "None."
    """What to say instead of a table without rows."""
    long: bool = False
    """Whether it is an auditor's table: folded on screen, and left out of the Markdown for its CSV."""
    file: str = ""
    """Download that holds the same rows."""

    @property
    def shown(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows that the page shows: of an auditor's table that is a download as well, the first ones."""
        return self.rows[:MOST_ROWS] if self.long and self.file else self.rows

    @property
    def num_left(self) -> int:
        """How many rows only the download has."""
        return len(self.rows) - len(self.shown)

    def __post_init__(self) -> None:
        """Refuse rows that do not fit the columns."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.name}: {len(row)} cells for {len(self.columns)} columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One gate in the strip."""

    gate: str
    mark: Mark
    value: str
    rule: str
    reason: str
    target: str = ""
    """Id of the table that holds the gates it stands for; empty for a single gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One side's identity."""

    side: str
    title: str
    facts: tuple[tuple[str, Cell], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One category, or the production cases, with plot and raw table."""

    name: str
    title: str
    mark: Mark
    sentence: str
    order_sentence: str
    figure: str
    """Inline SVG, trusted: made by figures.py."""
    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One quantity over the matched updates, as a plot with its sentence."""

    name: str
    title: str
    mark: Mark
    sentence: str
    figure: str
    """Inline SVG, trusted: made by curves.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerical:
    """The numerical family."""

    mark: Mark
    sentence: str
    basis: tuple[str, ...]
    worst: Table
    worst_sentence: str
    places: Table
    panels: tuple[Panel, ...]
    how_to_read: str
    failed_cases: Table | None
    """Workloads that do not pass."""
    cases: Table
    controls: Table
    weaker: tuple[str, ...]
    """What says less of independence, and why."""
    factors: Table
    tensor_sentence: str
    tensors: Table
    isolated_sentence: str
    isolated: Table
    vacuity_sentence: str
    vacuity: Table
    blind: Table | None
    """Gates that would have seen no fault."""
    partly_blind: Table | None
    """Gates that would have seen some faults only."""
    cost_sentence: str
    costs: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One recipe of the convergence family, with its plots and raw tables."""

    name: str
    title: str
    mark: Mark
    sentence: str
    budget: str
    configuration: str
    extension: str
    summary: str
    differences_figure: str
    """Inline SVG, trusted: made by training_plots.py."""
    curves_figure: str
    """Likewise."""
    differences: Table
    cost: Table
    curves: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """The convergence family."""

    mark: Mark
    sentence: str
    basis: tuple[str, ...]
    recipes: Table
    rule_sentence: str
    looks: Table | None
    """First beside second look; None if no extension was taken."""
    trainings: tuple[Training, ...]
    how_to_read_differences: str
    how_to_read_curves: str
    power_sentence: str
    power: Table | None
    """None where provenance holds no such figures."""
    cost_sentence: str
    costs: Table
    chance_sentences: tuple[str, ...]
    chance: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendments:
    """What was measured again, and why."""

    sentence: str
    """Stands before the verdict's own; empty where nothing of this candidate is void."""
    notes: tuple[str, ...]
    acts: Table
    slots: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What people decided."""

    sentences: tuple[str, ...]
    """Which side is the default, and whether the baseline was retired."""
    acts: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """One file beside the report."""

    file: str
    label: str
    sha256: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole report."""

    campaign: str
    candidate: str
    mark: Mark
    word: str
    sentence: str
    consequence: str
    tried: str
    """Which candidate this is, of how many, and what became of the others."""
    fallback: str
    """Whether each side resumes the other's checkpoint."""
    mixed: str
    """That attempts ran on several platforms; empty where they did not."""
    chips: tuple[Chip, ...]
    cards: tuple[Card, ...]
    families: Table
    gates: Table
    gate_groups: tuple[Table, ...]
    observation_error: str
    """Why nothing is observed beside the gates; empty where there is no such fault."""
    categories: Table | None
    production: Table | None
    how_to_read: str
    subjects: tuple[Subject, ...]
    spread: Table
    noise_sentence: str
    noise: Table
    scaling_sentence: str
    scaling: Table | None
    """None where no configuration has several topologies."""
    pairs: Table
    numerical: Numerical | None
    """None where the family is not declared."""
    convergence: Convergence | None
    """Likewise."""
    missing: Table
    failed: Table
    attempts: Table
    segments: Table | None
    """Of runs; None where none was attempted."""
    rules: tuple[str, ...]
    departures: tuple[str, ...]
    digests: Table
    stamps: tuple[tuple[str, str], ...]
    """Name and digest of what the page was made from, for programs: `verify` compares them."""
    machines: Table
    hosts: Table
    platforms: Table | None
    """None for provenance that was written before it told them."""
    conditions: Table | None
    """None where the sides of every measurement ran alike."""
    bundles: Table | None
    """None where everything was made where the driver reaches."""
    shared_boots: Table | None
    """None where no machine measured a workload in several repeats without a boot in between."""
    nodes: Table | None
    """None for provenance that was written before it told them."""
    frozen_on: Table
    versions: Table
    data: Table
    reads: Table | None
    """None for provenance that was written before it told them."""
    left_out: Table
    others: Table
    registry: Table
    amendments: Amendments | None = None
    """None where nothing was amended."""
    decisions: Decisions | None = None
    """None where nothing was decided."""
    downloads: tuple[Download, ...] = ()


def text(value: object) -> Cell:
    """Return a cell of plain text; nothing prints as `ABSENT`."""
    shown = "" if value is None else str(value)
    return Cell(text=shown or ABSENT)


def code(value: object) -> Cell:
    """Return a cell with an identifier, a digest or a path."""
    shown = "" if value is None else str(value)
    return Cell(text=shown or ABSENT, code=bool(shown))


def number(shown: str, value: object) -> Cell:
    """Return a cell with a printed number and the number behind it."""
    return Cell(text=shown, value=None if value is None else str(value))


def status(mark: Mark) -> Cell:
    """Return a cell with an outcome."""
    return Cell(text=mark.word, mark=mark)


def columns(*titles: str, numeric: Sequence[str] = ()) -> tuple[Column, ...]:
    """Return columns by title; those in `numeric` are aligned and sorted as numbers."""
    return tuple(Column(title=title, numeric=title in numeric) for title in titles)
