"""Options that take one or more words, and end before a positional argument."""

import argparse
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from typing_extensions import assert_never

from tilewright.input_files import ARRAY_SUFFIX, PICTURE_SUFFIX


class ListOption(Enum):
    """An option with a list of words; it may be given several times."""

    INPUT = "--input"
    OUTPUT = "--output"
    SET = "--set"
    GRID = "--grid"

    def takes(self, word: str) -> bool:
        """Say whether a word belongs to the list; the first one always does."""
        suffix = Path(word).suffix.lower()
        match self:
            case ListOption.INPUT:
                return "=" in word or suffix in (ARRAY_SUFFIX, PICTURE_SUFFIX)
            case ListOption.OUTPUT:
                return "=" in word or suffix == ARRAY_SUFFIX
            case ListOption.SET | ListOption.GRID:
                return "=" in word
            case _:
                assert_never(self)


def add_list(
    parser: argparse.ArgumentParser, option: ListOption, *, metavar: str, dest: str, meaning: str
) -> None:
    """Add a list option; the parser must be given what `split_lists` makes of the words."""
    parser.add_argument(
        option.value,
        metavar=metavar,
        action="append",
        default=[],
        dest=dest,
        help=f"{meaning}; takes one or more, and may be repeated",
    )


def split_lists(words: Sequence[str]) -> list[str]:
    """Repeat list options: ``--set a=1 b=2 MODEL`` becomes ``--set a=1 --set b=2 MODEL``.

    `argparse` alone would take ``MODEL`` into the list.
    """
    options = {option.value: option for option in ListOption}
    result: list[str] = []
    current: ListOption | None = None
    first = False
    for position, word in enumerate(words):
        if word == "--":
            return [*result, *words[position:]]
        if word in options:
            current, first = options[word], True
        elif current is not None and not word.startswith("-") and (first or current.takes(word)):
            if not first:
                result.append(current.value)
            first = False
        else:
            current = None
        result.append(word)
    return result
