"""RunConfig: the one schema of a run. What a setting means, its type, bounds and default stand here and nowhere else.

Every field of the sections in `PARAMETER_SECTIONS` is a parameter of the compiled pipeline under the same name, so that
a run can be cloned with other values; the rest (the machine, the project) is fixed when the pipeline is compiled.
"""

import math
import re
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeGuard

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from components.errors import ConfigError, did_you_mean
from pipelines import machines

Fraction = Annotated[float, Field(ge=0, lt=1)]
# Class names such as 0 to 9 are whole numbers to YAML, and a pipeline's parameters know keys of text only.
Key = Annotated[str, BeforeValidator(lambda key: str(key) if type(key) is int else key)]
# The largest that every part of the way takes: KFP's numbers are floats, TensorFlow's counters 32 bits here and there.
LARGEST = 2**31 - 1
Positive = Annotated[int, Field(ge=1, le=LARGEST)]


def _check_json(value: Any, where: str = "") -> None:
    """Refuses arguments that JSON, in which they travel, has no words for."""
    match value:
        case dict() if all(isinstance(key, str) for key in value):
            for key, item in value.items():
                _check_json(item, f"{where}.{key}")
        case list():
            for index, item in enumerate(value):
                _check_json(item, f"{where}.{index}")
        case bool() | str() | None:
            pass
        case int() if abs(value) <= 2**53:  # beyond, a float has no name for it
            pass
        case float() if math.isfinite(value):
            pass
        case _:
            raise ConfigError(
                f"model.arguments{where} is a {type(value).__name__}, expected texts, finite numbers, true, false, "
                "lists, and values by names that are texts."
            )


def _check_arguments(value: Any) -> Any:
    try:
        _check_json(value)
    except RecursionError as error:
        raise ConfigError("model.arguments holds itself, or is nested too deep; write it out.") from error
    return value


