from __future__ import annotations

import pytest

from campaign import redact


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        ("https://user:canary@host.example/p/r.git", "https://host.example/p/r.git"),
        ("https://canary@host.example/p", "https://host.example/p"),
        ("https://host.example/p?token=canary#canary", "https://host.example/p"),
        ("https://host.example?token=canary", "https://host.example"),
        ("ssh://git:canary@host.example:22/p", "ssh://host.example:22/p"),
        ("git@host.example:p/r.git", "host.example:p/r.git"),
        ("/srv/repos/r.git", "/srv/repos/r.git"),
        ("file:///srv/r.git", "file:///srv/r.git"),
        ("https://us@er:canary@host.example/p", "https://host.example/p"),
    ],
)
def test_a_url_keeps_host_and_path_alone(url: str, bare: str) -> None:
    assert redact.redact_url(url) == bare


def test_urls_inside_a_text_are_stripped_and_the_rest_is_kept() -> None:
    text = "fatal: unable to access 'https://user:canary@host.example/r.git?x=canary': DEADBEEF"
    assert redact.redact_text(text) == "fatal: unable to access 'https://host.example/r.git': DEADBEEF"


@pytest.mark.parametrize(
    "value",
    [
        *(f"gh{kind}_" + "a1" * 18 for kind in "pousr"),
        "github_pat_" + "a1" * 20,
        "glpat-" + "a1" * 10,
        "hf_" + "a1" * 16,
        "AKIA" + "A1" * 8,
        "ASIA" + "A1" * 8,
        "xoxb-" + "1" * 12,
        "sk-" + "a1" * 16,
        "pypi-" + "a1" * 20,
        "npm_" + "a1" * 18,
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "https://user:password@host.example/",
    ],
)
def test_plain_tokens_are_recognised(value: str) -> None:
    assert redact.find_token(f"X={value};")


@pytest.mark.parametrize("value", ["risk-averse", "/data/plays", "sk-1", "https://host.example/a@b:c", "a" * 64, ""])
def test_ordinary_values_are_not(value: str) -> None:
    assert redact.find_token(value) == ""


@pytest.mark.parametrize("name", ["API_KEY", "DB_PASSWORD", "WANDB_API_KEY", "HF_TOKEN", "CLIENT_SECRET"])
def test_names_that_announce_a_secret(name: str) -> None:
    assert redact.names_secret(name)


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "PAD_TOKEN", "KEYBOARD", "OMP_NUM_THREADS"])
def test_names_that_do_not(name: str) -> None:
    assert not redact.names_secret(name)


@pytest.mark.parametrize(
    "line",
    [
        'environment = { WANDB_API_KEY = "canary-4711" }',
        'launch = ["apptainer", "exec", "--env", "HF_TOKEN=canary-4711", "x.sif"]',
        'launch = ["run", "--password=canary-4711"]',
        'launch = ["run", "--auth-token", "canary-4711"]',
        'launch = ["run", "--token", "canary-4711"]',
        'setup = "export DB_PASSWORD=canary-4711"',
        "fixed = { client_secret = 'canary-4711' }",
        '"api_key" = "canary-4711"',
        "# the password: canary-4711",
    ],
)
def test_a_value_given_to_a_name_that_announces_a_secret_is_recognised(line: str) -> None:
    assert redact.find_assignment(line)


@pytest.mark.parametrize(
    "line",
    [
        'pass_environment = ["HF_TOKEN", "WANDB_API_KEY"]',
        'environment = { DB_PASSWORD = "${data.plays}" }',
        'environment = { DB_PASSWORD_FILE = "/run/secrets/db" }',
        'environment = { USE_SECRETS = "no" }',
        "axes.token_budget = [1000000, 2000000]",
        'pad_token = "<|endoftext|>"',
        'launch = ["run", "--tokens", "1000000"]',
    ],
)
def test_other_lines_of_configuration_are_not(line: str) -> None:
    assert not redact.find_assignment(line)


def test_long_texts_without_a_token_take_no_time() -> None:
    for text in ("a1" * (1 << 19), "://" * 200_000, "eyJ" * 200_000, "sk-" * 200_000, "x://" + "a" * (1 << 20)):
        redact.find_token(text)


def test_names_of_style_sheets_are_no_api_keys() -> None:
    assert redact.find_token('<div class="sk-toggleable__content-arrow sk-estimator-doc-link-label">') == ""
