"""Writing a report: the entry point of this package."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
from pathlib import Path

from reports import templating
from reports.downloads import build_downloads
from reports.junit import junit_xml
from reports.page import build_page
from reports.source import Source, read_source
from reports.verdict import parse_gates
from reports.view import Download, Page


def render_html(page: Page) -> str:
    """Return the page as one HTML file that needs nothing else."""
    style = templating.read_template("report.css")
    script = templating.read_template("report.js")
    return templating.render(
        templating.html_environment(),
        "report.html.j2",
        page=page,
        policy=templating.policy(style=style, script=script),
        style=templating.trusted(style),
        script=templating.trusted(script),
        trusted=templating.trusted,
    )


def render_markdown(page: Page) -> str:
    """Return the page's content as Markdown; the auditor's long tables are left to their CSV files."""
    return templating.render(templating.markdown_environment(), "report.md.j2", page=page)


def build_report(source: Source) -> dict[str, bytes]:
    """Return every file of the report by name: the same source gives the same bytes."""
    gates = parse_gates(source.verdict)
    labelled = build_downloads(source, gates)
    labelled["junit.xml"] = ("JUnit XML", junit_xml(source.protocol["campaign"], gates))
    page = dataclasses.replace(build_page(source), downloads=_listing(labelled))
    labelled["report.md"] = ("Markdown source", render_markdown(page).encode())
    html = render_html(dataclasses.replace(page, downloads=_listing(labelled))).encode()
    return {**{name: data for name, (_, data) in labelled.items()}, "report.html": html}


def _listing(labelled: dict[str, tuple[str, bytes]]) -> tuple[Download, ...]:
    return tuple(
        Download(file=name, label=label, sha256=hashlib.sha256(data).hexdigest(), num_bytes=len(data))
        for name, (label, data) in labelled.items()
    )


def _replace(path: Path, data: bytes) -> None:
    """Write a file atomically: a reader sees the old report or the new one, never half of one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with temporary.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def write_report(*, protocol_path: Path, evaluation: Path, out: Path) -> None:
    """Read an evaluation and write its report.

    Args:
        protocol_path: The campaign's ``protocol.json``.
        evaluation: Folder with ``verdict.json``, ``provenance.json`` and ``evidence/``.
        out: Folder to write to; made if it is not there. Files of an earlier report are replaced.

    Raises:
        ReportError: Something to read is missing, does not parse, or does not belong to the rest.
    """
    files = build_report(read_source(protocol_path=protocol_path, evaluation=evaluation))
    out.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        _replace(out / name, data)
