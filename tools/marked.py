"""Pages of which a part is written by a program: between two marks, which name the program."""

from __future__ import annotations


def rewritten(text: str, program: str, body: str) -> str:
    """Return a page with its written part anew.

    Args:
        text: The page.
        program: What writes it, as its first mark says.
        body: What stands between the marks, with its last newline.

    Raises:
        ValueError: The page does not have the marks, each once.
    """
    begin, end = f"<!-- written by {program} -->\n", f"<!-- end of {program} -->\n"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page does not have {begin!r} and {end!r} once each")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{body}{end}{after}"
