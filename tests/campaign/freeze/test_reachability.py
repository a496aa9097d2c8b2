from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acceptance import vacuity
from acceptance.__main__ import own_sources, read_evidence
from acceptance.formats import GLOBAL_QUANTITIES, MUTATIONS
from acceptance.verdict import evaluate
from campaign.config.load import load_config, parse_config
from campaign.config.model import Config
from campaign.documents import Manifest, ThroughputRules, Workload
from campaign.errors import CampaignError, ConfigError
from campaign.freezing.programs import copy_program, find_programs
from campaign.freezing.reachability import check, fixtures, values
from campaign.freezing.reachability.values import Aim
from campaign.freezing.reachability.variants import CATEGORY, PRODUCTION, Variant, all_variants
from campaign.judging.evaluation import Run, Verdict
from campaign.planning.protocol import build_protocol
from tests.support.freezing import Setting, make_setting

ROOT = Path(__file__).parents[3]
PLACE = Path("/c/campaign.toml")
POINT_RULES = ("met", "missed", "missing", "invalid")
RULES = """\
[throughput]
[numerical]
[convergence]
power_waiver = "a test"
"""
TEXT = f"""\
name = "small"
baseline_first = false
[baseline]
source = "source"
adapter = "adapter:native"
python = "./python"
{RULES}
[matrix]
axes.mode = ["sync", "packed"]
axes.batch = [4]
production = ["packed-4"]
[[category]]
name = "sync"
mode = "sync"
[[recipe]]
name = "r"
config = {{ x = 1 }}
targets = 40
validation_targets = 8
updates = 10
"""
EXTENDED = "extension = { seeds = [48, 49] }"


def configure(throughput: str = "", numerical: str = "", convergence: str = "", text: str = TEXT) -> Config:
    """Return a configuration of all families with some rules that differ."""
    for table, lines in (("throughput", throughput), ("numerical", numerical), ("convergence", convergence)):
        text = text.replace(f"[{table}]\n", f"[{table}]\n{lines}\n" if lines else f"[{table}]\n")
    return parse_config(text.encode(), path=PLACE)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a copy of the real program and its digest."""
    folder = tmp_path_factory.mktemp("program") / "acceptance"
    return folder, copy_program(find_programs().acceptance, folder)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let the real program judge in this process, which takes no start; not where a test wants a child."""
    if "setting" not in request.fixturenames:
        monkeypatch.setattr(check, "run_program_often", judge_here)


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return make_setting(tmp_path)


def judge_here(_program: object, runs: Sequence[tuple[str, str]], **_options: Any) -> tuple[Run, ...]:
    return tuple(_judge(Path(protocol), Path(evidence)) for protocol, evidence in runs)


def _judge(protocol: Path, folder: Path) -> Run:
    evidence, foreign = read_evidence(folder)
    sources, rules = own_sources(), protocol.read_bytes()
    result = evaluate(protocol_json=rules, evidence=evidence, sources=sources, foreign=foreign)
    said = "".join(f"{fault}\n" for fault in result.faults).encode()
    return Run(exit_status=result.exit_code, stdout=result.verdict or b"", stderr=said)


def prove(config: Config, program: tuple[Path, str], folder: Path) -> check.Reachable:
    protocol, written = build_protocol(config), folder / "protocol.json"
    written.write_bytes(protocol.to_bytes())
    return check.require_reachable(config, protocol, written, *program, environment={})


# --- what is within reach ---------------------------------------------------------------------------------------------


def test_every_finding_that_the_families_can_give_is_within_reach(program: tuple[Path, str], tmp_path: Path) -> None:
    assert prove(configure(), program, tmp_path) == {
        "convergence": ("met", "missed", "inconclusive", "missing", "invalid"),
        "evidence": ("met", "missing", "invalid", "not_evaluated"),
        "numerical": (*POINT_RULES, "not_evaluated"),
        "throughput": POINT_RULES,
        "throughput/category": POINT_RULES,
        "throughput/production": POINT_RULES,
    }


def test_only_declared_families_are_looked_at(program: tuple[Path, str], tmp_path: Path) -> None:
    text = TEXT.replace("[numerical]\n", "").replace('[convergence]\npower_waiver = "a test"\n', "")
    config = configure(
        text=text[: text.index("[[recipe]]")].replace('[[category]]\nname = "sync"\nmode = "sync"\n', "")
    )
    assert set(prove(config, program, tmp_path)) == {"evidence", "throughput", "throughput/production"}


