"""Real training; torch lives only here. ``import lightloom.run as ll`` gives `session`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .member import Session

__all__ = ["session"]


def session() -> Session:
    """Return this process's part in the run; see docs/run.md."""
    from lightloom.core.errors import MissingExtraError

    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("torch", "run") from error
    from .member import Session

    return Session()
