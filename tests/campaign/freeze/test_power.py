"""What the trainings can find out is looked at once, before they are frozen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaign import documents
from campaign.cli.main import main
from campaign.errors import ConfigError
from campaign.record.ledger import read_entries
from tests.support.freezing import CONFIG, Setting, make_setting

RECIPE = '[[recipe]]\nname = "{}"\nconfig = {{ x = {} }}\ntargets = 40\nvalidation_targets = 8\nupdates = 40\n'
ASSUMED = 'assumed_sd = "0.00242400"\nassumed_sd_source = "the last campaign"\n'
GOOD = 'assumed_sd = 0.0018\nassumed_sd_source = "the last campaign"\n'
WAIVED = 'power_waiver = "a first look"\n'
"""0.0018 has 90% with three seeds, 0.002424 has 73%."""


def trained(keys: str) -> str:
    return f"{CONFIG}\n{RECIPE.format('small', 9)}{RECIPE.format('large', 10)}[convergence]\n{keys}"


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return make_setting(tmp_path)


def recorded(setting: Setting) -> documents.Power:
    power = documents.Manifest.read(setting.home.manifest).power
    assert power is not None
    entry = next(one for one in read_entries(setting.home) if one.act == "froze_baseline")
    assert entry.data["power"] == power.to_json()
    return power


def test_enough_power_is_recorded_with_its_assumption(setting: Setting) -> None:
    result = setting.freeze(lambda _: trained(GOOD))
    power = recorded(setting)
    assert (power.assumed_sd, power.source, power.sufficient, power.waiver) == ("0.0018", "the last campaign", True, "")
    assert [one.recipe for one in power.recipes] == ["small", "large"]
    small = power.recipes[0]
    assert small.chance == pytest.approx(0.9003, abs=1e-3)
    assert (small.seeds_80, small.seeds_90) == (3, 3)
    assert small.smallest_missed == pytest.approx(0.005 + 0.0018 * 2.2973, abs=1e-5)
    assert power.chance_all == pytest.approx(small.chance**2)
    assert result.power == power
    assert [note for note in result.notes if note.startswith("power: at a true difference of 0 every recipe passes")]


def test_too_little_power_is_refused_and_nothing_is_left(setting: Setting) -> None:
    with pytest.raises(ConfigError, match="2 of 2 recipes would pass with less than 80%") as caught:
        setting.freeze(lambda _: trained(ASSUMED))
    assert "small with 73.2%, large with 73.2%; 3 seeds, margin 0.005, assumed SD 0.00242400" in caught.value.why
    assert "more seeds: 4 give 80%; or a [convergence.extension]; campaign plan" in caught.value.hint
    assert "--waive-power REASON" in caught.value.hint
    line = trained(ASSUMED).splitlines().index('assumed_sd = "0.00242400"') + 1
    assert caught.value.where.startswith(f"{setting.config_path}:{line}:")
    assert not setting.home.root.exists()


def test_seeds_that_would_do_are_those_of_a_single_look_where_an_extension_is_declared(setting: Setting) -> None:
    keys = 'assumed_sd = "0.01"\nassumed_sd_source = "a guess"\nextension = { seeds = [48] }\n'
    with pytest.raises(ConfigError) as caught:
        setting.freeze(lambda _: trained(keys))
    assert "give 80% at a single look; or a larger [convergence.extension]" in caught.value.hint


def test_no_assumption_is_refused(setting: Setting) -> None:
    with pytest.raises(ConfigError, match="assumes no SD") as caught:
        setting.freeze(lambda _: trained(""))
    assert "--spread-from" in caught.value.hint
    assert not setting.home.root.exists()


def test_a_spread_that_no_number_of_seeds_bears_says_so(setting: Setting) -> None:
    with pytest.raises(ConfigError) as caught:
        setting.freeze(lambda _: trained('assumed_sd = "0.5"\nassumed_sd_source = "a guess"\n'))
    assert "not even 1000 seeds give 80%" in caught.value.hint


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('assumed_sd = "0.001"\n', "assumed_sd without assumed_sd_source"),
        ('assumed_sd = "0.001"\nassumed_sd_source = " "\n', "assumed_sd without assumed_sd_source"),
        (f'assumed_sd_source = "x"\n{WAIVED}', "assumed_sd_source without assumed_sd"),
    ],
)
def test_an_assumption_has_a_source(setting: Setting, keys: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        setting.freeze(lambda _: trained(keys))


def test_a_waiver_is_recorded_with_the_figures_that_it_waives(setting: Setting) -> None:
    result = setting.freeze(lambda _: trained(ASSUMED + WAIVED))
    power = recorded(setting)
    assert (power.sufficient, power.waiver) == (False, "a first look")
    assert power.recipes[0].chance == pytest.approx(0.7323, abs=1e-3)
    assert power.recipes[0].seeds_80 == 4
    assert [note for note in result.notes if "below 80%, waived: a first look" in note]


def test_without_an_assumption_the_waiver_stands_alone(setting: Setting) -> None:
    result = setting.freeze(lambda _: trained(WAIVED))
    power = recorded(setting)
    assert (power.assumed_sd, power.recipes, power.chance_all) == (None, (), None)
    assert (power.sufficient, power.waiver) == (False, "a first look")
    assert [note for note in result.notes if "no SD of the paired differences is assumed" in note]


def test_a_waiver_that_nothing_needs_is_not_recorded(setting: Setting) -> None:
    result = setting.freeze(lambda _: trained(GOOD + WAIVED))
    assert recorded(setting).waiver == ""
    assert [note for note in result.notes if note.endswith("the waiver is not needed, and not recorded")]


def test_an_extension_counts(setting: Setting) -> None:
    setting.freeze(lambda _: trained(f"{ASSUMED}extension = {{ seeds = [48, 49, 50] }}\n"))
    power = recorded(setting)
    assert power.sufficient
    assert power.recipes[0].chance == pytest.approx(0.983, abs=2e-3)


def test_without_trainings_there_is_no_power(setting: Setting) -> None:
    setting.freeze()
    assert documents.Manifest.read(setting.home.manifest).power is None
    entry = next(one for one in read_entries(setting.home) if one.act == "froze_baseline")
    assert "power" not in entry.data


def test_a_later_candidate_changes_nothing(setting: Setting) -> None:
    setting.freeze(lambda _: trained(ASSUMED + WAIVED))
    before = setting.home.manifest.read_bytes()
    assert setting.freeze_candidate(lambda _: trained(ASSUMED + WAIVED)).is_new
    assert setting.home.manifest.read_bytes() == before
    with pytest.raises(ConfigError, match="convergence"):
        setting.freeze_candidate(lambda _: trained(GOOD))


# --- the command ------------------------------------------------------------------------------------------------------


def freeze(setting: Setting, text: str, *arguments: str) -> int:
    setting.config_path.write_text(text)
    return main(["freeze", str(setting.config_path), "--home", str(setting.home.root), *arguments])


def test_the_command_waives_with_a_reason(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    assert freeze(setting, trained(ASSUMED)) == 2
    assert "would pass with less than 80%" in capsys.readouterr().err
    assert freeze(setting, trained(ASSUMED), "--waive-power", " ") == 2
    assert "needs a reason" in capsys.readouterr().err
    assert not setting.home.manifest.exists()
    assert freeze(setting, trained(ASSUMED + WAIVED), "--waive-power", "said\nhere", "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["power"]["waiver"] == "said here"
    assert recorded(setting).waiver == "said here"


def test_there_is_nothing_to_waive_without_trainings_or_of_a_candidate(
    setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert freeze(setting, CONFIG, "--waive-power", "x") == 2
    assert "the configuration declares none" in capsys.readouterr().err
    assert freeze(setting, CONFIG) == 0
    capsys.readouterr()
    assert main(["freeze", "--candidate", "--home", str(setting.home.root), "--waive-power", "x"]) == 2
    assert "belongs to a baseline" in capsys.readouterr().err
