"""``campaign export``."""

from __future__ import annotations

import re
from pathlib import Path

import click

from campaign.cli.options import absolute, home_option, json_option, working_folder
from campaign.cli.output import Output
from campaign.errors import StateError
from campaign.exporting.choose import Choice, Withheld, choose
from campaign.exporting.crate import dump_crate
from campaign.exporting.write import dump_listing, write_archive
from campaign.frozen import check_recorded, read_frozen
from campaign.paths import HomePaths
from campaign.record.head import read_head
from campaign.record.ledger import read_chain
from campaign.verifier.archive import CRATE, EXPORT


@click.command
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    show_default="NAME.campaign.tar here",
    help="The archive; nothing may be there.",
)
@click.option(
    "--withhold",
    type=click.Choice([kind.value for kind in Withheld]),
    multiple=True,
    help="Leave these out, and keep their digests; may be given several times.",
)
@click.option(
    "--withhold-above",
    metavar="BYTES",
    type=click.IntRange(min=0),
    help="Leave out what is larger, of those kinds that may be withheld, and keep the digests.",
)
@click.option("--ro-crate", is_flag=True, help="Describe it for other tools, too: ro-crate-metadata.json.")
@home_option
@json_option
def command(
    *,
    home: HomePaths,
    output: Output,
    out: Path | None,
    withhold: tuple[str, ...],
    withhold_above: int | None,
    ro_crate: bool,
) -> None:
    """Write one archive with all that verification needs; the same home gives the same bytes.

    Whoever has it needs nothing but Python: campaign verify --home FILE, or the verifier in it. What is withheld is
    present as a digest. Nothing is written into the home.
    """
    frozen = read_frozen(home)
    entries, last = read_chain(home)
    check_recorded(home, frozen, entries)
    name = frozen.manifest.campaign
    known = read_head(name, entries, last)
    target = absolute(out) if out else working_folder() / f"{name}.campaign.tar"
    if target.exists():
        raise StateError("there is something already", where=str(target), hint="name another one: --out FILE")
    if target.resolve().is_relative_to(home.root.resolve()):
        raise StateError("an archive cannot lie in what it holds", where=str(target), hint="--out FILE, elsewhere")
    contents = choose(home, Choice(kinds=frozenset(map(Withheld, withhold)), above_bytes=withhold_above))
    crate = dump_crate(home, frozen.manifest, entries, contents) if ro_crate else None
    listing = dump_listing(name, frozen.manifest_sha256, known.line if known else "", contents, crate)
    own = {EXPORT: listing} | ({CRATE: crate} if crate is not None else {})
    done = write_archive(home, contents, own, target, top=re.sub(r"[^A-Za-z0-9._-]", "-", f"campaign-{name}"))
    if known is None:
        output.note("the campaign is not closed: nothing shows that its last acts are all there (campaign seal)")
    value = {
        "archive": str(done.path),
        "bytes": done.num_bytes,
        "sha256": done.sha256,
        "files": len(contents.files),
        "withheld": len(contents.withheld),
        "withheld_bytes": sum(file.num_bytes for file in contents.withheld),
        "head": known.line if known else None,
    }
    lines = [f"{done.sha256}  {done.path}"]
    if contents.withheld:
        lines.append(f"withheld: {value['withheld']} files, {value['withheld_bytes']} bytes; their digests are in it")
    lines.append(f"to check it: campaign verify --home {done.path}")
    output.result("\n".join(lines), value)
