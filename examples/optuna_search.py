"""Search for hyperparameters with Optuna; each trial is an experiment of DVC.

    pip install "optuna>=4"
    python examples/optuna_search.py --trials 20
    dvc exp show --only-changed --sort-by recall_sum --sort-order desc
    dvc exp apply search-7 && python -m pipelines register

A trial runs in a temporary folder: DVC takes each stage from its cache whose parameters are
unchanged, and keeps the trial with its parameters, metrics and outputs. MLflow has its runs; no
trial is registered as a model. Run 'make repro' and commit dvc.lock first. With --storage
sqlite:///optuna.db a search goes on where it was stopped.
"""

from collections.abc import Callable, Mapping

import click
import optuna
from dvc.api import metrics_show
from dvc.repo import Repo

METRICS = "artifacts/metrics/summary.json"
Choose = Callable[[optuna.Trial, str], object]
SPACE: Mapping[str, Choose] = {
    "train_embedding.phases.0.learning_rate": lambda trial, name: trial.suggest_float(
        name, 3e-4, 3e-3, log=True
    ),
    "train_embedding.phases.0.loss.temperature": lambda trial, name: trial.suggest_float(
        name, 0.02, 0.2, log=True
    ),
    "train_embedding.model.dim": lambda trial, name: trial.suggest_categorical(
        name, [256, 512, 1024]
    ),
}
"""A draw for each parameter, by its path in params.yaml."""


def search(
    space: Mapping[str, Choose],
    metric: str,
    trials: int,
    name: str = "search",
    storage: str | None = None,
) -> optuna.Study:
    """Maximize ``metric`` of the project in the working directory.

    Args:
        metric: key of ``artifacts/metrics/summary.json``.
        trials: number of new trials.
        name: of the study; its experiments are ``<name>-<number>``.
        storage: database of Optuna; None keeps the study in memory.
    """

    def objective(trial: optuna.Trial) -> float:
        settings = [
            f"{parameter}={choose(trial, parameter)}" for parameter, choose in space.items()
        ]
        with Repo() as repo:
            (experiment,) = repo.experiments.run(
                params=settings, name=f"{name}-{trial.number}", tmp_dir=True
            )
        return float(metrics_show(METRICS, rev=experiment)[metric])

    study = optuna.create_study(
        study_name=name,
        storage=storage,
        load_if_exists=True,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=1),
    )
    study.optimize(objective, n_trials=trials)
    return study


@click.command()
@click.option("--trials", default=20, show_default=True)
@click.option(
    "--metric",
    default="recall_sum",
    show_default=True,
    help="Key of artifacts/metrics/summary.json.",
)
@click.option(
    "--name", default="search", show_default=True, help="Name of the study and of its experiments."
)
@click.option("--storage", help="Database of Optuna, such as sqlite:///optuna.db.")
def main(trials: int, metric: str, name: str, storage: str | None) -> None:
    """Search the space of this file, and print the best trial."""
    best = search(SPACE, metric, trials, name, storage).best_trial
    click.echo(f"{name}-{best.number}: {metric} {best.value:g}")
    for parameter, value in best.params.items():
        click.echo(f"  {parameter}: {value}")


if __name__ == "__main__":
    main()
