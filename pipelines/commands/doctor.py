"""``python -m pipelines doctor``."""

import click


@click.command()
def doctor() -> None:
    """Check this machine, and print a command for each problem."""
    from pipelines.doctor import run_checks

    failures = 0
    for result in run_checks():
        mark, color = {True: ("ok", "green"), False: ("WRONG", "red"), None: ("-", "yellow")}[result.ok]
        click.secho(f"{mark:6}{result.name}: {result.message}", fg=color)
        if not result.ok and result.fix:
            click.echo(f"      {result.fix}")
        failures += result.ok is False
    if failures:
        raise ValueError(f"{failures} checks failed: run the commands above")
