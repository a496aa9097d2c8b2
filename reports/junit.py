"""The gates as JUnit XML, for build servers."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from reports.status import Mark
from reports.verdict import Gate


def _xml_text(value: str) -> str:
    """Return text without the characters that XML 1.0 cannot hold."""
    return "".join(character if character.isprintable() or character in "\n\t" else "\ufffd" for character in value)


def _add_case(suite: ET.Element, gate: Gate) -> None:
    case = ET.SubElement(suite, "testcase", classname=_xml_text(f"campaign.{gate.family}"), name=_xml_text(gate.id))
    if gate.mark is Mark.NOT_EVALUATED:
        ET.SubElement(case, "skipped", message=_xml_text(gate.reason))
    elif gate.mark is not Mark.PASS:
        message = _xml_text(f"{gate.finding}: {gate.reason}")
        failure = ET.SubElement(case, "failure", type=_xml_text(gate.finding), message=message)
        shown = f"{gate.statistic} {gate.value} {gate.rule}".strip() if gate.value is not None else gate.statistic
        if gate.lower is not None and gate.upper is not None:
            shown += f" (from {gate.lower} to {gate.upper})"
        failure.text = _xml_text(f"{shown}\n{gate.reason}")


def junit_xml(campaign: str, gates: Sequence[Gate]) -> bytes:
    """Return one test case per gate, one suite per family.

    Args:
        campaign: Name of the campaign.
        gates: The verdict's gates.
    """
    root = ET.Element("testsuites", name=_xml_text(campaign))
    for family in dict.fromkeys(gate.family for gate in gates):
        members = [gate for gate in gates if gate.family == family]
        skipped = sum(gate.mark is Mark.NOT_EVALUATED for gate in members)
        failures = sum(gate.mark is not Mark.PASS for gate in members) - skipped
        suite = ET.SubElement(
            root,
            "testsuite",
            name=_xml_text(family),
            tests=str(len(members)),
            failures=str(failures),
            errors="0",
            skipped=str(skipped),
        )
        for gate in members:
            _add_case(suite, gate)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"