class Section(BaseModel):
    """A part of the configuration. Unknown keys are errors, and values are never guessed from another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    """Refuses labels that Google Cloud refuses, naming one that it would take.

    The rules are those of "Creating and managing labels": 64 labels, a key starts with a letter, keys and values have
    63 characters at most of lower-case letters, digits, underscores and dashes. GCPC adds one label of its own.
    """
    if len(labels) > MAX_LABELS:
        raise ConfigError(f"vertex.labels has {len(labels)} labels, expected at most {MAX_LABELS}.")
    for key, value in labels.items():
        for what, text, pattern in (("key", key, _LABEL_KEY), ("value", value, _LABEL_VALUE)):
            if not pattern.fullmatch(text):
                near = slug(text, letter_first=what == "key")[:63]
                raise ConfigError(
                    f"vertex.labels has the {what} {text!r}, expected at most 63 lower-case letters, digits, '_' and "
                    f"'-'{', a letter first' if what == 'key' else ''}, such as {near or 'team'!r}."
                )
    return labels


MAX_LABELS = 63
_LABEL_KEY, _LABEL_VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")
# A number is as good a label as its digits.
Label = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]


class Data(Section):
    """Where the examples come from, and how they are prepared."""

    source: str = Field(
        min_length=1,
        description="sample://NAME, tfds://NAME, or a path or gs:// URI (globs too) of .csv, .tsv or .jsonl files.",
    )
    text_column: str = Field("text", description="Column or key of the text, in a CSV or JSONL source.", min_length=1)
    label_column: str = Field(
        "label", description="Column or key of the label, in a CSV or JSONL source.", min_length=1
    )
    encoding: str = Field("utf-8", description="Encoding of CSV and JSONL files; a byte-order mark is accepted.")
    tfds_data_dir: str = Field(
        "", description="Folder or gs:// URI of prepared TensorFlow Datasets; empty for its default."
    )
    tfds_feature: str = Field("", description="Key of the text or image, in a tfds data set that has several.")
    try_gcs: bool = Field(False, description="Let tfds read the data set from Google's public bucket.")
    train_split: str = Field("train", description="The tfds split, or slice of it, to train on.", min_length=1)
    test_split: str = Field("test", description="The tfds split to test on; empty to take it from the training split.")
    sample_fraction: float = Field(
        1.0, gt=0, le=1, description="Share of the examples to keep, chosen by their content."
    )
    validation_fraction: Fraction = Field(
        0.1, gt=0, description="Share of the training examples held out for validation."
    )
    test_fraction: Fraction = Field(
        0.1, gt=0, description="Share held out for the test, where the source has no test split."
    )
    split_seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of the hash that splits the examples by content.")
    empty_rows: Literal["drop", "error"] = Field(
        "drop", description="What to do with rows that have no text or no label: drop (and count) them, or stop."
    )
    max_length: int = Field(128, ge=8, le=4096, description="Tokens of a text, padding and special tokens included.")
    shard_megabytes: Positive = Field(100, le=2000, description="Size of a TFRecord shard, in 10^6 bytes.")


Arguments = Annotated[dict[str, Any], BeforeValidator(_check_arguments)]


class Model(Section):
    """What is trained."""

    builder: str = Field(
        description="image_classifier, text_classifier, or a function of your own: my_package.my_module:build."
    )
    arguments: Arguments = Field(default_factory=dict, description="Arguments of the builder.")
    pretrained: str = Field(
        "", description="Encoder and tokenizer of a text classifier: folder, gs:// folder, sample://minilm or hub name."
    )


class Training(Section):
    """How it is trained."""

    loop: Literal["fit", "custom"] = Field(
        "fit", description="Keras fit, or a custom loop. They give the same numbers."
    )
    epochs: Positive = Field(description="Passes over the training split.")
    global_batch_size: Positive = Field(description="Examples of one step, over all replicas.")
    optimizer: Literal["adam", "adamw"] = Field("adam", description="Adam, or Adam with decoupled weight decay.")
    learning_rate: float = Field(1e-3, gt=0, le=10, description="Peak learning rate, after the warm-up.")
    warmup_fraction: Fraction = Field(0.0, description="Share of all steps in which the learning rate rises from zero.")
    decay: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="How the learning rate falls, after the warm-up, to zero at the last step."
    )
    weight_decay: float = Field(
        0.0, ge=0, le=1, description="Decoupled weight decay (adamw); biases and norms are spared."
    )
    clip_norm: float = Field(0.0, ge=0, description="Clip the gradients' global norm to this; 0 for no clipping.")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Of the computations; weights, logits and loss are float32 always."
    )
    steps_per_execution: Positive = Field(1, description="Steps inside one call of the compiled training function.")
    class_weights: dict[Key, float] = Field(
        default_factory=dict, description="Weight of the loss by class name or index; one that isn't named weighs 1."
    )
    checkpoint_every_steps: int = Field(
        0, ge=0, description="Steps between checkpoints within an epoch; 0 for the end of each epoch only."
    )
    checkpoint_dir: str = Field(
        "",
        description="Folder or gs:// URI of the checkpoints that a restarted run resumes from; empty: the run's own.",
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of the weights, the shuffle and the dropout.")


class Evaluation(Section):
    """How the trained model is judged."""

    min_accuracy: float = Field(0.0, ge=0, le=1, description="Test accuracy below which the model is not exported.")
    evaluation_batch_size: Positive = Field(128, description="Examples of a batch when evaluating.")


class MachineChoice(Section):
    """Where the training step runs."""

    name: str = Field(
        description="cpu-1, -2, -4, -8 or -16, gpu-1, -2, -4 or -8, or a slice of `tpu-pipelines machines`."
    )
    tpu: str = Field(
        "local",
        min_length=1,
        description="How to reach a TPU: local (attached, as on Vertex AI), its name, or grpc://...",
    )
    allow_unverified: bool = Field(
        False,
        description="Let a single-host v6e slice through, of which Vertex AI's pages say that TensorFlow has none.",
    )

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        machines.find(self.name, allow_unverified=self.allow_unverified)
        return self

    @property
    def row(self) -> machines.Machine:
        """The machine's row in the table."""
        return machines.find(self.name, allow_unverified=self.allow_unverified)


class Release(Section):
    """What becomes of an accepted model."""

    model_name: str = Field(
        "",
        description="Name of the exported model, and in the registry; empty for the run's name.",
        max_length=128,
        # Not blank; and Google's upload operator puts it into JSON as it is.
        pattern=r'^(\s*[^\s"\\\x00-\x1f\x7f][^"\\\x00-\x1f\x7f]*)?$',
    )


