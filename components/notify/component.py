"""The KFP interface of the notify step, the pipeline's exit handler."""

from kfp import dsl

from components.images import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, packages_to_install=[], install_kfp_package=False)
def notify(
    status: dsl.PipelineTaskFinalStatus,
    pipeline_root: str,
    job: str,
    webhook: str,
    notice: dsl.Output[dsl.Artifact],
) -> None:
    """Writes a notice of how the run ended, whichever way it did, and posts it to a webhook if there is one.

    Args:
        status: How the pipeline's tasks ended; KFP fills it in.
        pipeline_root: The pipeline's root folder or `gs://` URI.
        job: The job's id, below which the tasks' outputs lie.
        webhook: https URL that the notice is posted to as JSON, such as Slack's or Google Chat's; empty for none. One
            that fails is a warning in the log.
        notice: JSON with the run's state, the failing step and its error, each step's state and seconds, and a link.
    """
    from components import files, step
    from components.notify.notify import STEP, notify

    with step.running(STEP, notice=notice.uri):
        told = notify(
            pipeline_root,
            job,
            state=status.state,
            resource_name=status.pipeline_job_resource_name or "",
            error_message=status.error_message,
            webhook=webhook,
        )
        notice.metadata.update(state=told["state"])
        files.write_json(notice.uri, told)