@pytest.mark.parametrize(
    ("throughput", "numerical", "convergence"),
    [
        ("pairs_per_repeat = 2\nwindows = 1\nwarmup_updates = 0", "updates = 1\nisolated_steps = 1", "seeds = [1, 2]"),
        ("solo = false\ncontrols = false\nrepeats = 1", "controls = false", "margin = 1"),
        ('category_threshold = 100\nproduction_threshold = "0.0011"', 'required = ["mix"]', 'margin = "1e-300"'),
        ("category_threshold = 0.5\nwindow_s = 86400", 'required = ["mix", "optimizer_check"]', "seeds = [3, 1, 9, 4]"),
        ("window_s = 1e-300", 'serialized = ["sync-*"]\nshared_executor = ["packed-4"]', EXTENDED),
        ("", 'gated_tensors = ["gradients", "parameters", "updates", "exp_avg", "exp_avg_sq"]', EXTENDED),
        ("category_threshold = 1.05\nproduction_threshold = 1.05", "loss_atol = 0\nloss_rtol = 0", ""),
        ("category_threshold = 1\nproduction_threshold = 3", "tensor_floor = 1\nmoments = 'warm'", ""),
        ("", 'updates_threshold = "0.99999999999999999999"\ngradients_threshold = "1e-300"', ""),
    ],
)
def test_rules_that_differ_from_the_default_ones_are_within_reach(
    program: tuple[Path, str], tmp_path: Path, throughput: str, numerical: str, convergence: str
) -> None:
    found = prove(configure(throughput, numerical, convergence), program, tmp_path)
    assert all(set(POINT_RULES) <= set(found[name]) for name in found if name != "evidence")
    assert [name for name in found if "inconclusive" in found[name]] == ["convergence"]


@pytest.mark.parametrize(
    "name", ["demo/campaign", "h200/convergence", "h200/deterministic", "h200/numerical", "h200/parallel"]
)
def test_the_examples_are_within_reach(program: tuple[Path, str], tmp_path: Path, name: str) -> None:
    assert prove(load_config(ROOT / "examples" / f"{name}.toml"), program, tmp_path)


@pytest.mark.slow
def test_the_large_example_is_within_reach(program: tuple[Path, str], tmp_path: Path) -> None:
    assert prove(load_config(ROOT / "examples" / "gh200-backend" / "campaign.toml"), program, tmp_path)


def test_the_manifest_keeps_what_was_come_to(setting: Setting) -> None:
    setting.freeze()
    kept = Manifest.read(setting.home.manifest).reachable
    assert kept["throughput"] == kept["throughput/category"] == POINT_RULES
    assert set(kept) == {"evidence", "throughput", "throughput/category"}


# --- what is out of reach ---------------------------------------------------------------------------------------------


class Refused(NamedTuple):
    """Rules of one table, and what is refused for them."""

    table: str
    lines: str
    what: str
    key: str


CATEGORY_MISSED = "throughput/sync/repeat-1 cannot be missed"
LAX_TENSORS = 'gated_tensors = ["updates"]\ntensor_updates = "0.99999999999999999999"'
LAX_LOOK = "extension = { seeds = [48], quantile = 1000 }\nmargin = 0.01"
REFUSED = (
    Refused("throughput", 'category_threshold = "0.0009"', CATEGORY_MISSED, "category_threshold"),
    Refused("throughput", 'category_threshold = "1e-330"', CATEGORY_MISSED, "category_threshold"),
    Refused(
        "throughput",
        "production_threshold = 0.0001",
        "throughput/production/packed-4/repeat-1 cannot be missed",
        "production_threshold",
    ),
    Refused("numerical", "loss_rtol = 0.95\nloss_atol = 0.9", "numerical/sync-4/loss cannot be missed", "loss_rtol"),
    Refused(
        "numerical",
        'gradients_threshold = "1e-330"',
        "numerical/sync-4/gradients cannot be met",
        "gradients_threshold",
    ),
    Refused(
        "numerical", 'isolated_rtol = "0.99999999"', "numerical/sync-4/optimizer cannot be missed", "isolated_rtol"
    ),
    Refused("numerical", LAX_TENSORS, "numerical/sync-4/updates/tensors cannot be missed", "tensor_updates"),
    Refused("convergence", LAX_LOOK, "convergence/r cannot be met", "extension"),
)


@pytest.mark.parametrize("refused", REFUSED)
def test_a_rule_that_puts_a_finding_out_of_reach_is_refused_at_its_place(
    program: tuple[Path, str], tmp_path: Path, refused: Refused
) -> None:
    config = configure(**{refused.table: refused.lines})
    with pytest.raises(ConfigError) as caught:
        prove(config, program, tmp_path)
    error = caught.value
    assert error.what == f"under this rule {refused.what}, whatever is measured"
    assert f"{refused.what}: where " in error.why
    line = int(error.where.removeprefix(f"{PLACE}:").partition(":")[0])
    assert config.raw.decode().splitlines()[line - 1].startswith(refused.key)
    assert f"change {refused.key}" in error.hint
    assert f"in [{refused.table}]" in error.hint