class Preflight(Section):
    """The compilation before training on a TPU. Runs on this machine take no notice."""

    enabled: bool = Field(
        True, description="On Vertex AI, start training only if its step compiles for the TPU and fits its memory."
    )


_SERVICE_ACCOUNT = r"^([-.\w]+@[-.\w]+\.gserviceaccount\.com)?$"


class Vertex(Section):
    """Where and how Vertex AI runs the pipeline. Fixed when it is compiled; runs on this machine take no notice."""

    project: str = Field("", description="Google Cloud project id.", pattern=r"^([a-z][-a-z0-9:.]{4,61}[a-z0-9])?$")
    regions: list[str] = Field(
        default_factory=lambda: ["us-central1"],
        description="Regions in order of preference: with --wait, the next is tried when the slice is out of stock.",
        min_length=1,
    )
    pipeline_root: str = Field(
        "",
        description="gs:// folder of the runs' artifacts; {region} in it stands for the run's region.",
        pattern=r"^(gs://[a-z0-9]([-_.a-z0-9]|\{region\}){2,222}(/([-\w./=]|\{region\})*)?)?$",
    )
    service_account: str = Field(
        "", description="E-mail address of the account that the steps run as.", pattern=_SERVICE_ACCOUNT
    )
    trainer_service_account: str = Field(
        "",
        description="E-mail address of the account that training runs as; empty: vertex.service_account.",
        pattern=_SERVICE_ACCOUNT,
    )
    network: str = Field(
        "",
        description="VPC network that the jobs are peered with: projects/NUMBER/global/networks/NAME.",
        pattern=r"^(projects/[0-9]+/global/networks/[a-z]([-a-z0-9]*[a-z0-9])?)?$",
    )
    tensorboard: str = Field(
        "",
        description="TensorBoard that shows training live: projects/P/locations/REGION/tensorboards/ID.",
        pattern=r"^(projects/[-a-z0-9.:]+/locations/[-a-z0-9]+/tensorboards/[0-9]+)?$",
    )
    experiment: str = Field(
        "",
        description="Experiment that collects the runs' parameters and metrics.",
        pattern=r"^([a-z0-9][a-z0-9-]{0,127})?$",
    )
    labels: Annotated[dict[str, Label], AfterValidator(_check_labels)] = Field(
        default_factory=dict, description="Labels of the pipeline, the training job and the registered model."
    )
    capacity: machines.Capacity = Field(
        "on-demand", description="How the TPU is had; spot is cheaper, and may be taken away and restarted."
    )
    reservation: str = Field(
        "",
        description="Reservation to take it from: projects/P/zones/ZONE/reservations/NAME.",
        pattern=r"^(projects/[-a-z0-9.:]+/zones/[-a-z0-9]+/reservations/[-a-z0-9]+)?$",
    )
    train_timeout_hours: float = Field(24.0, ge=0.1, le=168, description="Longest time that the training job may take.")
    boot_disk_gb: int = Field(100, ge=100, le=64000, description="Disk of the training job's machine.")
    disable_retries: bool = Field(
        False, description="Never restart the training job where it fails, not even when the machine is taken away."
    )
    retries: int = Field(
        2, ge=0, le=10, description="Tries again of a failed step, training's once at most, the first after a minute."
    )
    caching: bool = Field(True, description="Reuse the outputs of steps whose inputs and image are the same.")
    step_cpus: int = Field(8, ge=1, le=96, description="CPUs of prepare, evaluate and export.")
    step_memory_gb: int = Field(32, ge=1, le=624, description="Memory of prepare, evaluate and export, in 10^9 bytes.")
    register_model: bool = Field(True, description="Register an accepted model in the Vertex AI Model Registry.")
    model_aliases: list[Annotated[str, Field(pattern=r"^[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]$")]] = Field(
        default_factory=list, description="Aliases that the registered version takes over, such as champion."
    )
    deploy: bool = Field(
        False, description="Deploy the registered version to an endpoint of its own; it costs until undeployed."
    )
    endpoint: str = Field(
        "",
        description="Endpoint to deploy to: projects/P/locations/REGION/endpoints/ID; empty: a new one each run.",
        pattern=r"^(projects/[-a-z0-9.:]+/locations/[-a-z0-9]+/endpoints/[0-9]+)?$",
    )
    serving_machine: str = Field(
        "n1-standard-4", description="Machine of a deployed model.", pattern=r"^[a-z][a-z0-9]*-[a-z0-9-]+$"
    )
    notify_webhook: str = Field(
        "",
        description="Address that a run's notice is posted to as JSON.",
        pattern=r"^(https://[a-zA-Z0-9][-.a-zA-Z0-9]*(/\S*)?)?$",
    )
    notify_emails: list[Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")]] = Field(
        default_factory=list,
        description="Addresses that Vertex AI mails the run's end to, three at most.",
        max_length=3,
    )

    @property
    def trainer(self) -> str:
        """The account that training runs as; empty for Vertex AI's default."""
        return self.trainer_service_account or self.service_account

    def root_in(self, region: str) -> str:
        """Returns the folder of the artifacts of runs in a region."""
        return self.pipeline_root.replace("{region}", region).rstrip("/")


