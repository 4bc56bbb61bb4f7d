"""The contract between lower and preflight: a training step as XLA's program, and what it is a step of."""

from dataclasses import asdict, dataclass

from components import files
from components.errors import ModelError

DESCRIPTION = "program.json"
HLO = "step.hlo"
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Program:
    """What `program.json` says, written last: the program itself is a serialized `xla.HloModuleProto` beside it.

    Attributes:
        builder: The model's builder.
        parameters: The model's parameters.
        replicas: Replicas that the program is one of.
        global_batch_size: Examples of one step, over all replicas.
        epochs: Passes over the training split.
        precision: `float32` or `bfloat16`.
        train_examples: Examples of the training split; None where that is unknown.
        padding: Share of the tokens that are padding; None where there are no texts, or none were seen.
    """

    builder: str
    parameters: int
    replicas: int
    global_batch_size: int
    epochs: int
    precision: str
    train_examples: int | None
    padding: float | None
    format_version: int = FORMAT_VERSION

    def save(self, folder: str, hlo: bytes) -> None:
        """Writes the program, then its description."""
        files.make_directory(folder)
        files.write_bytes(files.join(folder, HLO), hlo)
        files.write_json(files.join(folder, DESCRIPTION), asdict(self))


def load(folder: str) -> tuple[Program, bytes]:
    """Reads a program and its description.

    Raises:
        ModelError: if it isn't whole, or of another format.
    """
    uri = files.join(folder, DESCRIPTION)
    if not files.exists(uri):
        raise ModelError(f"{folder} has no {DESCRIPTION}, so lower did not finish there; run that step again.")
    try:
        description = Program(**files.read_json(uri))
    except (ValueError, TypeError) as error:
        raise ModelError(f"{uri} is no {DESCRIPTION} of format {FORMAT_VERSION} ({error}); lower again.") from error
    if description.format_version != FORMAT_VERSION:
        raise ModelError(f"{uri} says format {description.format_version}, expected {FORMAT_VERSION}; lower again.")
    return description, files.read_bytes(files.join(folder, HLO))
