"""Schedules of pipeline jobs: held, paused and resumed; none is ever run."""

from typing import Any

from google.cloud.aiplatform_v1 import Schedule
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from tests.standins.vertex import protos, rules
from tests.standins.vertex.errors import ApiError
from tests.standins.vertex.ids import Ids
from tests.standins.vertex.operations import Operations
from tests.standins.vertex.routes import Request, route
from tests.standins.vertex.store import Store, page


class Schedules:
    def __init__(self, operations: Operations, ids: Ids, *, only_gs: bool) -> None:
        self._operations, self._ids, self._only_gs = operations, ids, only_gs
        self.store = Store("Schedule")

    @route("POST", "{location}/schedules")
    def create(self, request: Request) -> Message:
        schedule = protos.parse(request.body, protos.new("Schedule"))
        rules.check_schedule(schedule, only_gs=self._only_gs)
        schedule.name = f"{request.parent}/schedules/{self._ids.new()}"
        schedule.state = Schedule.State.ACTIVE
        schedule.create_time.GetCurrentTime()
        return self.store.add(schedule)

    @route("GET", "{location}/schedules/{id}")
    def get(self, request: Request) -> Message:
        return self.store.get(f"{request.parent}/schedules/{request.id}")

    @route("GET", "{location}/schedules")
    def list_all(self, request: Request) -> dict[str, Any]:
        return page(self.store.all(request.parent), "schedules", request.query)

    @route("PATCH", "{location}/schedules/{id}")
    def update(self, request: Request) -> Message:
        changes, held = protos.parse(request.body, protos.new("Schedule")), self.get(request)
        changed = protos.new("Schedule")
        changed.CopyFrom(held)
        for path in filter(None, request.query.get("updateMask", "").split(",")):
            names = {name: spec.name for spec in held.DESCRIPTOR.fields for name in (spec.name, spec.json_name)}
            if path not in names:
                raise ApiError("INVALID_ARGUMENT", f"update_mask: {path!r} is no field of Schedule")
            changed.ClearField(names[path])
            changed.MergeFrom(_only(changes, names[path]))
        rules.check_schedule(changed, only_gs=self._only_gs)
        held.CopyFrom(changed)
        return held

    @route("POST", "{location}/schedules/{id}:pause")
    def pause(self, request: Request) -> dict[str, Any]:
        schedule = self.get(request)
        if schedule.state != Schedule.State.ACTIVE:
            raise ApiError("FAILED_PRECONDITION", f"{schedule.name} is not active, so it can't be paused.")
        schedule.state = Schedule.State.PAUSED
        schedule.last_pause_time.GetCurrentTime()
        return {}

    @route("POST", "{location}/schedules/{id}:resume")
    def resume(self, request: Request) -> dict[str, Any]:
        asked = protos.parse(request.body, protos.new("ResumeScheduleRequest"))
        schedule = self.get(request)
        if schedule.state != Schedule.State.PAUSED:
            raise ApiError("FAILED_PRECONDITION", f"{schedule.name} is not paused, so it can't be resumed.")
        schedule.state, schedule.catch_up = Schedule.State.ACTIVE, asked.catch_up
        schedule.last_resume_time.GetCurrentTime()
        return {}

    @route("DELETE", "{location}/schedules/{id}")
    def delete(self, request: Request) -> Message:
        name = f"{request.parent}/schedules/{request.id}"
        self.store.remove(name)
        return self._operations.start(name, protos.new("DeleteOperationMetadata"), empty_pb2.Empty())


def _only(message: Message, field: str) -> Message:
    result = type(message)()
    for spec, value in message.ListFields():
        if spec.name == field:
            if spec.message_type is not None:
                getattr(result, field).CopyFrom(value)
            else:
                setattr(result, field, value)
    return result
