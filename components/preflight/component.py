"""The KFP interface of the preflight step."""

from kfp import dsl

from components.images import TPU_IMAGE


@dsl.component(base_image=TPU_IMAGE, packages_to_install=[], install_kfp_package=False)
def preflight(program: dsl.Input[dsl.Artifact], machine: dict, report: dsl.Output[dsl.Markdown]) -> None:
    """Compiles the training step by the TPU's own compiler, on a CPU; fails if it does not compile or fit.

    Args:
        program: What lower wrote.
        machine: The slice to compile for, as components.preflight.slices describes it.
        report: Verdict, memory, work, and bounds of time and price, for people; its figures are its metadata.
    """
    from components import step

    with step.running("preflight", report=report.uri) as run:
        from components.preflight.check import check

        figures = check(program.uri, machine, report.uri)
        run.report(**figures)
        report.metadata.update(figures)
