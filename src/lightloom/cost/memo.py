"""Remember answers per object: models and clusters hold tables and cannot be hashed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
N = TypeVar("N")


def per_object(
    size: int,
) -> Callable[[Callable[Concatenate[N, P], T]], Callable[Concatenate[N, P], T]]:
    """Return a decorator that remembers `size` answers by the first argument's identity and the
    other (hashable, positional) arguments; the object is held, so its identity cannot be reused."""

    def wrap(function: Callable[Concatenate[N, P], T]) -> Callable[Concatenate[N, P], T]:
        known: OrderedDict[Any, tuple[N, T]] = OrderedDict()

        def inner(first: N, /, *args: P.args, **kwargs: P.kwargs) -> T:
            key = (id(first), args)
            found = known.get(key)
            if found is not None and found[0] is first:
                return found[1]
            answer = function(first, *args, **kwargs)
            known[key] = (first, answer)
            if len(known) > size:
                known.popitem(last=False)
            return answer

        inner.__doc__, inner.__name__ = function.__doc__, function.__name__
        return inner

    return wrap
