"""A linear programme that fits a screen: share work so that the busiest is least busy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def share_out(load: Floats) -> Floats:
    """Return weights w >= 0, sum 1, that minimise ``max(load @ w)``; `load` is positive, one row a
    resource, one column a way of doing the work.

    A matrix game: with y = w / value, maximise sum(y) under load @ y <= 1 (von Neumann; Dantzig
    1951). Dense simplex with Bland's rule, so it ends.
    """
    rows, columns = load.shape
    scale = float(load.max())
    table = np.zeros((rows + 1, columns + rows + 1))
    table[:rows, :columns] = load / scale
    table[:rows, columns : columns + rows] = np.eye(rows)
    table[:rows, -1] = 1.0
    table[-1, :columns] = -1.0
    basis = list(range(columns, columns + rows))
    while True:
        entering = np.flatnonzero(table[-1, :-1] < -1e-12)
        if not len(entering):
            break
        column = int(entering[0])
        step = np.full(rows, np.inf)
        usable = table[:rows, column] > 1e-12
        room = np.maximum(table[:rows, -1], 0.0)  # rounding leaves -1e-17 where rows are alike
        step[usable] = room[usable] / table[:rows, column][usable]
        ties = np.flatnonzero(step <= step.min() * (1 + 1e-12))
        row = int(min(ties, key=lambda r: basis[r]))
        table[row] /= table[row, column]
        for other in range(rows + 1):
            if other != row:
                table[other] -= table[other, column] * table[row]
        basis[row] = column
    y = np.zeros(columns + rows)
    y[basis] = table[:rows, -1]
    weight: Floats = y[:columns] / y[:columns].sum()
    return weight
