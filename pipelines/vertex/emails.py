"""Mails of a run's end, sent by Vertex AI itself."""

import inspect
from collections.abc import Sequence
from typing import Any

from google_cloud_pipeline_components.v1.vertex_notification_email import VertexNotificationEmailOp
from kfp import dsl
from kfp.dsl.base_component import BaseComponent


def with_emails(pipeline: BaseComponent, recipients: Sequence[str]) -> BaseComponent:
    """Returns a pipeline of the same name and parameters, whose end Vertex AI mails to the recipients.

    A pipeline has one exit handler, and ours is notify; so the whole pipeline becomes a task of an outer one.
    """

    def outer(*values: Any) -> None:
        with dsl.ExitHandler(VertexNotificationEmailOp(recipients=list(recipients))):
            pipeline(**dict(zip(signature.parameters, values, strict=True)))

    signature = inspect.signature(pipeline.pipeline_func)
    outer.__signature__ = signature  # type: ignore[attr-defined]
    outer.__doc__ = pipeline.pipeline_func.__doc__
    return dsl.pipeline(name=pipeline.name)(outer)
