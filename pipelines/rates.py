"""The figures of rates.yaml, and of the user's own file over them: what a TPU chip has, what an hour of it costs.

rates.yaml says what each field means. A figure is None where no source was found.
"""

import datetime
import functools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from components.errors import ConfigError, did_you_mean

OVERRIDE = "TPU_PIPELINES_RATES"
OURS = Path(__file__).with_name("rates.yaml")

Spec = Literal[
    "cores_per_chip",
    "hbm_gib_per_chip",
    "hbm_usable_mib_per_core",
    "bf16_tflops_per_chip",
    "hbm_gb_per_second",
    "interconnect_gb_per_second",
]
SPECS: tuple[Spec, ...] = Spec.__args__  # type: ignore[attr-defined]
PRICES = ("on_demand", "spot")
_SECTIONS = {"specs": ("generation", *SPECS), "prices": ("generation", "region", *PRICES)}
_ORIGIN = ("date", "source")


@dataclass(frozen=True)
class Figure:
    """A figure of a generation's chips, with the day that it was read and where; None is unknown."""

    value: float | None
    date: datetime.date
    source: str


@dataclass(frozen=True)
class Rate:
    """Price of a chip hour in USD, with the day that it was read and where; None is unknown."""

    on_demand: float | None
    spot: float | None
    date: datetime.date
    source: str


@dataclass(frozen=True)
class Rates:
    """All figures in force.

    Attributes:
        specs: The chips' figures, by generation and field.
        prices: What a chip hour costs, by generation and region: every region where Vertex AI trains on it.
        overridden: The user's file, or an empty string.
    """

    specs: Mapping[str, Mapping[Spec, Figure]]
    prices: Mapping[str, Mapping[str, Rate]]
    overridden: str = ""


def current() -> Rates:
    """Returns our figures with those of the file that `TPU_PIPELINES_RATES` names in their place.

    Raises:
        ConfigError: if that file can't be read, or has what is no figure.
    """
    return _with(os.environ.get(OVERRIDE, ""))


@functools.cache
def _ours() -> Rates:
    specs: dict[str, dict[Spec, Figure]] = {}
    prices: dict[str, dict[str, Rate]] = {}
    for row in _rows(OURS, "specs"):
        specs.setdefault(row.generation, {}).update(row.figures())
    for row in _rows(OURS, "prices"):
        prices.setdefault(row.generation, {})[row.values["region"]] = row.rate()
    return Rates(specs, prices)


@functools.cache
def _with(override: str) -> Rates:
    ours = _ours()
    if not override:
        return ours
    specs = {generation: dict(figures) for generation, figures in ours.specs.items()}
    prices = {generation: dict(regions) for generation, regions in ours.prices.items()}
    for row in _rows(Path(override), "specs"):
        row.check_choice("generation", specs)
        cores = specs[row.generation]["cores_per_chip"].value
        if row.values.get("cores_per_chip", cores) != cores:
            raise row.wrong("cores_per_chip", f"{cores:g}: the machines' names and replicas follow from it")
        specs[row.generation].update(row.figures())
    for row in _rows(Path(override), "prices"):
        row.check_choice("generation", prices)
        row.check_choice("region", prices[row.generation])
        prices[row.generation][row.values["region"]] = row.rate()
    return Rates(specs, prices, override)


@dataclass(frozen=True)
class _Row:
    """A row of a file: its values, and what an error calls it."""

    name: str
    values: Mapping[str, Any]

    @property
    def generation(self) -> str:
        generation: str = self.values["generation"]
        return generation

    def figures(self) -> dict[Spec, Figure]:
        return {
            field: Figure(self.values[field], self.values["date"], self.values["source"])
            for field in SPECS
            if field in self.values
        }

    def rate(self) -> Rate:
        on_demand, spot = (self.values.get(field) for field in PRICES)
        return Rate(on_demand, spot, self.values["date"], self.values["source"])

    def wrong(self, field: str, expected: str, hint: str = "") -> ConfigError:
        found = f"has {field} {self.values[field]!r}" if field in self.values else f"has no {field}"
        return ConfigError(f"{self.name} {found}, expected {expected}.{hint}")

    def check_choice(self, field: str, known: Mapping[str, Any]) -> None:
        if (value := self.values[field]) not in known:
            raise self.wrong(field, f"one of {', '.join(known)}", did_you_mean(value, known))

    def check(self, section: str) -> None:
        """Refuses fields that the section doesn't have, and values that are not what its fields hold."""
        known = (*_SECTIONS[section], *_ORIGIN)
        for key in self.values:
            if key not in known:
                hint = did_you_mean(str(key), known)
                raise ConfigError(f"{self.name} has the unknown key {key!r}, expected {', '.join(known)}.{hint}")
        for field in known:
            if field in ("generation", "region", "source"):
                if not isinstance(self.values.get(field), str) or not self.values[field].strip():
                    raise self.wrong(field, "a text")
            elif field == "date":
                if type(self.values.get(field)) is not datetime.date:
                    raise self.wrong(field, "the day that its figures were read, such as 2026-11-30")
            elif field in PRICES and not _number(self.values.get(field), zero=True):
                raise self.wrong(field, "USD a chip hour, 0 or more, or null for unknown")
            elif field in SPECS and not _number(self.values.get(field), zero=False):
                raise self.wrong(field, "a number above 0, or null for unknown")


def _number(value: Any, *, zero: bool) -> bool:
    """Returns whether a value is None or a finite number that is positive, or 0 where that is one too."""
    if value is None:
        return True
    return type(value) in (int, float) and math.isfinite(value) and (value > 0 or (zero and value == 0))


def _rows(path: Path, section: str) -> Iterator[_Row]:
    """Yields the rows of one section of a file, each checked, and no field of a generation or region twice."""
    seen: dict[tuple[str, ...], str] = {}
    for number, values in enumerate(_read(path)[section], start=1):
        name = f"{path}: row {number} of {section}"
        if not isinstance(values, dict):
            raise ConfigError(f"{name} is {values!r}, expected fields such as generation: v5e.")
        row = _Row(name, values)
        row.check(section)
        for place in _places(row, section):
            if place in seen:
                raise ConfigError(f"{name} is of {' '.join(place)}, as is row {seen[place]}; keep one of them.")
            seen[place] = str(number)
        yield row


def _places(row: _Row, section: str) -> list[tuple[str, ...]]:
    if section == "prices":
        return [(row.generation, row.values["region"])]
    return [(row.generation, field) for field in SPECS if field in row.values]


@functools.cache
def _read(path: Path) -> dict[str, list[Any]]:
    """Returns the sections of a file, those that it leaves out empty."""
    known = " and ".join(_SECTIONS)
    who = str(path) if path == OURS else f"{OVERRIDE} is {str(path)!r}, which"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{who} can't be read ({error}), expected a file in the form of {OURS}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{who} is no YAML ({' '.join(str(error).split())}), expected the form of {OURS}.") from error
    if not isinstance(content, dict) or not content or not set(content) <= set(_SECTIONS):
        found = f"has {', '.join(map(str, content))}" if isinstance(content, dict) and content else "has no sections"
        raise ConfigError(f"{path} {found}, expected {known}, as {OURS} has them.")
    for section, rows in content.items():
        if not isinstance(rows, list):
            raise ConfigError(f"{path}: {section} is {rows!r}, expected a list of rows, each with its date and source.")
    return {section: content.get(section, []) for section in _SECTIONS}
