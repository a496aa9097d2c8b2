"""Values of campaign.toml whose exact spelling or safety matters: decimal numbers, names, paths, references."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Strict, ValidationInfo, WithJsonSchema

from acceptance.formats import RETRIABLE, Ending

DECIMAL_PATTERN = r"-?[0-9]{1,64}(\.[0-9]{1,64})?(e[+-]?[0-9]{1,3})?"
NAME_PATTERN = r"[a-z0-9][a-z0-9._-]*"
NAME_LENGTH = 100
"""Names become folder names; file systems allow 255 bytes for one."""
ADAPTER_PATTERN = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
VARIABLE_PATTERN = r"[A-Za-z_][A-Za-z0-9_]*"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""What no text for people may hold; the acceptance program refuses it, too."""
REFERENCE = re.compile(r"\$\{([^}]*)\}?")
"""A reference inside an environment value; the group is what stands between the braces."""
CONTAINER_REFERENCE = "${container}"
"""Stands in a launch prefix for the path of the side's image file."""
RESERVED_VARIABLES = {
    "PYTHONPATH": 'name the folders in python_path = ["..."]: they are taken from the snapshot',
    "PYTHONHOME": "give the interpreter itself in python",
    "PYTHONSTARTUP": "import what is needed in the adapter",
    **dict.fromkeys(
        ("PYTHONSAFEPATH", "PYTHONNOUSERSITE", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"),
        "the harness decides what a side's interpreter imports, for both sides alike",
    ),
    "CAMPAIGN_ALLOCATION": "the harness marks the processes that it starts by it",
    **dict.fromkeys(("HOME", "TMPDIR"), "every run has private folders; name data sets under [data]"),
    **dict.fromkeys(
        ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"), "both sides get the devices of their allocation, in bus order"
    ),
    **dict.fromkeys(
        (
            "XDG_CACHE_HOME",
            "TORCHINDUCTOR_CACHE_DIR",
            "TRITON_CACHE_DIR",
            "TORCH_EXTENSIONS_DIR",
            "PYTORCH_KERNEL_CACHE_PATH",
            "CUDA_CACHE_PATH",
            "NUMBA_CACHE_DIR",
            "MPLCONFIGDIR",
        ),
        "every run has caches of its own, empty at the start",
    ),
    **dict.fromkeys(
        (
            "OMP_NUM_THREADS",
            "MKL_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "BLIS_NUM_THREADS",
            "NUMEXPR_NUM_THREADS",
            "VECLIB_MAXIMUM_THREADS",
            "RAYON_NUM_THREADS",
        ),
        "set threads in [execution]: both sides get it",
    ),
    **dict.fromkeys(
        ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"),
        "set processes and nodes of the workload: each of its processes finds its own values",
    ),
}
"""Variables that a side cannot have, with what to do instead: those that would let it import from outside its snapshot,
and those that the harness decides for both sides; a test compares the latter with the harness's own list."""


class ExactFloat(float):
    """A float that remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> Self:
        """Build the number from its text in a TOML file."""
        number = super().__new__(cls, text)
        number.text = text.replace("_", "").removeprefix("+").lower()
        return number


def decimal_text(value: Any) -> str:
    """Return the exact decimal text of a TOML number or string.

    Raises:
        ValueError: It is not a finite decimal number.
    """
    if isinstance(value, ExactFloat):
        text = value.text
    elif isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        text = str(value)
    else:
        raise ValueError(f"must be a decimal number, not {value!r}")  # noqa: TRY004 - pydantic reports ValueError alone
    if re.fullmatch(DECIMAL_PATTERN, text, flags=re.ASCII) is None or not math.isfinite(float(text)):
        raise ValueError(f"must be a finite decimal number such as 1.05, not {text!r}")
    return text


def _within(accepts: Callable[[Decimal], bool], wanted: str) -> BeforeValidator:
    """Return the validator of a decimal string within a range."""

    def validate(value: Any) -> str:
        text = decimal_text(value)
        if not accepts(Decimal(text)):
            raise ValueError(f"must be {wanted}, not {text}")
        return text

    return BeforeValidator(validate)


def retriable(value: Ending) -> Ending:
    """Return an ending that a protocol may let be tried again.

    Raises:
        ValueError: It is the outcome of a measurement, which is never tried again.
    """
    if value not in RETRIABLE:
        raise ValueError(f"{value} is never tried again; one of: {', '.join(RETRIABLE)}")
    return value


def json_value(value: Any) -> Any:
    """Return a TOML value as plain JSON: what an adapter's configuration may hold.

    Raises:
        ValueError: It holds a date, a time, NaN or infinity.
    """
    if isinstance(value, dict):
        return {key: json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [json_value(item) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("NaN and infinity cannot be stored in a configuration; write them as text")
        return float(value)
    if isinstance(value, (bool, int, str)):
        return value
    raise ValueError(f"{value} cannot be stored in a configuration; write dates and times as text")


def safe_name(value: Any) -> str:
    """Return a name that may be part of a slot's name and of a path.

    Raises:
        ValueError: It may not.
    """
    if not isinstance(value, str) or re.fullmatch(NAME_PATTERN, value, flags=re.ASCII) is None:
        raise ValueError(f"{value!r} is not a safe name: lower-case letters, digits, '.', '_' and '-', not first")
    if len(value) > NAME_LENGTH:
        raise ValueError(f"{value!r} has more than {NAME_LENGTH} characters")
    return value


def _cluster(value: Any) -> str:
    name = safe_name(value)
    if name == "all":
        raise ValueError("must be the name of one cluster")
    return name


def _resolve(value: Any, info: ValidationInfo) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"must be a path, not {value!r}")
    folder: Path = (info.context or {}).get("folder", Path("/"))
    # Links stay as they are: a virtual environment's interpreter is one, and its target is another interpreter.
    return Path(os.path.normpath(folder / Path(value).expanduser()))


def _interpreter(value: Any, info: ValidationInfo) -> Path:
    if isinstance(value, str) and value and "/" not in value:
        raise ValueError(
            f"must be a path to an interpreter such as .venv/bin/python or /usr/bin/python3, not {value!r}"
        )
    return _resolve(value, info)


def _inside(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"must be a path below the source, not {value!r}")
    if Path(value).is_absolute() or ".." in Path(value).parts:
        raise ValueError(f"must stay below the source: {value!r} does not")
    return value


def _adapter(value: Any) -> str:
    if not isinstance(value, str) or re.fullmatch(ADAPTER_PATTERN, value) is None:
        raise ValueError(f"must be module:function, not {value!r}")
    return value


def _entries(value: Any) -> Any:
    if value == {}:
        raise ValueError("has no entries")
    return json_value(value)


def variable_name(value: Any) -> str:
    """Return the name of an environment variable that a side may have.

    Raises:
        ValueError: It is not one, or would break the snapshot rule.
    """
    if not isinstance(value, str) or re.fullmatch(VARIABLE_PATTERN, value, flags=re.ASCII) is None:
        raise ValueError(f"{value!r} is not the name of an environment variable")
    if value in RESERVED_VARIABLES:
        raise ValueError(f"{value} may not be set: {RESERVED_VARIABLES[value]}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"must be a text without NUL, not {value!r}")
    return value


def _words(value: Any) -> str:
    if not isinstance(value, str) or _CONTROL.search(value):
        raise ValueError(f"must be a text in one line, not {value!r}")
    return value


def _pattern(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be a workload's name, or a pattern such as '90m-*-b16', not {value!r}")
    return value


_NAME_SCHEMA = {"type": "string", "pattern": f"^{NAME_PATTERN}$", "maxLength": NAME_LENGTH}
_PATH_SCHEMA = {"type": "string", "minLength": 1}
_DECIMAL_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": f"^{DECIMAL_PATTERN}$"}]}

Seconds: TypeAlias = Annotated[
    str, _within(lambda value: 0 < value <= 86400, "above 0 and at most 86400"), WithJsonSchema(_DECIMAL_SCHEMA)
]
SecondsOrZero: TypeAlias = Annotated[
    str, _within(lambda value: 0 <= value <= 86400, "from 0 to 86400"), WithJsonSchema(_DECIMAL_SCHEMA)
]
Ratio: TypeAlias = Annotated[
    str, _within(lambda value: 0 < value <= 100, "above 0 and at most 100"), WithJsonSchema(_DECIMAL_SCHEMA)
]
Margin: TypeAlias = Annotated[
    str, _within(lambda value: 1 <= value <= 100, "from 1 to 100"), WithJsonSchema(_DECIMAL_SCHEMA)
]
Fraction: TypeAlias = Annotated[
    str, _within(lambda value: 0 <= value < 1, "from 0 to below 1"), WithJsonSchema(_DECIMAL_SCHEMA)
]

BelowOne: TypeAlias = Annotated[
    str, _within(lambda value: 0 < value < 1, "above 0 and below 1"), WithJsonSchema(_DECIMAL_SCHEMA)
]
"""A relative difference that a gate may allow: of updates that were never made it is 1."""
PositiveFraction: TypeAlias = Annotated[
    str, _within(lambda value: 0 < value <= 1, "above 0 and at most 1"), WithJsonSchema(_DECIMAL_SCHEMA)
]

Nats: TypeAlias = Annotated[
    str, _within(lambda value: 0 < value <= 1, "above 0 and at most 1 nat"), WithJsonSchema(_DECIMAL_SCHEMA)
]
"""A difference of losses that a gate may allow: beyond a nat, nearly untrained models would do."""
Quantile: TypeAlias = Annotated[
    str, _within(lambda value: 0 < value <= 1000, "above 0 and at most 1000"), WithJsonSchema(_DECIMAL_SCHEMA)
]

RetriableEnding: TypeAlias = Annotated[
    Ending,
    Strict(strict=False),
    AfterValidator(retriable),
    WithJsonSchema({"type": "string", "enum": [ending.value for ending in RETRIABLE]}),
]

Name: TypeAlias = Annotated[str, BeforeValidator(safe_name), WithJsonSchema(_NAME_SCHEMA)]
ClusterName: TypeAlias = Annotated[str, BeforeValidator(_cluster), WithJsonSchema(_NAME_SCHEMA)]
FilePath: TypeAlias = Annotated[Path, BeforeValidator(_resolve), WithJsonSchema(_PATH_SCHEMA)]
Interpreter: TypeAlias = Annotated[Path, BeforeValidator(_interpreter), WithJsonSchema(_PATH_SCHEMA)]
InsidePath: TypeAlias = Annotated[str, BeforeValidator(_inside), WithJsonSchema(_PATH_SCHEMA)]
Adapter: TypeAlias = Annotated[
    str, BeforeValidator(_adapter), WithJsonSchema({"type": "string", "pattern": f"^{ADAPTER_PATTERN}$"})
]
JsonTable: TypeAlias = Annotated[dict[str, Any], BeforeValidator(json_value)]
Entries: TypeAlias = Annotated[
    dict[str, Any], BeforeValidator(_entries), WithJsonSchema({"type": "object", "minProperties": 1})
]
Variable: TypeAlias = Annotated[
    str, BeforeValidator(variable_name), WithJsonSchema({"type": "string", "pattern": f"^{VARIABLE_PATTERN}$"})
]
Text: TypeAlias = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": "string"})]
Words: TypeAlias = Annotated[str, BeforeValidator(_words), WithJsonSchema({"type": "string"})]
Pattern: TypeAlias = Annotated[str, BeforeValidator(_pattern), WithJsonSchema({"type": "string", "minLength": 1})]

# TOML gives lists, the frozen models hold tuples: the outer type is converted, the items stay strict.
Texts: TypeAlias = Annotated[tuple[Text, ...], Strict(strict=False)]
Patterns: TypeAlias = Annotated[tuple[Pattern, ...], Strict(strict=False)]
Names: TypeAlias = Annotated[tuple[Name, ...], Strict(strict=False)]
Variables: TypeAlias = Annotated[tuple[Variable, ...], Strict(strict=False)]
FilePaths: TypeAlias = Annotated[tuple[FilePath, ...], Strict(strict=False)]
InsidePaths: TypeAlias = Annotated[tuple[InsidePath, ...], Strict(strict=False)]
