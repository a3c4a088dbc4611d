"""Pages of pipeline runs in Kubeflow's user interface."""

import os
from urllib.parse import quote

VARIABLE = "BIFOCAL_KFP_UI"


def kfp_run_page(run_id: str) -> str:
    """Return the address of a run's page; "" unless ``BIFOCAL_KFP_UI`` holds the address of the interface.

    Example:
        >>> os.environ["BIFOCAL_KFP_UI"] = "https://kubeflow.example/_/pipeline/"
        >>> kfp_run_page("c0de")
        'https://kubeflow.example/_/pipeline/#/runs/details/c0de'
        >>> del os.environ["BIFOCAL_KFP_UI"]
    """
    address = os.environ.get(VARIABLE, "").rstrip("/")
    return f"{address}/#/runs/details/{quote(run_id)}" if address else ""
