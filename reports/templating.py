"""Jinja, set up so that no text from evidence can become markup."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

_PUNCTUATION = re.compile(r"[\\`*_{}\[\]<>#|&~$]|^[-+=](?=.)")
_POWER = re.compile(r"\b[0-9](\.[0-9]+)?e[+-][0-9]+\b")
_PLAIN_NUMBER = re.compile(r"[+-]?[0-9][0-9,]*(\.[0-9]+)?(e[+-]?[0-9]+)?\u00d7?")


def templates_folder() -> Path:
    """Return the folder of the templates: inside the package in a wheel, beside it in a checkout.

    Raises:
        FileNotFoundError: There is none; the installation is incomplete.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "templates", package.parent / "templates"):
        if (folder / "report.html.j2").is_file():
            return folder
    raise FileNotFoundError(f"no report templates in or beside {package}: install the package again")


def markdown_escaped(value: object) -> str:
    """Return text that Markdown, and whatever templates a site runs over it, shows as it is."""
    if isinstance(value, Markup):
        return str(value)
    words = "".join(character if character.isprintable() else " " for character in str(value))
    flat = " ".join(words.split())
    # A sign before digits starts neither a list nor a rule; numbers stay readable in the source.
    return flat if _PLAIN_NUMBER.fullmatch(flat) else _PUNCTUATION.sub(r"\\\g<0>", flat)


def _code_span(value: str) -> Markup:
    """Return an identifier as a code span where that is safe, else as escaped text."""
    if re.fullmatch(r"[A-Za-z0-9/][A-Za-z0-9 ._/:+@,=-]*", value):
        return Markup(f"`{value}`")  # noqa: S704 - no character of the allowed set can leave the span
    return Markup(markdown_escaped(value))  # noqa: S704 - escaped for Markdown, which is not HTML here


def _breakable(value: str) -> Markup:
    """Return escaped text that may be broken after its slashes."""
    return Markup("/<wbr>").join(value.split("/"))


def _unbroken(value: str) -> Markup:
    """Return escaped text in which no power of ten is torn from its number."""
    return Markup(_POWER.sub(r'<span class="whole">\g<0></span>', str(escape(value))))  # noqa: S704 - escaped before


@functools.cache
def html_environment() -> Environment:
    """Return the environment for HTML: everything is escaped that is not marked as markup by this package."""
    environment = Environment(
        # select_autoescape() looks at the last suffix and would leave `.j2` unescaped.
        autoescape=True,
        loader=FileSystemLoader(templates_folder()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = _breakable
    environment.filters["unbroken"] = _unbroken
    return environment


@functools.cache
def markdown_environment() -> Environment:
    """Return the environment for Markdown: every value is escaped for Markdown as it is printed."""
    environment = Environment(
        autoescape=False,  # noqa: S701 - finalize escapes instead: HTML entities are not Markdown's escapes
        loader=FileSystemLoader(templates_folder()),
        undefined=StrictUndefined,
        finalize=markdown_escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["code"] = _code_span
    environment.globals["raw"] = trusted  # for what a macro has already escaped
    return environment


def load() -> None:
    """Compile the templates of a report before they are asked for."""
    html_environment().get_template("report.html.j2")
    markdown_environment().get_template("report.md.j2")
    for environment, macros in ((html_environment(), "macros.html.j2"), (markdown_environment(), "macros.md.j2")):
        environment.get_template(macros)


def read_template(name: str) -> str:
    """Return the text of a template folder's file."""
    return (templates_folder() / name).read_text(encoding="utf-8")


def policy(*, style: str, script: str) -> str:
    """Return the content security policy that allows exactly this style and this script, and nothing else."""

    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    allowed = f"style-src {source(style)}; script-src {source(script)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def trusted(markup: str) -> Markup:
    """Mark text as markup: only for what this package made or ships."""
    return Markup(markup)  # noqa: S704 - see above


def render(environment: Environment, template: str, **values: Any) -> str:
    """Render a template."""
    return environment.get_template(template).render(**values)
