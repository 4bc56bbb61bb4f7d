"""Refusals, in the form in which Google's services put them."""

from google.rpc import code_pb2

HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}


class ApiError(Exception):
    """A request that is refused.

    Attributes:
        status: The name of Google's canonical code, such as `NOT_FOUND`.
        message: What the client is told.
    """

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message

    @property
    def http_status(self) -> int:
        return HTTP_STATUS[self.status]

    @property
    def code(self) -> int:
        """The canonical code's number."""
        return code_pb2.Code.Value(self.status)

    def body(self) -> dict:
        return {"error": {"code": self.http_status, "message": self.message, "status": self.status}}


class Findings:
    """Collects what is wrong with a request, so that it is all told at once, as Vertex does."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def expect(self, holds: object, field: str, message: str) -> None:
        if not holds:
            self._found.append(f"{len(self._found) + 1}.Field: {field}; Message: {message}\t")

    def refuse(self) -> None:
        """Raises what was found, if anything was."""
        if self._found:
            raise ApiError("INVALID_ARGUMENT", "List of found errors:\t" + "".join(self._found))
