from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import acceptance.protocol
from acceptance.formats import RETRIABLE, TABLES
from campaign.config.load import load_config, parse_config
from campaign.config.model import Config
from campaign.documents import Document, NumericalRules, Protocol, Retries, Slot, ThroughputRules
from campaign.planning.matrix import expand
from campaign.planning.packing import pack
from campaign.planning.protocol import build_protocol, departures, expand_slots
from jobs.common.plan import parse_protocol

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "gh200-backend" / "campaign.toml"
TEXT = """\
name = "demo"
[baseline]
source = "src"
adapter = "adapter:native"
python = "./python"
[throughput]
[matrix]
axes.mode = ["sync", "packed"]
axes.batch = [4, 8, 16]
[[category]]
name = "sync"
mode = "sync"
small_batch = { batch = [4, 8] }
[[category]]
name = "packed"
mode = "packed"
[[workload]]
name = "single"
production = true
config = { x = 1 }
"""


def parse(rules: str = "", text: str = TEXT, table: str = "throughput") -> Config:
    lines = f"{rules}\n" if rules else ""
    replaced = text.replace(f"[{table}]\n", f"[{table}]\n{lines}")
    return parse_config(replaced.encode(), path=Path("/c/campaign.toml"))


def slots_of(protocol: Protocol, kind: str) -> list[Slot]:
    return [slot for slot in protocol.slots if slot.kind == kind]


def test_the_protocol_holds_the_rules_the_matrix_and_the_headers() -> None:
    protocol = build_protocol(parse("window_s = 0.50\nwindows = 3"))
    assert protocol.families == ("throughput",)
    assert protocol.throughput == ThroughputRules(window_s="0.50", windows=3)
    assert type(protocol.throughput) is ThroughputRules
    assert {file: tuple(header) for file, header in protocol.headers.items()} == {
        file: table.header for file, table in TABLES.items()
    }
    assert [category.name for category in protocol.categories] == ["sync", "packed"]


def test_the_protocol_survives_being_written_and_read() -> None:
    protocol = build_protocol(parse())
    assert Protocol.parse(protocol.to_bytes(), where="protocol.json") == protocol


def test_the_protocol_names_no_side() -> None:
    data = build_protocol(parse()).to_bytes().decode()
    assert not [word for word in ("adapter", "/c/", "src", "python") if word in data]


def test_slots_have_the_names_of_the_formats() -> None:
    protocol = build_protocol(parse())
    names = [slot.slot for slot in protocol.slots]
    assert len(set(names)) == len(names)
    assert all(
        re.fullmatch(r"(baseline|candidate)/[a-z-]+/[a-z0-9._-]+(/r[1-9]\d*(p[1-9]\d*)?)?", name) for name in names
    )
    counts = Counter((slot.phase, slot.kind) for slot in protocol.slots)
    assert counts == {
        ("pilot", "pilot"): 14,
        ("baseline", "solo"): 21,
        ("baseline", "control_pair"): 6,
        ("throughput", "pair"): 21,
    }
    assert slots_of(protocol, "control_pair")[0].slot == "baseline/control/sync-4/r1"
    assert slots_of(protocol, "pair")[-1].slot == "candidate/pair/single/r3"
    assert slots_of(build_protocol(parse("pairs_per_repeat = 2")), "pair")[1].slot == "candidate/pair/sync-4/r1p2"


def test_solo_and_controls_can_be_left_out() -> None:
    text = TEXT.replace('name = "demo"', 'name = "demo"\nbaseline_first = false')
    counts = Counter(slot.kind for slot in build_protocol(parse("solo = false\ncontrols = false", text)).slots)
    assert counts == {"pilot": 14, "pair": 21}


def test_order_alternates_by_workload_in_its_category_and_by_repeat() -> None:
    protocol = build_protocol(parse())
    order = {(slot.workload, slot.repeat): slot.order for slot in slots_of(protocol, "pair")}
    first, second = ("baseline", "candidate"), ("candidate", "baseline")
    assert [order["sync-4", repeat] for repeat in (1, 2, 3)] == [first, second, first]
    for category in protocol.categories:
        for one, other in zip(category.workloads, category.workloads[1:], strict=False):
            assert order[one, 1] != order[other, 1]
    # sync-16 is the first of those without category, single the second.
    assert order["sync-16", 1] == first
    assert order["single", 1] == second