def test_nothing_is_frozen_where_a_finding_is_out_of_reach(setting: Setting) -> None:
    with pytest.raises(ConfigError, match="cannot be missed, whatever is measured"):
        setting.freeze(lambda text: text + "[throughput]\ncategory_threshold = 1e-4\n")
    assert not setting.home.root.exists()


class Fault(NamedTuple):
    """One change to a source of the acceptance program, and how the freeze takes it."""

    file: str
    old: str
    new: str
    said: str


FAULTS = (
    Fault("gates.py", "if self.holds(value):", "if True:", "cannot be missed"),
    Fault(
        "formats.py",
        "if not _DECIMAL.fullmatch(text):",
        'if text == "NaN":\n        return 0.0\n    if False:',
        "that are none",
    ),
    Fault("verdict.py", '        "outcome": outcome,', '        "outcome": "pass",', "contradicts itself"),
    Fault("selection.py", "if not row.sealed:", "if False:", "does not find what made-up evidence holds"),
    Fault("verdict.py", '**digests,\n        "outcome"', '**digests, "x": 1,\n        "outcome"', "printed no verdict"),
    Fault(
        "verdict.py",
        '"observations": observations.observe_safely(expected, checked)',
        '"observations": {"first": next((row.raw for rows in parsed.raw.values() for row in rows), "")}',
        "depends on the order of the rows",
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_program_that_does_not_do_what_the_rules_say_is_not_frozen(setting: Setting, fault: Fault) -> None:
    path = setting.programs.acceptance / fault.file
    source = path.read_text()
    assert fault.old in source
    path.write_text(source.replace(fault.old, fault.new))
    with pytest.raises(CampaignError, match=fault.said):
        setting.freeze()
    assert not setting.home.root.exists()


# --- the parts --------------------------------------------------------------------------------------------------------


def verdicts(folder: Path, config: Config) -> Iterator[tuple[Variant, Verdict]]:
    protocol, written = build_protocol(config), folder / "protocol.json"
    written.write_bytes(protocol.to_bytes())
    for number, variant in enumerate(all_variants(protocol)):
        variant.fixture.write(folder / str(number))
        if not variant.unreadable:
            yield variant, Verdict.parse(_judge(written, folder / str(number)).stdout, where=variant.what)


def test_any_other_finding_than_the_expected_one_is_named(tmp_path: Path) -> None:
    for variant, verdict in verdicts(tmp_path, configure(convergence=EXTENDED)):
        assert list(check.find_unreachable(variant, verdict)) == []
        for expected in variant.expected:
            wrong = "missing" if expected.finding != "missing" else "met"
            (gate, *_) = [gate for gate in verdict.gates if expected.covers(gate)]
            gates = tuple(own.replace(finding=wrong) if own is gate else own for own in verdict.gates)
            found = list(check.find_unreachable(variant, verdict.replace(gates=gates)))
            assert found[0].gate == gate.id
            assert f"it is {wrong}" in str(found[0])


def test_a_gate_that_is_not_there_is_named(tmp_path: Path) -> None:
    for variant, verdict in verdicts(tmp_path, configure()):
        for expected in variant.expected:
            gates = tuple(gate for gate in verdict.gates if not expected.covers(gate))
            found = list(check.find_unreachable(variant, verdict.replace(gates=gates)))
            assert (expected.part, expected.finding) in {(item.gate, item.finding) for item in found}


def test_an_inconclusive_point_rule_and_an_outcome_that_is_no_pass_are_named(tmp_path: Path) -> None:
    for variant, verdict in verdicts(tmp_path, configure()):
        (first, *rest) = verdict.gates
        odd = verdict.replace(gates=(first.replace(finding="inconclusive"), *rest))
        assert any(item.finding == "met or missed" for item in check.find_unreachable(variant, odd))
        if variant.passes:
            (found,) = check.find_unreachable(variant, verdict.replace(outcome="not_qualified"))
            assert (found.gate, found.finding) == ("the outcome", "a pass")


def test_what_is_tried_covers_every_part_and_finding() -> None:
    expected = {
        (item.part, item.finding)
        for variant in all_variants(build_protocol(configure(convergence=EXTENDED)))
        for item in variant.expected
    }
    points = {(part, finding) for part in (CATEGORY, PRODUCTION, "numerical", "convergence") for finding in POINT_RULES}
    others = {("convergence", "inconclusive"), ("numerical", "not_evaluated"), ("evidence", "not_evaluated")}
    assert points | others | {("evidence", finding) for finding in ("met", "missing", "invalid")} == expected


def test_mutations_have_the_rows_that_acceptance_asks_for() -> None:
    assert {name: vacuity.quantities_of(name) for name in MUTATIONS} == fixtures.MUTATED


def test_a_ratio_lies_just_beside_the_thresholds_that_a_workload_has() -> None:
    rules = ThroughputRules(category_threshold="1.2", production_threshold="0.9")

    def ratios(category: str, *, production: bool) -> tuple[Decimal, Decimal]:
        workload = Workload(name="w", category=category, production=production, config={}, config_sha256="")
        return values.ratio(rules, workload, Aim.MET), values.ratio(rules, workload, Aim.MISSED)

    assert ratios("sync", production=False) == (Decimal("1.26"), Decimal("1.14"))
    assert ratios("", production=True) == (Decimal("0.945"), Decimal("0.855"))
    assert ratios("sync", production=True) == (Decimal("1.26"), Decimal("0.855"))
    assert ratios("", production=False) == (Decimal(1), Decimal(1))


# --- any rules --------------------------------------------------------------------------------------------------------

FRACTIONS = st.sampled_from(
    ["0", "1e-320", "1e-30", "0.000001", "0.05", "0.5", "0.9", "0.999999999", "0.99999999999999999"]
)
BELOW_ONE = FRACTIONS.filter(lambda text: text != "0").map(repr)
RATIOS = st.sampled_from(["1e-320", "0.0009", "0.001", "0.98", "1", "1.0000000000000000001", "1.05", "100"])
PATTERNS = st.lists(st.sampled_from(["sync-4", "s*-4", "packed-4"]), max_size=2, unique=True)


@st.composite
def some_rules(draw: st.DrawFn) -> tuple[str, str, str]:
    """Draw valid rules of each family."""

    def pick(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    throughput = [
        f"repeats = {pick(1, 2)}",
        f"pairs_per_repeat = {pick(1, 2)}",
        f"windows = {pick(1, 2)}",
        f"window_s = {pick('1e-320', '0.1', '86400')!r}",
        f"category_threshold = {draw(RATIOS)!r}",
        f"production_threshold = {draw(RATIOS)!r}",
        f"solo = {pick('true', 'false')}",
        f"controls = {pick('true', 'false')}",
    ]
    gated = draw(st.lists(st.sampled_from(GLOBAL_QUANTITIES), max_size=3, unique=True))
    numerical = [
        f"updates = {pick(1, 2, 3)}",
        f"isolated_steps = {pick(1, 3)}",
        f"loss_atol = {draw(FRACTIONS)!r}",
        f"loss_rtol = {draw(FRACTIONS)!r}",
        f"isolated_rtol = {draw(FRACTIONS)!r}",
        f"gradients_threshold = {draw(BELOW_ONE)}",
        f"updates_threshold = {draw(BELOW_ONE)}",
        f"tensor_updates = {draw(BELOW_ONE)}",
        f"tensor_floor = {draw(BELOW_ONE)}",
        f"gated_tensors = {gated!r}",
        f"required = {draw(st.sampled_from([[], ['mix'], ['mix', 'optimizer_check']]))!r}",
        f"serialized = {draw(PATTERNS)!r}",
        "controls = true",
        f"shared_executor = {draw(PATTERNS)!r}",
    ]
    seeds = draw(st.lists(st.integers(0, 40), min_size=2, max_size=6, unique=True))
    added = draw(st.lists(st.integers(41, 60), min_size=0, max_size=7, unique=True))
    convergence = [f"seeds = {seeds}", f"margin = {pick('1e-320', '1e-12', '0.005', '1')!r}"]
    if added:
        quantiles = pick("", ", quantile = 900", ", quantile_first = 900, quantile = 900")
        convergence.append(f"extension = {{ seeds = {added}{quantiles} }}")
    return "\n".join(throughput), "\n".join(numerical), "\n".join(convergence)


@settings(max_examples=12)
@given(rules=some_rules())
def test_any_valid_rules_are_within_reach_or_refused_with_a_reason(
    program: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory, rules: tuple[str, str, str]
) -> None:
    try:
        found = prove(configure(*rules), program, tmp_path_factory.mktemp("rules"))
    except ConfigError as error:
        refusal = error
    else:
        assert all(set(POINT_RULES) <= set(found[name]) for name in found if name != "evidence")
        assert "inconclusive" in found["convergence"]
        return
    assert "cannot be" in refusal.what
    assert refusal.where.startswith(f"{PLACE}:")
    assert refusal.why
    assert refusal.hint
