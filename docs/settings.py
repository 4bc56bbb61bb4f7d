"""Writes docs/settings.md from the schema: `python docs/settings.py`."""

import typing
from pathlib import Path

from pydantic_core import PydanticUndefined

from pipelines.config import RunConfig, Section

PAGE = Path(__file__).with_suffix(".md")


def page() -> str:
    """Returns the page: a table of settings for each section of a run."""
    lines = [
        "# Settings",
        "",
        "Written by `python docs/settings.py` from `pipelines/config.py`. Unknown keys are errors. `--set` replaces a",
        "setting: `--set training.epochs=3`.",
    ]
    for name, field in RunConfig.model_fields.items():
        section = field.annotation
        if not (isinstance(section, type) and issubclass(section, Section)):
            lines += ["", f"`{name}`: {field.description}"]
            continue
        lines += [
            "",
            f"## {name}",
            "",
            section.__doc__ or "",
            "",
            "| setting | default | meaning |",
            "| --- | --- | --- |",
        ]
        for key, item in section.model_fields.items():
            default = "required" if item.is_required() else _default(item.get_default(call_default_factory=True))
            meaning = (item.description or "").replace("|", "\\|")
            if typing.get_origin(item.annotation) is typing.Literal:
                meaning += f" One of {', '.join(f'`{word}`' for word in typing.get_args(item.annotation))}."
            lines.append(f"| `{key}` | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def _default(value: object) -> str:
    assert value is not PydanticUndefined
    return "empty" if value in ("", {}) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