@given(st.integers(1, 6), st.sampled_from([1, 2, 4]))
def test_order_is_balanced_within_each_category(repeats: int, pairs: int) -> None:
    protocol = build_protocol(parse(f"repeats = {repeats}\npairs_per_repeat = {pairs}"))
    for category in protocol.categories:
        members = [slot for slot in slots_of(protocol, "pair") if slot.workload in category.workloads]
        first = sum(slot.order[0] == "baseline" for slot in members)
        assert abs(2 * first - len(members)) <= (pairs == 1)
    for slot in slots_of(protocol, "pair"):
        assert set(slot.order) == {"baseline", "candidate"}


def test_both_orders_are_in_each_repeat_with_two_pairs() -> None:
    pairs = slots_of(build_protocol(parse("pairs_per_repeat = 2")), "pair")
    orders: dict[tuple[str, int], set[tuple[str, ...]]] = {}
    for slot in pairs:
        orders.setdefault((slot.workload, slot.repeat), set()).add(slot.order)
    assert all(len(found) == 2 for found in orders.values())


def test_controls_alternate_by_category_and_repeat() -> None:
    controls = slots_of(build_protocol(parse()), "control_pair")
    order = {(slot.workload, slot.repeat): slot.order[0] for slot in controls}
    assert order["sync-4", 1] == "baseline"
    assert order["packed-4", 1] == "baseline_again"
    assert order["sync-4", 2] == "baseline_again"
    assert all(slot.pair == 1 for slot in controls)


def numerical(rules: str = "", text: str = TEXT) -> Config:
    return parse(text=f"{text}[numerical]\n{rules}\n")


def test_the_numerical_family_has_a_case_and_a_control_of_every_workload() -> None:
    protocol = build_protocol(numerical())
    assert protocol.families == ("throughput", "numerical")
    assert protocol.numerical == NumericalRules()
    names = [workload.name for workload in protocol.workloads]
    controls, cases = slots_of(protocol, "control_case"), slots_of(protocol, "case")
    assert [slot.slot for slot in controls] == [f"baseline/control-case/{name}" for name in names]
    assert [slot.slot for slot in cases] == [f"candidate/case/{name}" for name in names]
    assert {(slot.phase, slot.order, slot.repeat, slot.pair) for slot in controls} == {
        ("baseline", ("baseline", "baseline_again"), 0, 0)
    }
    assert {(slot.phase, slot.order, slot.repeat, slot.pair) for slot in cases} == {
        ("numerical", ("baseline", "candidate"), 0, 0)
    }
    assert {tuple(slot.slot for slot in group) for group in pack(cases, 1)} == {(slot.slot,) for slot in cases}


def test_without_controls_there_is_no_control_case() -> None:
    protocol = build_protocol(numerical("controls = false"))
    assert not slots_of(protocol, "control_case")
    assert len(slots_of(protocol, "case")) == 7


def test_a_protocol_without_the_family_has_no_numerical_rules() -> None:
    assert build_protocol(parse()).numerical is None


def test_patterns_become_workloads_in_the_order_of_the_matrix() -> None:
    rules = build_protocol(
        numerical('serialized = ["single", "sync-*"]\nshared_executor = ["packed-1[0-9]"]')
    ).numerical
    assert rules is not None
    assert rules.serialized == ("sync-4", "sync-8", "sync-16", "single")
    assert rules.shared_executor == ("packed-16",)


def test_every_number_of_the_family_is_frozen_as_it_is_written() -> None:
    text = """
updates = 3
moments = "warm"
loss_atol = 0.0030
gradients_threshold = 0.050
gated_tensors = ["updates", "exp_avg"]
required = ["mix"]
isolated_rtol = 1e-5
isolated_scalars = "fp32"
"""
    rules = build_protocol(numerical(text)).numerical
    assert rules == NumericalRules(
        updates=3,
        moments="warm",
        loss_atol="0.0030",
        gradients_threshold="0.050",
        gated_tensors=("updates", "exp_avg"),
        required=("mix",),
        isolated_rtol="1e-5",
        isolated_scalars="fp32",
    )


def test_a_numerical_protocol_is_understood_by_acceptance_and_by_the_harness() -> None:
    data = build_protocol(numerical('serialized = ["single"]\nrequired = ["optimizer_check"]')).to_bytes()
    assert acceptance.protocol.parse(data).families == ("throughput", "numerical")
    assert parse_protocol(data).workloads


def test_departures_of_the_numerical_family_are_named_once_each() -> None:
    config = numerical('updates_threshold = "0.1"\nparameters_threshold = "0.03"\nserialized = ["single"]')
    assert departures(build_protocol(config)) == departures(config)
    assert departures(config) == (
        "numerical.parameters_threshold is 0.03 instead of 0.02.",
        "numerical.serialized is single instead of none.",
    )


