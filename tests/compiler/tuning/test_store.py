"""Lines of files of tuned choices: what they hold, and what no search has written."""

import json
import warnings
import zlib
from pathlib import Path
from typing import Any

import pytest

from tilewright.compiler.tuning.store import (
    HEADER,
    DamagedRecord,
    KernelRecord,
    NetworkRecord,
    Record,
    StoredChoice,
    TuningStore,
    TuningWarning,
    line_to_record,
    record_to_line,
)

CHOICES = (StoredChoice(cost=7, values=("kind", 2, (3, True))), StoredChoice(cost=9, values=()))
KERNEL = {"machine": "m", "kernels": "k", "budget": 3, "choices": [[7], [9]]}
NETWORK = {"machine": "m", "network": "n", "choices": {"k": [7]}}


@pytest.mark.parametrize(
    "record",
    [
        KernelRecord(machine="m", kernels="k", choices=CHOICES, budget=3),
        NetworkRecord(machine="m", network="n", choices={"k": CHOICES[0]}),
        NetworkRecord(machine="m", network="n", choices={}),
    ],
)
def test_a_line_holds_a_record(record: Record) -> None:
    assert line_to_record(record_to_line(record)) == record


def line_of(text: str) -> str:
    """Return a line with the right checksum."""
    return f"{zlib.crc32(text.encode()):08x} {text}"


MALFORMED: tuple[Any, ...] = (
    [],
    {},
    {**KERNEL, "machine": 1},
    {**KERNEL, "kernels": {}},
    {**KERNEL, "budget": "many"},
    {**KERNEL, "choices": []},
    {**KERNEL, "choices": [[]]},
    {**KERNEL, "choices": [[1e400]]},
    {**KERNEL, "choices": {"k": [7]}},
    {**NETWORK, "network": None},
    {**NETWORK, "choices": [[7]]},
    {**NETWORK, "choices": {"k": 7}},
)


@pytest.mark.parametrize("body", MALFORMED)
def test_a_line_that_is_whole_but_no_record_is_damaged(body: object, tmp_path: Path) -> None:
    line = line_of(json.dumps(body))
    with pytest.raises(DamagedRecord):
        line_to_record(line)
    path = tmp_path / "choices"
    path.write_text(f"{HEADER}\n{line_of(json.dumps(KERNEL))}\n{line}\n")
    with pytest.warns(TuningWarning, match="line 3 is damaged and not used"):
        store = TuningStore(path)
    assert store.budget("m", "k") == 3


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_what_is_no_json_is_damaged(text: str) -> None:
    with pytest.raises(DamagedRecord):
        line_to_record(line_of(text))


def test_a_file_that_two_processes_have_begun_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "choices"
    records = (
        KernelRecord(machine="m", kernels=name, choices=CHOICES, budget=1) for name in ("a", "b")
    )
    path.write_text("".join(f"{HEADER}\n{record_to_line(record)}\n" for record in records))
    with warnings.catch_warnings():
        warnings.simplefilter("error", TuningWarning)
        assert set(TuningStore(path).kernels("m")) == {"a", "b"}
