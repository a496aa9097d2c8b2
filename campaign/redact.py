"""Keeps secrets out of what is frozen: URLs lose their credentials, and values that look like tokens are named."""

from __future__ import annotations

import itertools
import re

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>[^\s'\"<>]+)")
_SCP = re.compile(r"^[^/@\s:]+(?::[^/@\s]*)?@(?P<host>[^/@\s:]+:[^\s]*)$")

# Repeats are bounded: whole files are looked through, and a pattern must not go back over much of them.
_TOKENS = (
    ("a GitHub token", r"gh[pousr]_[A-Za-z0-9]{20}|github_pat_[A-Za-z0-9_]{20}"),
    ("a GitLab token", r"glpat-[A-Za-z0-9_-]{16}"),
    ("a Hugging Face token", r"\bhf_[A-Za-z0-9]{20}"),
    ("an AWS access key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("a Slack token", r"\bxox[abeprs]-[A-Za-z0-9-]{10}"),
    ("an API key", r"\bsk-(?=[A-Za-z_-]{0,40}[0-9])[A-Za-z0-9_-]{20}"),
    ("a package index token", r"\bpypi-[A-Za-z0-9_-]{32}|\bnpm_[A-Za-z0-9]{30}"),
    ("a JSON web token", r"\beyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8}"),
    ("a private key", r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"),
    ("a URL with a password", r"[A-Za-z0-9+.-]://[^\s/@:]{0,100}:[^\s/@]{1,200}@"),
)
_ANCHORS = (
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "hf_",
    "AKIA",
    "ASIA",
    "xox",
    "sk-",
    "pypi-",
    "npm_",
    "eyJ",
    "PRIVATE KEY-----",
    "://",
)
"""One of them is in every text that a pattern finds something in: looking for these is far faster."""
_PATTERNS = tuple((what, re.compile(pattern)) for what, pattern in _TOKENS)
_ANNOUNCING = (
    r"[a-z0-9_-]*(?:secret|passw(?:or)?d|credential|(?:api|access|private)[_-]?key|(?:auth|access|hf)[_-]?token)"
    r"[a-z0-9_-]*"
)
_ASSIGNED = re.compile(
    # NAME = value, "NAME": value, NAME=value; and "--name", "value" or --name value in a command.
    rf"""(?:\b{_ANNOUNCING}["']?\s*[=:]\s*|--(?:{_ANNOUNCING}|token)(?:\s*=\s*|["']\s*,\s*|\s+))"""
    r"""["']?(?![$/~.])[^\s"',]{6,}""",
    re.IGNORECASE,
)
"""A value of six characters or more that is neither a variable nor a path."""
_SECRET_WORDS = frozenset({"secret", "password", "passwd", "apikey", "credential", "credentials", "authorization"})
_SECRET_PAIRS = frozenset({"api_key", "access_key", "private_key", "auth_token", "access_token", "hf_token"})


def redact_url(url: str) -> str:
    """Return a URL without user, password, query and fragment; ``user@host:path`` loses its user."""
    scp = _SCP.match(url)
    if scp is not None and "://" not in url:
        return scp["host"]
    return redact_text(url)


def redact_text(text: str) -> str:
    """Return a text in which every URL has lost its user, password, query and fragment."""
    return _URL.sub(_strip, text)


def find_token(value: str) -> str:
    """Say what kind of secret a value plainly holds; empty when none is recognised. The value is never repeated."""
    if not any(anchor in value for anchor in _ANCHORS):
        return ""
    return next((what for what, pattern in _PATTERNS if pattern.search(value)), "")


def find_assignment(line: str) -> str:
    """Say that a line of configuration gives a value to a name that announces a secret; empty when it does not."""
    return "the value of a secret" if _ASSIGNED.search(line) else ""


def names_secret(variable: str) -> bool:
    """Return whether a variable's name says that its value is a secret."""
    words = variable.lower().split("_")
    pairs = {f"{first}_{second}" for first, second in itertools.pairwise(words)}
    return bool(_SECRET_WORDS.intersection(words) or _SECRET_PAIRS.intersection(pairs))


def _strip(match: re.Match[str]) -> str:
    authority, slash, path = match["rest"].partition("/")
    bare = re.split(r"[?#]", authority.rpartition("@")[2])[0]
    tail = re.split(r"[?#]", path)[0] if bare == authority.rpartition("@")[2] else ""
    return f"{match['scheme']}://{bare}{slash if tail or slash else ''}{tail}"
