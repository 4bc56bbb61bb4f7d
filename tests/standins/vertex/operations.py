"""Long-running operations: not done when first told of, done when asked after."""

from google.longrunning import operations_pb2
from google.protobuf.message import Message

from tests.standins.vertex.ids import Ids
from tests.standins.vertex.routes import Request, route
from tests.standins.vertex.store import Store


class Operations:
    """The operations of all kinds of resources."""

    def __init__(self, ids: Ids) -> None:
        self._ids, self._store = ids, Store("Operation")

    def start(self, resource: str, metadata: Message, response: Message) -> Message:
        """Returns an operation that a client has to ask after, although its work has been done."""
        done = operations_pb2.Operation(name=f"{resource}/operations/{self._ids.new()}", done=True)
        done.metadata.Pack(metadata)
        done.response.Pack(response)
        self._store.add(done)
        running = operations_pb2.Operation(name=done.name)
        running.metadata.Pack(metadata)
        return running

    @route("GET", "{location}/{kind}/{id}/operations/{operation}")
    def get(self, request: Request) -> Message:
        parts = request.parts
        return self._store.get(f"{request.parent}/{parts['kind']}/{request.id}/operations/{parts['operation']}")

    @route("GET", "{location}/operations/{operation}")
    def get_plain(self, request: Request) -> Message:
        return self._store.get(f"{request.parent}/operations/{request.parts['operation']}")