def _fit_name(name: Any) -> Any:
    """Returns a name as pipelines and jobs take it: `MNIST TPU!` is mnist-tpu. What else than text stays as it is."""
    if not isinstance(name, str):
        return name
    fit = slug(name)
    if not 1 <= len(fit) <= 63:
        raise ConfigError(
            f"name is {name!r}, expected 1 to 63 lower-case letters, digits and dashes, a letter first, such as mnist."
        )
    return fit


class RunConfig(Section):
    """A run, whole: what `tpu-pipelines run` executes and `submit` sends."""

    name: Annotated[str, BeforeValidator(_fit_name)] = Field(
        description="Name of the run and its pipeline: at most 63 lower-case letters, digits and dashes.",
    )
    data: Data
    model: Model
    training: Training
    evaluation: Evaluation = Field(default_factory=Evaluation)
    machine: MachineChoice
    preflight: Preflight = Field(default_factory=Preflight)
    release: Release = Field(default_factory=Release)
    vertex: Vertex = Field(default_factory=Vertex)

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        """Refuses settings that are possible alone and impossible together."""
        machine, training, model = self.machine.row, self.training, self.model
        if training.global_batch_size % machine.replicas:
            near = max(1, round(training.global_batch_size / machine.replicas)) * machine.replicas
            raise ConfigError(
                f"training.global_batch_size is {training.global_batch_size}, which the {machine.replicas} replicas of "
                f"{machine.name} can't share equally; use a multiple of {machine.replicas}, such as {near}."
            )
        if training.optimizer == "adam" and training.weight_decay:
            raise ConfigError(
                f"training.weight_decay is {training.weight_decay:g}, but training.optimizer adam has none; use adamw."
            )
        if training.checkpoint_every_steps % training.steps_per_execution:
            raise ConfigError(
                f"training.checkpoint_every_steps is {training.checkpoint_every_steps}, expected a multiple of "
                f"training.steps_per_execution ({training.steps_per_execution}): nothing can be saved within a call."
            )
        if model.builder == "text_classifier" and not model.pretrained:
            raise ConfigError("model.pretrained is empty; a text_classifier needs an encoder, such as sample://minilm.")
        if model.builder == "image_classifier" and self.data.source.endswith((".csv", ".tsv", ".jsonl")):
            raise ConfigError(
                f"data.source is {self.data.source!r}, a file of texts, but model.builder is image_classifier; set it "
                "to text_classifier."
            )
        if model.builder == "image_classifier" and model.pretrained:
            raise ConfigError(
                f"model.pretrained is {model.pretrained!r}, but image_classifier starts from scratch; leave it out."
            )
        if machine.device != "tpu" and self.machine.tpu != "local":
            raise ConfigError(
                f"machine.tpu is {self.machine.tpu!r}, but machine.name {machine.name} has no TPU; leave it out."
            )
        vertex = self.vertex
        machines.check_order(machine, tuple(vertex.regions), vertex.capacity, vertex.reservation)
        if vertex.tensorboard and not vertex.trainer:
            raise ConfigError("vertex.tensorboard needs vertex.service_account: the job writes to it as that account.")
        if vertex.tensorboard and vertex.regions != [home := vertex.tensorboard.split("/")[3]]:
            raise ConfigError(
                f"vertex.tensorboard is in {home}, vertex.regions has {', '.join(vertex.regions)}; a job writes to a "
                "TensorBoard of its own region only."
            )
        if len(set(vertex.regions)) < len(vertex.regions):
            raise ConfigError(f"vertex.regions has a region twice: {', '.join(vertex.regions)}.")
        if vertex.endpoint and vertex.regions != [home := vertex.endpoint.split("/")[3]]:
            raise ConfigError(
                f"vertex.endpoint is in {home}, vertex.regions has {', '.join(vertex.regions)}; a model is deployed in "
                "its own region only."
            )
        if vertex.deploy and not vertex.register_model:
            raise ConfigError("vertex.deploy needs vertex.register_model: what is deployed is a registered version.")
        if vertex.endpoint and not vertex.deploy:
            raise ConfigError("vertex.endpoint is set, but vertex.deploy is false; set it, or leave the endpoint out.")
        return self


