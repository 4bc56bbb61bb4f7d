"""KFP's placeholders in a command, resolved as Vertex resolves them."""

import json
import re
from collections.abc import Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\{\{\$(?:\.([^{}]*))?\}\}")
_PARAMETER = re.compile(r"inputs\.parameters\[(['\"])(.+?)\1\]")
_ARTIFACT = re.compile(r"(inputs|outputs)\.artifacts\[(['\"])(.+?)\2\]\.(\w+)(?:\[(['\"])(.+?)\5\])?")
_OUTPUT_FILE = re.compile(r"outputs\.parameters\[(['\"])(.+?)\1\]\.output_file")
_EXECUTOR_INPUT = re.compile(r"\{\{\$(?:\.json_escape\[(\d)\])?\}\}")


class Resolver:
    """Resolves the placeholders of one task.

    Args:
        fixed: What the run's and the task's own words stand for, such as `pipeline_root`.
        executor_input: The task's executor input; its parameter values may hold placeholders, too.
        mount: The folder that plays `/gcs`, for `.path`.
    """

    def __init__(self, fixed: Mapping[str, str], executor_input: dict[str, Any], mount: str) -> None:
        self._fixed, self._input, self._mount = fixed, executor_input, mount

    def command(self, words: list[str]) -> list[str]:
        """Returns a command with nothing left to resolve."""
        return [self.text(word) for element in words for word in self._structure(element)]

    def text(self, text: str) -> str:
        """Returns a text with nothing left to resolve.

        The executor input comes last and is not looked into: what a user wrote there stays as it is.
        """
        whole = json.dumps(self._input)
        return _EXECUTOR_INPUT.sub(lambda match: _escape(whole, int(match[1] or 0)), self.inner(text))

    def inner(self, value: Any) -> Any:
        """Returns a parameter's value resolved at any depth, but for the executor input."""
        if isinstance(value, str):
            return _PLACEHOLDER.sub(self._one, value)
        if isinstance(value, dict):
            return {key: self.inner(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.inner(item) for item in value]
        return value

    def _one(self, match: re.Match[str]) -> str:
        path = match[1]
        if path is None or path.startswith("json_escape["):
            return match[0]
        if path in self._fixed:
            return self._fixed[path]
        if path in ("outputs.output_file", "outputs.output_metadata_uri"):
            return self._input["outputs"]["outputFile"]
        if found := _PARAMETER.fullmatch(path):
            return _render(self._input["inputs"]["parameterValues"].get(found[2]))
        if found := _OUTPUT_FILE.fullmatch(path):
            return self._input["outputs"]["parameters"][found[2]]["outputFile"]
        if found := _ARTIFACT.fullmatch(path):
            artifact = self._input[found[1]]["artifacts"][found[3]]["artifacts"][0]
            if found[4] == "path":
                return local_path(artifact["uri"], self._mount)
            value = artifact[found[4]]
            return _render(value[found[6]] if found[6] else value)
        raise ValueError(f"The placeholder {match[0]} is unknown.")

    def _structure(self, element: str) -> list[str]:
        """Returns the words of an element that may be a `Concat` or an `IfPresent`."""
        if not element.startswith(('{"Concat": ', '{"IfPresent": ')):
            return [element]
        return self._words(json.loads(element))

    def _words(self, item: Any) -> list[str]:
        if isinstance(item, str):
            return [item]
        if isinstance(item, list):
            return [word for part in item for word in self._words(part)]
        if "Concat" in item:
            return ["".join(word for part in item["Concat"] for word in self._words(part))]
        choice, inputs = item["IfPresent"], self._input["inputs"]
        present = choice["InputName"] in inputs["parameterValues"] or choice["InputName"] in inputs["artifacts"]
        return self._words(choice["Then"] if present else choice.get("Else", []))


def local_path(uri: str, mount: str) -> str:
    """Returns where a process sees a URI: below the mount, as Vertex has `/gcs/bucket`."""
    return f"{mount}/{uri.removeprefix('gs://')}" if uri.startswith("gs://") else uri


def _render(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _escape(text: str, times: int) -> str:
    for _ in range(times):
        text = json.dumps(text)[1:-1]
    return text
