"""The tornado as a picture by matplotlib (the plot extra)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lightloom.core.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from lightloom.core.decision import Roi

BARS = 12


def draw(path: str, roi: Roi) -> None:
    """Draw one tornado per machine that has a price, widest input on top."""
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot {path}: .png, .svg or .pdf")
    options = [o for o in roi.options if o.tornado]
    if not options:
        raise InputError(f"--plot {path}: nothing to draw: {roi.text}")
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot") from error
    matplotlib.use("agg")
    from matplotlib import pyplot

    from lightloom.show.roi import figure as short

    figure, grid = pyplot.subplots(1, len(options), figsize=(7 * len(options), 5), squeeze=False)
    for axes, option in zip(grid[0], options, strict=True):
        bars = list(option.tornado[:BARS])[::-1]
        for row, bar in enumerate(bars):
            ends = ((bar.at_low, "#4477aa", "input low"), (bar.at_high, "#ee6677", "input high"))
            for end, shade, name in ends:
                axes.barh(row, end - option.per_million, left=option.per_million, color=shade,
                          label=name if row == 0 else None)  # fmt: skip
        axes.axvline(option.per_million, color="black", linewidth=0.8)
        names = [f"{b.name}\n{short(b.low)} .. {short(b.high)}" for b in bars]
        axes.set_yticks(range(len(bars)), names)
        axes.legend(loc="lower right")
        axes.set_xlabel(f"{roi.currency} a million tokens")
        axes.set_title(option.cluster)
    figure.tight_layout()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)