PARAMETER_SECTIONS = ("data", "model", "training", "evaluation", "release")


def parameter_fields() -> dict[str, FieldInfo]:
    """Returns the settings that are pipeline parameters, by their name, with type, default and description."""
    fields: dict[str, FieldInfo] = {}
    for section in PARAMETER_SECTIONS:
        for name, field in _section(section).model_fields.items():
            assert name not in fields, f"{section}.{name} has the name of another section's setting"
            fields[name] = field
    return fields


def parameters(config: RunConfig) -> dict[str, Any]:
    """Returns the values of a run's pipeline parameters, by name."""
    values = {name: value for section in PARAMETER_SECTIONS for name, value in getattr(config, section)}
    return values | {"model_name": config.release.model_name or config.name}


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Reads a run's YAML file.

    Args:
        path: The file.
        overrides: Settings that replace the file's, each as `section.key=value`.

    Raises:
        ConfigError: listing everything that is wrong with the file or the overrides, a sentence each.
    """
    try:
        with path.open(encoding="utf-8") as file:
            values = yaml.load(file, _Loader)  # noqa: S506 - a subclass of SafeLoader
    except OSError as error:
        raise ConfigError(
            f"{path} can't be read ({error.strerror}); give a run's YAML file, such as configs/mnist_sample.yaml."
        ) from error
    except _NOT_YAML as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path} holds no sections (its value is a {type(values).__name__}); a run has "
            f"{', '.join(RunConfig.model_fields)}."
        )
    faults = []
    for override in overrides:
        try:
            _override(values, override)
        except ConfigError as error:
            faults.append(str(error))
    try:
        config = parse(values, str(path))
    except ConfigError as error:
        faults.append(str(error))
    if faults:
        raise ConfigError("\n".join(faults))
    return config


def parse(values: dict[str, Any], where: str) -> RunConfig:
    """Checks the values of a run.

    Raises:
        ConfigError: listing everything that is wrong with them, a sentence each, `where` in front.
    """
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{where}: {_sentence(detail)}" for detail in error.errors())) from error


# What PyYAML raises on text that is none, or whose tags (`!!bool x`) don't fit it.
_NOT_YAML = (yaml.YAMLError, ValueError, RecursionError, LookupError, AttributeError, TypeError)


class _Loader(yaml.SafeLoader):
    """YAML as its 1.2 core schema reads it: `1e-5` is a number, and a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != _MERGE]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _decimal(loader: _Loader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node))


_MERGE = "tag:yaml.org,2002:merge"
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
# YAML 1.1, which PyYAML reads, takes 010 for 8, 1:30 for 90, and 1e-5 for a text.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_INT, _FLOAT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INT, re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(r"^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
    list("-+.0123456789"),
)
_Loader.add_constructor(_INT, _decimal)


# Settings whose value lets others do something: shown in part, never whole.
SECRETS = ("notify_webhook",)


def hidden(value: object) -> str:
    """Returns a secret address without what makes it one: of an address, scheme and host, of anything else nothing."""
    host = re.match(r"https://[^\s/?#@:]+(?=[/?#:]|$)", str(value))
    return f"{host[0]}/..." if host else "(hidden)" if value else "(empty)"


def slug(text: str, *, letter_first: bool = True) -> str:
    """Returns lower-case letters, digits and dashes, as near to a text as can be; maybe nothing.

    Args:
        text: Any text.
        letter_first: Put a letter in front where it would begin with a digit.
    """
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return f"x-{words}" if letter_first and words[:1].isdigit() else words


