"""``campaign schema``."""

from __future__ import annotations

import json

import click

from campaign.cli.options import json_option
from campaign.cli.output import Output
from campaign.config.reference import schema, schema_text


@click.command
@json_option
def command(output: Output) -> None:
    """Print the JSON Schema of campaign.toml, for editors."""
    output.result(schema_text().rstrip("\n"), json.loads(json.dumps(schema())))
