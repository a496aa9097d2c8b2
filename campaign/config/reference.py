"""The reference of campaign.toml that programs write: its JSON Schema and the table of keys in docs/config.md."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from campaign.config.load import model_in
from campaign.config.model import CampaignFile

BEGIN = "<!-- begin keys: written by `make golden` -->"
END = "<!-- end keys -->"


def schema() -> dict[str, Any]:
    """Return the JSON Schema of campaign.toml."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **CampaignFile.model_json_schema()}


def schema_text() -> str:
    """Return the text of docs/campaign.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=True) + "\n"


def keys_text() -> str:
    """Return the tables of all keys in Markdown, one for each table of the file."""
    top = {key: field for key, field in CampaignFile.model_fields.items() if model_in(field.annotation) is None}
    parts = ["### Top level\n", _table(top)]
    for key, field in CampaignFile.model_fields.items():
        parts += _sections(key, field)
    return "\n".join(parts)


def _sections(key: str, field: FieldInfo) -> list[str]:
    """Return the section of a table, and those of the tables in it; nothing for a plain key."""
    model = model_in(field.annotation)
    if model is None:
        return []
    parts = [f"\n### {_heading(key, field)}\n", f"{_sentence(field, model)}\n", _table(model.model_fields)]
    for inner, inner_field in model.model_fields.items():
        parts += _sections(f"{key}.{inner}", inner_field)
    return parts


def replace_keys(page: str) -> str:
    """Return docs/config.md with its tables of keys written anew.

    Raises:
        ValueError: The page lacks the two marks.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN!r} or {END!r}")
    return f"{head}{BEGIN}\n{keys_text()}\n{END}{tail}"


def _heading(key: str, field: FieldInfo) -> str:
    annotation = str(field.annotation)
    if annotation.startswith("tuple"):
        return f"`[[{key}]]`"
    return f"`[{key}.NAME]`" if annotation.startswith("dict") else f"`[{key}]`"


def _sentence(field: FieldInfo, model: type[BaseModel]) -> str:
    """Return what a table is for: what its place in the file says, else its model."""
    if field.description:
        return f"{field.description[0].upper()}{field.description[1:]}."
    return " ".join((model.__doc__ or "").split())


def _table(fields: dict[str, FieldInfo]) -> str:
    rows = [f"| `{key}` | {_default(field)} | {_cell(field)} |" for key, field in fields.items()]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


def _cell(field: FieldInfo) -> str:
    if not field.description:
        raise ValueError("every key of campaign.toml has a description")
    return field.description.replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, BaseModel) or value in (None, "", (), {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    return f"`{value}`"
