"""Pictures by matplotlib (the plot extra): opened, saved and closed in one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightloom.core.errors import InputError, MissingExtraError


@contextmanager
def picture(path: str, width: float = 9.0, height: float = 5.0) -> Iterator[Any]:
    """Give axes to draw on, then write the file; .png, .svg or .pdf."""
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot {path}: .png, .svg or .pdf")
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot") from error
    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "lightloom"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(width, height))
    yield axes
    figure.tight_layout()
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)
    except OSError as error:
        raise InputError(f"--plot {path}: {error}") from error
    finally:
        pyplot.close(figure)
