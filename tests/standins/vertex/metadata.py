"""Vertex ML Metadata in memory: contexts, executions, artifacts and what links them; and tensorboards."""

from collections import defaultdict
from typing import Any

from google.cloud.aiplatform_v1 import Event
from google.protobuf.message import Message

from tests.standins.vertex import protos
from tests.standins.vertex.errors import ApiError
from tests.standins.vertex.ids import Ids
from tests.standins.vertex.routes import Request, route
from tests.standins.vertex.store import Store, page, value_of

STORE = "{location}/metadataStores/{store}"
# The kinds of resources, by their name in a path: the message, and the query's name of the id.
KINDS = {
    "contexts": ("Context", "contextId"),
    "executions": ("Execution", "executionId"),
    "artifacts": ("Artifact", "artifactId"),
}


class Metadata:
    """The metadata store `default` of each location; others don't exist."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self.stores = {kind: Store(noun) for kind, (noun, _) in KINDS.items()}
        self.members: dict[str, set[str]] = defaultdict(set)
        self.events: list[Message] = []
        self.tensorboards = Store("Tensorboard")

    def create(self, kind: str, parent: str, id: str = "", **fields: Any) -> Message:
        """Makes a resource for the service itself, or returns the one that is there."""
        name = f"{parent}/metadataStores/default/{kind}/{id or self._ids.new()}"
        with self.stores[kind].lock:
            if any(item.name == name for item in self.stores[kind].all()):
                return self.stores[kind].get(name)
            return self._add(kind, protos.new(KINDS[kind][0], name=name, **fields))

    def link(self, execution: str, artifact: str, kind: Event.Type) -> None:
        self.events.append(protos.new("Event", execution=execution, artifact=artifact, type_=kind))

    @route("GET", STORE)
    def get_store(self, request: Request) -> Message:
        return protos.new("MetadataStore", name=self._store_of(request))

    @route("POST", STORE + "/{kind}")
    def create_one(self, request: Request) -> Message:
        kind = _kind(request)
        noun, id_name = KINDS[kind]
        message = protos.parse(request.body, protos.new(noun))
        message.name = f"{self._store_of(request)}/{kind}/{request.query.get(id_name) or self._ids.new()}"
        return self._add(kind, message)

    @route("GET", STORE + "/{kind}")
    def list_all(self, request: Request) -> dict[str, Any]:
        kind = _kind(request)
        found = self.stores[kind].all(self._store_of(request) + "/")
        return page(found, kind, request.query, self._value)

    @route("GET", STORE + "/{kind}/{id}")
    def get(self, request: Request) -> Message:
        return self.stores[_kind(request)].get(self._name(request))

    @route("PATCH", STORE + "/{kind}/{id}")
    def update(self, request: Request) -> Message:
        kind = _kind(request)
        held, changes = self.get(request), protos.parse(request.body, protos.new(KINDS[kind][0]))
        for spec, value in changes.ListFields():
            if spec.name == "metadata":
                held.metadata.update(dict(value))
            elif spec.name != "name":
                held.ClearField(spec.name)
                one = type(changes)()
                one.CopyFrom(changes)
                for other, _ in changes.ListFields():
                    if other.name != spec.name:
                        one.ClearField(other.name)
                held.MergeFrom(one)
        held.update_time.GetCurrentTime()
        return held

    @route("DELETE", STORE + "/{kind}/{id}")
    def delete(self, request: Request) -> dict[str, Any]:
        self.stores[_kind(request)].remove(self._name(request))
        return {"name": f"{self._name(request)}/operations/{self._ids.new()}", "done": True, "response": _EMPTY}

    @route("POST", STORE + "/contexts/{id}:addContextChildren")
    def add_children(self, request: Request) -> dict[str, Any]:
        asked = protos.parse(request.body, protos.new("AddContextChildrenRequest"))
        parent = self.stores["contexts"].get(self._name(request, "contexts"))
        for child in asked.child_contexts:
            parents = self.stores["contexts"].get(self._canonical(request, child)).parent_contexts
            if parent.name not in parents:
                parents.append(parent.name)
        return {}

    @route("POST", STORE + "/contexts/{id}:addContextArtifactsAndExecutions")
    def add_members(self, request: Request) -> dict[str, Any]:
        asked = protos.parse(request.body, protos.new("AddContextArtifactsAndExecutionsRequest"))
        context = self.stores["contexts"].get(self._name(request, "contexts")).name
        self.members[context] |= {self._canonical(request, name) for name in [*asked.artifacts, *asked.executions]}
        return {}

    @route("POST", STORE + "/executions/{id}:addExecutionEvents")
    def add_events(self, request: Request) -> dict[str, Any]:
        asked = protos.parse(request.body, protos.new("AddExecutionEventsRequest"))
        execution = self.stores["executions"].get(self._name(request, "executions")).name
        for event in asked.events:
            self.link(execution, self._canonical(request, event.artifact), event.type_)
        return {}

    @route("GET", STORE + "/contexts/{id}:queryContextLineageSubgraph")
    def context_lineage(self, request: Request) -> Message:
        members = self.members[self.stores["contexts"].get(self._name(request, "contexts")).name]
        return self._subgraph(members)

    @route("GET", STORE + "/executions/{id}:queryExecutionInputsAndOutputs")
    def execution_lineage(self, request: Request) -> Message:
        name = self.stores["executions"].get(self._name(request, "executions")).name
        return self._subgraph({name} | {event.artifact for event in self.events if event.execution == name})

    @route("GET", "{location}/tensorboards/{id}")
    def get_tensorboard(self, request: Request) -> Message:
        return self.tensorboards.get(f"{request.parent}/tensorboards/{request.id}")

    @route("GET", "{location}/tensorboards")
    def list_tensorboards(self, request: Request) -> dict[str, Any]:
        query = {**request.query, "filter": request.query.get("filter", "").replace("is_default=true", "")}
        return page(self.tensorboards.all(request.parent), "tensorboards", query)

    def _add(self, kind: str, message: Message) -> Message:
        message.create_time.GetCurrentTime()
        message.update_time.GetCurrentTime()
        return self.stores[kind].add(message)

    def _subgraph(self, names: set[str]) -> Message:
        def among(kind: str) -> list[Message]:
            return [item for item in self.stores[kind].all() if item.name in names]

        events = [event for event in self.events if event.execution in names or event.artifact in names]
        return protos.new(
            "LineageSubgraph", artifacts=among("artifacts"), executions=among("executions"), events=events
        )

    def _value(self, message: Message, field: str) -> Any:
        if field == "in_context":
            return {context for context, names in self.members.items() if message.name in names}
        if field in ("parent_contexts", "parentContexts"):
            return list(message.parent_contexts)
        return value_of(message, field)

    def _store_of(self, request: Request) -> str:
        name = f"{request.parent}/metadataStores/{request.parts['store']}"
        if request.parts["store"] != "default":
            raise ApiError("NOT_FOUND", f"The MetadataStore {name!r} does not exist.")
        return name

    def _name(self, request: Request, kind: str = "") -> str:
        return f"{self._store_of(request)}/{kind or request.parts['kind']}/{request.id}"

    def _canonical(self, request: Request, name: str) -> str:
        return f"{self._store_of(request)}/{'/'.join(name.split('/')[-2:])}"


_EMPTY = {"@type": "type.googleapis.com/google.protobuf.Empty"}


def _kind(request: Request) -> str:
    kind = request.parts["kind"]
    if kind not in KINDS:
        raise ApiError("UNIMPLEMENTED", f"The stand-in keeps no {kind}.")
    return kind
