"""Drawing with matplotlib, and turning what it drew into SVG that a strict content policy accepts.

The page's policy allows no style attribute, so each style becomes presentation attributes. Colours are drawn as those
of the light theme and written as variables of the page, so that the plot follows the theme.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"

INK = "#1a1c1e"
MUTED = "#555b61"
LINE = "#d5d9dd"
MISSED = "#b3261e"
PASSED = "#0a6b3d"
BASELINE = "#0072b2"
CANDIDATE = "#b84a00"
PAPER = "#ffffff"

_VARIABLES = {
    INK: "var(--text)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    MISSED: "var(--missed)",
    PASSED: "var(--pass)",
    BASELINE: "var(--baseline)",
    CANDIDATE: "var(--candidate)",
    PAPER: "var(--paper)",
}

LONGEST_LABEL = 40


def printable(label: str) -> str:
    """Return a label without characters that XML forbids, short enough for its margin."""
    clean = "".join(character if character.isprintable() else "\ufffd" for character in label)
    return clean if len(clean) <= LONGEST_LABEL else f"{clean[: LONGEST_LABEL - 3]}..."


def draw_figure(fill: Callable[[Figure], None], *, size_in: tuple[float, float], name: str, description: str) -> str:
    """Return a figure as an inline SVG element.

    Args:
        fill: Draws into the empty figure.
        size_in: Width and height in inches.
        name: Unique on the page; prefixes every id.
        description: What a reader who does not see the plot is told.
    """
    with warnings.catch_warnings():
        # A name in a script that matplotlib's own font lacks is drawn by the reader's browser, not by matplotlib.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        raw = _draw_raw(fill, size_in)
    return _inline(raw, prefix=f"plot-{name}", description=description)


def load() -> None:
    """Import what draws before it is asked for."""
    import matplotlib.backends.backend_svg  # noqa: PLC0415 - as below
    import matplotlib.figure  # noqa: F401, PLC0415 - as below


def _draw_raw(fill: Callable[[Figure], None], size_in: tuple[float, float]) -> bytes:
    # matplotlib takes most of a second to import and nothing else needs it.
    import matplotlib as mpl  # noqa: PLC0415 - see above
    from matplotlib.figure import Figure  # noqa: PLC0415 - see above

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "campaign",
        "text.parse_math": False,
        "font.family": "DejaVu Sans",
        "font.size": 8.5,
        "axes.unicode_minus": False,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=size_in)
        fill(figure)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return stream.getvalue()


# --- SVG that the page's policy accepts -------------------------------------------------------------------------------

_DROPPED = ("metadata", "style")
_FONT_FAMILY = re.compile(r"^font(-family)?$")


def _inline(raw: bytes, *, prefix: str, description: str) -> str:
    # The bytes come from matplotlib a moment ago: nothing of them was written by anybody else but text nodes.
    root = ET.fromstring(raw)  # noqa: S314 - see above
    used = {value.partition("#")[2].rstrip(")") for value in _references(root)}
    for element in root.iter():
        _drop_children(element)
        _style_to_attributes(element)
        _tidy_attributes(element, prefix, used)
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
        element.tail = None
        if element.tag != "text":
            element.text = None
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib.update({"role": "img", "aria-label": description, "class": "plot"})
    _flatten(root)
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)


def _references(root: ET.Element) -> Iterable[str]:
    for element in root.iter():
        for name, value in element.attrib.items():
            if name in (f"{{{_XLINK}}}href", "clip-path"):
                yield value


def _drop_children(element: ET.Element) -> None:
    for child in list(element):
        if isinstance(child.tag, str) and child.tag.removeprefix(f"{{{_SVG}}}") in _DROPPED:
            element.remove(child)


def _style_to_attributes(element: ET.Element) -> None:
    style = element.attrib.pop("style", "")
    for declaration in filter(None, (part.strip() for part in style.split(";"))):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font":
            element.attrib.update(_font_attributes(value))
        elif not _FONT_FAMILY.match(name):
            element.set(name, _VARIABLES.get(value, value))
    if element.tag == f"{{{_SVG}}}text" and "fill" not in element.attrib:
        element.set("fill", _VARIABLES[INK])


def _font_attributes(shorthand: str) -> dict[str, str]:
    """Return size and weight of a ``font`` shorthand; the family is the page's."""
    found: dict[str, str] = {}
    for word in shorthand.partition("'")[0].split():
        if word.endswith("px"):
            found["font-size"] = word
        elif word in ("bold", "700"):
            found["font-weight"] = "bold"
    return found


def _tidy_attributes(element: ET.Element, prefix: str, used: set[str]) -> None:
    if "id" in element.attrib:
        name = element.attrib.pop("id")
        if name in used:
            element.set("id", f"{prefix}-{name}")
    reference = element.attrib.pop(f"{{{_XLINK}}}href", None)
    if reference is not None:
        element.set("href", f"#{prefix}-{reference.removeprefix('#')}")
    if "clip-path" in element.attrib:
        element.set("clip-path", element.attrib["clip-path"].replace("#", f"#{prefix}-"))
    if element.attrib.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if "d" in element.attrib:
        element.set("d", " ".join(element.attrib["d"].split()))


def _flatten(element: ET.Element) -> None:
    """Replace groups that say nothing by their children: matplotlib nests one for every artist."""
    children: list[ET.Element[Any]] = []
    for child in list(element):
        _flatten(child)
        if child.tag == "g" and not child.attrib:
            children.extend(child)
        else:
            children.append(child)
    element[:] = children
