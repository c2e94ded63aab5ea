"""A cache for pure functions that keeps their signature for the type checker."""

from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar, cast

_P = ParamSpec("_P")
_R = TypeVar("_R")


def memoize(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Remember every result of a function of hashable arguments, as `functools.cache` does."""
    return cast("Callable[_P, _R]", cache(function))
