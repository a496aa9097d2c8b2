"""Bytes that are not the evidence they should be: exit 5, no verdict, and every fault named by file and line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acceptance.formats import PAIRS, TABLES, WINDOWS
from tests.support.evidence import Campaign, make_campaign


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return make_campaign(tmp_path_factory.mktemp("bytes"), ratios={"a": ("1.2", "1.2", "1.2")})


def refusals(campaign: Campaign, file: str, data: bytes) -> tuple[str, ...]:
    """Return the faults that spoilt bytes give, and put the clean ones back."""
    path = campaign.evidence_path / file
    clean = path.read_bytes()
    path.write_bytes(data)
    try:
        result = campaign.evaluate()
    finally:
        path.write_bytes(clean)
    assert (result.exit_code, result.verdict) == (5, None)
    return result.faults


def field(value: str, column: str = "train_s", line: int = 4) -> Callable[[bytes], bytes]:
    """Return a change that puts a value into one field of pairs.csv."""

    def change(data: bytes) -> bytes:
        lines = data.split(b"\n")
        fields = lines[line - 1].split(b",")
        fields[PAIRS.header.index(column)] = value.encode("utf-8", "surrogateescape")
        lines[line - 1] = b",".join(fields)
        return b"\n".join(lines)

    return change


def line(change: Callable[[bytes], bytes], number: int = 4) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        lines = data.split(b"\n")
        lines[number - 1] = change(lines[number - 1])
        return b"\n".join(lines)

    return changed


FAULTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "NaN": (field("nan"), "pairs.csv:4: train_s"),
    "NaN in capitals": (field("NaN"), "pairs.csv:4: train_s"),
    "infinity": (field("inf"), "pairs.csv:4: train_s"),
    "negative infinity": (field("-inf"), "pairs.csv:4: train_s"),
    "infinity as a large exponent": (field("1e999"), "pairs.csv:4: train_s"),
    "separator": (field("1_000"), "pairs.csv:4: train_s"),
    "separator in a count": (field("1_000", "tokens"), "pairs.csv:4: tokens"),
    "plus sign": (field("+1.5"), "pairs.csv:4: train_s"),
    "plus sign in a count": (field("+1", "tokens"), "pairs.csv:4: tokens"),
    "negative count": (field("-1", "tokens"), "pairs.csv:4: tokens"),
    "leading zero in a count": (field("007", "tokens"), "pairs.csv:4: tokens"),
    "fraction in a count": (field("1.0", "tokens"), "pairs.csv:4: tokens"),
    "too large a count": (field("1" * 30, "tokens"), "pairs.csv:4: tokens"),
    "counter at zero": (field("0", "repeat"), "pairs.csv:4: repeat"),
    "unicode digits": (field("\u0661\u0662"), "pairs.csv:4: train_s"),
    "unicode digits in a count": (field("\uff11", "tokens"), "pairs.csv:4: tokens"),
    "unicode minus": (field("\u22121.5"), "pairs.csv:4: train_s"),
    "hexadecimal": (field("0x10"), "pairs.csv:4: train_s"),
    "decimal comma in quotes": (field('"1,5"'), "pairs.csv:4: 22 fields"),
    "bare point": (field(".5"), "pairs.csv:4: train_s"),
    "trailing point": (field("5."), "pairs.csv:4: train_s"),
    "space before a number": (field(" 1.5"), "pairs.csv:4: train_s"),
    "number with a line break": (field("1.5\r"), "pairs.csv:4: train_s"),
    "empty number": (field(""), "pairs.csv:4: train_s"),
    "empty text": (field("", "allocation"), "pairs.csv:4: allocation"),
    "huge exponent": (field("1e-99999999999999999999"), "pairs.csv:4: train_s"),
    "endless digits": (field("1" * 100000), "pairs.csv:4: train_s"),
    "capital flag": (field("True", "production"), "pairs.csv:4: production"),
    "unknown side": (field("other", "side"), "pairs.csv:4: side"),
    "unknown comparison": (field("other", "comparison"), "pairs.csv:4: comparison"),
    "open quote": (field('"a', "node"), "pairs.csv:4: node"),
    "quoted field": (field('"a"', "node"), "pairs.csv:4: node"),
    "control character": (field("a\x07", "node"), "pairs.csv:4: node"),
    "zero byte": (field("a\x00", "node"), "pairs.csv:4: node"),
    "line separator": (field("a\u2028", "node"), "pairs.csv:4: node"),
    "foreign byte": (field("a\udcff", "node"), "pairs.csv:4: byte 0xff"),
    "foreign byte in a number": (field("1\udcb2"), "pairs.csv:4: byte 0xb2"),
    "overlong encoding": (field("\udcc0\udcaf", "node"), "pairs.csv:4: byte 0xc0"),
    "encoded surrogate": (field("\udced\udca0\udc80", "node"), "pairs.csv:4: byte 0xed"),
    "extra column": (line(lambda text: text + b",1"), "pairs.csv:4: 22 fields"),
    "missing column": (line(lambda text: text.rpartition(b",")[0]), "pairs.csv:4: 20 fields"),
    "carriage return": (line(lambda text: text + b"\r"), "pairs.csv:4: tokens_per_s"),
    "blank line": (line(lambda text: text + b"\n"), "pairs.csv:5: blank line"),
    "blank line at the end": (lambda data: data + b"\n", "blank line"),
    "repeated header": (lambda data: data + data.split(b"\n")[0] + b"\n", "production"),
    "all carriage returns": (lambda data: data.replace(b"\n", b"\r\n"), "pairs.csv:1: the header"),
    "byte order mark": (lambda data: b"\xef\xbb\xbf" + data, "pairs.csv:1: the header"),
    "UTF-16": (lambda data: data.decode().encode("utf-16"), "pairs.csv:1: byte 0xff"),
    "no final newline": (lambda data: data[:-1], "the last line does not end with a newline"),
    "truncated last line": (lambda data: data[:-9], "the last line does not end with a newline"),
    "empty file": (lambda _: b"", "pairs.csv:1: the header"),
    "header in another order": (line(lambda text: b",".join(text.split(b",")[::-1]), 1), "pairs.csv:1: the header"),
    "header with an extra column": (line(lambda text: text + b",note", 1), "pairs.csv:1: the header"),
    "header with spaces": (line(lambda text: text.replace(b",", b", "), 1), "pairs.csv:1: the header"),
    "header of another table": (line(lambda _: ",".join(WINDOWS.header).encode(), 1), "pairs.csv:1: the header"),
    "no header": (lambda data: data.partition(b"\n")[2], "pairs.csv:1: the header"),
    "semicolons": (lambda data: data.replace(b",", b";"), "pairs.csv:1: the header"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_bytes_that_do_not_parse_give_no_verdict_and_are_named(campaign: Campaign, name: str) -> None:
    change, place = FAULTS[name]
    data = (campaign.evidence_path / "pairs.csv").read_bytes()
    assert change(data) != data
    faults = refusals(campaign, "pairs.csv", change(data))
    assert any(place in fault for fault in faults), faults
    assert all(fault.startswith("pairs.csv:") for fault in faults)


@pytest.mark.parametrize("file", TABLES)
def test_every_table_is_read_strictly(campaign: Campaign, file: str) -> None:
    data = (campaign.evidence_path / file).read_bytes()
    assert refusals(campaign, file, data[:-1])[0].startswith(f"{file}:")


def test_every_fault_is_named(campaign: Campaign) -> None:
    data = (campaign.evidence_path / "pairs.csv").read_bytes()
    for change in (field("nan", line=3), field("inf", "startup_s", line=3), field("a\udcff", "node", line=6)):
        data = change(data)
    faults = refusals(campaign, "pairs.csv", line(lambda text: text + b",9", 5)(data)[:-1])
    lines = sorted(int(fault.split(":")[1]) for fault in faults)
    assert lines == [3, 3, 5, 6, data.count(b"\n")]


def test_faults_of_several_files_are_named_together(campaign: Campaign) -> None:
    path = campaign.evidence_path / "windows.csv"
    clean = path.read_bytes()
    path.write_bytes(clean[:-1])
    try:
        faults = refusals(campaign, "attempts.csv", b"")
    finally:
        path.write_bytes(clean)
    assert {fault.split(":")[0] for fault in faults} == {"attempts.csv", "windows.csv"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "identity.json:1"),
        (b"{}", "is missing"),
        (b'{"a": 1}', "unknown field"),
        (b"\xff", "byte 0xff"),
        (b"[]", "not an object"),
    ],
)
def test_an_identity_that_does_not_parse_gives_no_verdict(campaign: Campaign, data: bytes, reason: str) -> None:
    (fault,) = refusals(campaign, "identity.json", data)
    assert fault.startswith("identity.json")
    assert reason in fault


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", "identity/2"),
        ("candidate", "baseline"),
        ("candidate", "c123"),
        ("candidate", "c" + "0" * 13),
        ("candidate", "../../etc"),
        ("baseline_sha256", "0" * 63),
        ("baseline_sha256", "A" * 64),
        ("manifest_sha256", None),
    ],
)
def test_a_wrong_field_of_the_identity_is_named(campaign: Campaign, name: str, value: str | None) -> None:
    import json  # noqa: PLC0415 - one use

    (fault,) = refusals(campaign, "identity.json", json.dumps({**campaign.identity, name: value}).encode())
    assert fault.startswith(f"identity.json: {name}")


def test_an_absent_identity_gives_no_verdict(campaign: Campaign) -> None:
    path = campaign.evidence_path / "identity.json"
    clean = path.read_bytes()
    path.unlink()
    result = campaign.evaluate()
    path.write_bytes(clean)
    assert (result.exit_code, result.verdict) == (5, None)


def test_a_protocol_that_does_not_parse_gives_no_verdict(campaign: Campaign) -> None:
    clean = campaign.protocol_path.read_bytes()
    campaign.protocol_path.write_bytes(clean.replace(b'"1.05"', b'"nan"'))
    result = campaign.evaluate()
    campaign.protocol_path.write_bytes(clean)
    assert (result.exit_code, result.verdict) == (5, None)
    assert "protocol.json: throughput.category_threshold" in result.faults[0]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(TABLES)), st.integers(0, 10**7), st.binary(min_size=0, max_size=3))
def test_no_damage_to_the_bytes_passes(campaign: Campaign, file: str, position: int, junk: bytes) -> None:
    """Whatever replaces a byte, the verdict is another one, or there is none."""
    path = campaign.evidence_path / file
    clean = path.read_bytes()
    expected = campaign.evaluate().verdict
    at = position % len(clean)
    damaged = clean[:at] + junk + clean[at + 1 :]
    path.write_bytes(damaged)
    try:
        result = campaign.evaluate()
    finally:
        path.write_bytes(clean)
    assert result.exit_code in {0, 3, 4, 5}
    if damaged != clean:
        assert result.verdict != expected