def _is_section(annotation: Any) -> TypeGuard[type[Section]]:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _section(name: str) -> type[Section]:
    annotation = RunConfig.model_fields[name].annotation
    assert _is_section(annotation)
    return annotation


def _override(values: dict[str, Any], override: str) -> None:
    """Puts `section.key=value` into the values of a file, the value read as its setting's type is written in YAML."""
    path, equals, text = override.partition("=")
    if not equals:
        start = override.partition(":")[0]  # no more of it: it may hold a secret
        raise ConfigError(f"--set {start}... has no '='; write it as section.key=value, such as training.epochs=3.")
    keys = path.strip().split(".")
    is_text = _setting(path, keys).annotation is str
    target = values
    for key in keys[:-1]:
        target[key] = {} if target.get(key) is None else target[key]
        target = target[key]
        if not isinstance(target, dict):
            shown = "a value" if key in SECRETS else repr(target)
            raise ConfigError(f"--set {path}: {key} is {shown} there, which holds no {keys[-1]!r}.")
    target[keys[-1]] = text if is_text else _yaml_value(path, text)


def _setting(path: str, keys: Sequence[str]) -> FieldInfo:
    """Returns the setting that an override's keys lead to; what lies below a dict's setting is that setting."""
    fields, where = RunConfig.model_fields, "a run"
    for key in keys:
        if key not in fields:
            what = "section or setting" if where == "a run" else "setting"
            raise ConfigError(f"--set {path}: {where} has no {what} {key!r}.{_advice(where, key, fields)}")
        field = fields[key]
        if not _is_section(field.annotation):
            return field
        fields, where = field.annotation.model_fields, key
    raise ConfigError(f"--set {path}: {where} is a section; name one of its settings: {', '.join(fields)}.")


# What other tools ask for one by one, and a machine's name implies.
_OF_MACHINE = ("machine_type", "accelerator_type", "accelerator_count", "tpu_topology", "topology", "replica_count")


def _advice(section: str, name: str, fields: Iterable[str]) -> str:
    """Returns what to write instead of a setting that there isn't."""
    if section in ("machine", "vertex") and name in _OF_MACHINE:
        decided = ", ".join(_OF_MACHINE)
        return f" machine.name alone decides {decided}, so that they go together: see `tpu-pipelines machines`."
    return did_you_mean(name, fields)


def _yaml_value(path: str, text: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a subclass of SafeLoader
    except _NOT_YAML as error:
        raise ConfigError(
            f"--set {path}: the value is not YAML; quote text that holds brackets, braces or colons."
        ) from error


def _sentence(detail: ErrorDetails) -> str:
    """Turns one of pydantic's findings into a sentence that names the setting, the value and what was expected."""
    path = ".".join(str(part) for part in detail["loc"])
    *parents, name = (str(part) for part in detail["loc"]) if detail["loc"] else ("",)
    fields = _section(parents[0]).model_fields if parents else RunConfig.model_fields
    match detail["type"]:
        case "value_error":  # one of our own sentences
            return str(detail["ctx"]["error"])
        case "extra_forbidden":
            known = ", ".join(fields)
            return f"{path} is not a setting.{_advice('.'.join(parents), name, fields) or f' Known here: {known}.'}"
        case "missing":
            return f"{path} is missing: {fields[name].description or 'it is a section of its own.'}"
        case "literal_error":
            expected = typing.get_args(fields[name].annotation)
            near = did_you_mean(str(detail["input"]), expected)
            return f"{path} is {detail['input']!r}, expected one of {', '.join(expected)}.{near}"
        case "string_pattern_mismatch" if name not in SECRETS:
            setting = name if name in fields else parents[-1]
            return f"{path} is {detail['input']!r}, expected: {fields[setting].description}"
        case _ if path == "vertex":
            return "vertex holds no settings by name; write it as a section: vertex:, and its settings below, indented."
        case _ if name in SECRETS or any(parent in SECRETS for parent in parents):
            return f"{path} is {hidden(detail['input'])!r}, expected: https://HOST/... and nothing else."
        case _:
            expectation = detail["msg"].removeprefix("Input should be ").removeprefix("String should ")
            return f"{path} is {detail['input']!r}, expected: {expectation}."
