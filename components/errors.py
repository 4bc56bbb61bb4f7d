"""The one family of errors, and the suggestion of a near name that several of them make."""

import difflib
from collections.abc import Iterable


class TpuPipelinesError(Exception):
    """Base of every error this project raises on purpose; its text is one sentence for the user.

    The sentence names the file, row, field or setting, the value found, what was expected, and what to do.

    Attributes:
        fault: Who can mend it: the `user`, or we (`ours`).
    """

    fault = "user"


class ConfigError(TpuPipelinesError, ValueError):
    """A setting is unknown, impossible, or does not go with another.

    A `ValueError` too, so that pydantic collects it with the other findings on a configuration.
    """


class DataError(TpuPipelinesError):
    """A data set, file or row is missing, broken, or not what its manifest says."""


class ModelError(TpuPipelinesError):
    """A model can't be built, restored, or does not fit the data set."""


class DeviceError(TpuPipelinesError):
    """The machine's accelerators are not what was promised, or compute a wrong result."""


class ConsistencyError(ModelError):
    """A restored or exported model does not answer as the one that was trained."""

    fault = "ours"


class ProgramError(TpuPipelinesError):
    """The training step can't run on the machine: it has what no TPU runs, or more than its memory holds."""


# With these lines TensorFlow begins an error of a graph, before it says what went wrong.
_PREAMBLE = ("Graph execution error:", "Detected at node", "<stack traces unavailable>")


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's text that says something: TensorFlow's go on for pages."""
    lines = (line.strip() for line in str(error).split("\n"))
    return next((line for line in lines if line and not line.startswith(_PREAMBLE)), type(error).__name__)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns ` Did you mean 'x'?` for the known name nearest to `name`, or an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""