def test_the_full_matrix_has_the_published_counts_in_under_60_lines() -> None:
    config = load_config(EXAMPLE)
    assert config.raw.count(b"\n") < 60
    expansion = expand(config)
    assert len(expansion.workloads) == 117
    assert sum("-b" in workload.name and "-clip" in workload.name for workload in expansion.workloads) == 108
    counts = Counter((slot.phase, slot.kind) for slot in expand_slots(config, expansion))
    assert counts == {
        ("pilot", "pilot"): 244,
        ("baseline", "solo"): 351,
        ("baseline", "control_case"): 117,
        ("baseline", "control_pair"): 9,
        ("baseline", "run"): 15,
        ("throughput", "pair"): 351,
        ("numerical", "case"): 117,
        ("convergence", "run"): 15,
    }
    names = {workload.name for workload in expansion.workloads}
    assert {"90m-packed8-b16-c1024-clip1", "90m-packed8-b16-c1024-clipoff"} <= names


def test_acceptance_and_the_harness_take_the_full_matrix_which_shares_an_executor_where_the_seed_does() -> None:
    protocol = build_protocol(load_config(EXAMPLE))
    assert protocol.numerical is not None
    assert protocol.numerical.shared_executor == ("90m-packed8-b16-c1024-clip1", "90m-packed8-b16-c1024-clipoff")
    data = protocol.to_bytes()
    taken = acceptance.protocol.parse(data)
    assert taken.families == ("throughput", "numerical", "convergence")
    assert taken.convergence is not None
    assert {recipe.targets for recipe in taken.convergence.recipes} == {408_027_136}
    planned = parse_protocol(data).convergence
    assert planned is not None
    assert len(planned.recipes) == 5


@pytest.mark.parametrize("file", ["gh200-backend/campaign.toml", "h200/convergence.toml"])
def test_a_recipe_named_after_the_global_batch_says_how_it_is_shared(file: str) -> None:
    rules = build_protocol(load_config(ROOT / "examples" / file)).convergence
    assert rules is not None
    (recipe,) = [one for one in rules.recipes if "-b32-" in one.name]
    assert recipe.scored.endswith("; global batch 32: 8 in each of 4 workers")
    shared = {name: recipe.config[name] for name in ("batch", "models", "workers") if name in recipe.config}
    assert sorted(shared.values()) == [4, 8]
    assert shared["batch"] == 8
    assert recipe.updates * 32 * recipe.config["context"] == recipe.targets


@given(st.integers(1, 9), st.data())
def test_packing_never_puts_two_repeats_of_a_workload_into_one_allocation(most: int, data: st.DataObject) -> None:
    config = load_config(EXAMPLE)
    every = expand_slots(config, expand(config))
    chosen = data.draw(st.sets(st.integers(0, len(every) - 1), max_size=60))
    slots = [every[number] for number in sorted(chosen)]
    groups = pack(slots, most)
    assert sorted(slot.slot for group in groups for slot in group) == sorted(slot.slot for slot in slots)
    for group in groups:
        assert len({(slot.side, slot.phase, slot.repeat) for slot in group}) == 1
        assert 1 <= len({slot.workload for slot in group}) <= most
        assert len(group) == 1 or "run" not in {slot.kind for slot in group}


def test_packing_keeps_a_workloads_slots_of_a_repeat_together() -> None:
    protocol = build_protocol(parse("pairs_per_repeat = 2"))
    groups = pack([slot for slot in protocol.slots if slot.phase != "pilot"], 1)
    assert len(groups) == 2 * 3 * 7
    assert Counter(len(group) for group in groups) == {1: 15, 2: 27}
    assert len(pack(protocol.slots, 100)) == 2 + 3 + 3
    with pytest.raises(ValueError, match="at least one"):
        pack(protocol.slots, 0)


def test_departures_are_none_for_the_default_protocol() -> None:
    assert departures(build_protocol(parse())) == ()
    assert departures(build_protocol(parse('window_s = "1.000"\ncategory_threshold = 1.050'))) == ()


def test_every_departure_is_one_sentence() -> None:
    text = TEXT.replace('name = "demo"', 'name = "demo"\nbaseline_first = false')
    text += '[retries]\nagain = ["lost"]\nagain_once = []\n'
    config = parse("warmup_updates = 5\nwindow_s = 0.25\nsolo = false", text)
    found = departures(build_protocol(config))
    assert found == (
        "baseline_first is false instead of true: a candidate may be frozen before the baseline ran.",
        "throughput.warmup_updates is 5 instead of 20.",
        "throughput.window_s is 0.25 instead of 1.",
        "throughput.solo is false instead of true.",
        "retries.again is lost instead of node_fail, preempted, cancelled, lost, no_space, time_limit.",
        "retries.again_once is none instead of window_short.",
    )
    assert found == departures(config)


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ("throughput", "repeats = 1000"),
        ("throughput", "pairs_per_repeat = 100"),
        ("throughput", "warmup_updates = 0"),
        ("throughput", f"warmup_updates = {10**9}"),
        ("throughput", "windows = 1000"),
        ("throughput", "window_s = 1e-300"),
        ("throughput", "window_s = 86400"),
        ("throughput", "window_margin = 1"),
        ("throughput", "window_margin = 100.0"),
        ("throughput", f"pilot_s = 0.{'1' * 64}"),
        ("throughput", "category_threshold = 100"),
        ("throughput", "production_threshold = 0.000001"),
        ("throughput", f"seed = {2**63 - 1}"),
        ("throughput", "clock_relative = 0"),
        ("throughput", "clock_relative = 0.999"),
        ("throughput", "clock_absolute_s = 0"),
        ("throughput", "clock_absolute_s = 86400"),
        ("throughput", "solo = false"),
        ("throughput", "controls = false"),
        ("limits", "import_s = 10000000\nstartup_s = 10000000\nstall_s = 10000000"),
        ("limits", f"log_bytes = {1 << 40}"),
        ("retries", "max_attempts = 100"),
        ("retries", "again = []\nagain_once = []"),
        ("retries", f"again = {[ending.value for ending in RETRIABLE]}\nagain_once = []"),
        ("execution", 'device = "cuda"\nthreads = 65536'),
        ("numerical", "updates = 1000\nisolated_steps = 1000"),
        ("numerical", "loss_atol = 0\nloss_rtol = 0\nisolated_rtol = 0\nisolated_atol = 1e-300"),
        ("numerical", "loss_atol = 0.99\nloss_rtol = 0.99\nisolated_rtol = 0.99\nisolated_atol = 2e-5"),
        ("numerical", "gradients_threshold = 1e-300\nparameters_threshold = 0.99\nupdates_threshold = 0.99"),
        ("numerical", "tensor_floor = 1\ncontrol_factor = 1\nisolated_sd = 100"),
        ("numerical", "tensor_floor = 1e-300\ncontrol_factor = 100\nisolated_sd = 1e-5"),
        ("numerical", 'gated_tensors = ["gradients", "parameters", "updates", "exp_avg", "exp_avg_sq"]'),
        ("numerical", 'required = ["optimizer_check", "mix"]\ncontrols = false\nserialized = ["*"]'),
        ("numerical", 'shared_executor = ["*"]\nserialized = ["*"]\nmoments = "warm"\nisolated_scalars = "fp32"'),
    ],
)
def test_what_may_be_configured_is_taken_by_acceptance_and_by_the_harness(table: str, line: str) -> None:
    # One matrix workload is enough, and keeps a thousand repeats small.
    text = TEXT.replace('["sync", "packed"]', '["sync"]').replace("[4, 8, 16]", "[4]").replace("[4, 8]", "[4]")
    text = text.replace('[[category]]\nname = "packed"\nmode = "packed"\n', "")
    data = build_protocol(parse(line, text.replace("[throughput]", f"[{table}]"), table)).to_bytes()
    assert acceptance.protocol.parse(data).campaign == "demo"
    assert parse_protocol(data).workloads.keys() == {"sync-4", "single"}


def test_every_rule_can_depart() -> None:
    protocol = build_protocol(numerical())
    assert protocol.numerical is not None
    changed: dict[type[Document], dict[str, object]] = {ThroughputRules: {}, NumericalRules: {}, Retries: {}}
    for model, values in changed.items():
        for key, default in model.defaults().items():
            values[key] = (
                not default if isinstance(default, bool)
                else default + 1 if isinstance(default, int)
                else "7" if isinstance(default, str)
                else () if default
                else ("7",)
            )  # fmt: skip
    other = protocol.replace(
        throughput=protocol.throughput.replace(**changed[ThroughputRules]),
        numerical=protocol.numerical.replace(**changed[NumericalRules]),
        retries=protocol.retries.replace(**changed[Retries]),
    )
    assert len(departures(other)) == sum(len(values) for values in changed.values())
