"""Folders of kept files: what is found is used, and what is used least recently goes first."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from tilewright.isa.cache_folder import find_kept, keep_file

SIZE = 100


def keep(path: Path, *, most_bytes: int, size: int = SIZE) -> None:
    made = path.parent.with_name(f"{path.name}.made")
    made.write_bytes(bytes(size))
    keep_file(made, path, most_bytes=most_bytes)


def used_before(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def kept(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"lock"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files, of which the use of `a` is longest ago."""
    folder = tmp_path / "kept"
    folder.mkdir()
    for age, name in ((30, "a"), (20, "b"), (10, "c")):
        keep(folder / name, most_bytes=3 * SIZE)
        used_before(folder / name, age)
    return folder


def test_those_used_longest_ago_go_first(folder: Path) -> None:
    assert kept(folder) == {"a", "b", "c"}
    keep(folder / "d", most_bytes=3 * SIZE)
    assert kept(folder) == {"b", "c", "d"}
    keep(folder / "e", most_bytes=2 * SIZE)
    assert kept(folder) == {"d", "e"}


def test_a_file_that_was_found_stays(folder: Path) -> None:
    assert find_kept(folder / "a")
    keep(folder / "d", most_bytes=2 * SIZE)
    assert kept(folder) == {"a", "d"}
    assert not find_kept(folder / "b")


@pytest.mark.parametrize(("most_bytes", "left"), [(3 * SIZE, {"c", "d"}), (3 * SIZE - 1, {"d"})])
def test_sizes_are_counted_to_the_byte(folder: Path, most_bytes: int, left: set[str]) -> None:
    keep(folder / "d", most_bytes=most_bytes, size=2 * SIZE)
    assert kept(folder) == left


def test_a_file_that_alone_is_too_large_is_kept(folder: Path) -> None:
    keep(folder / "d", most_bytes=SIZE, size=2 * SIZE)
    assert kept(folder) == {"d"}


def test_who_has_opened_a_file_keeps_it(folder: Path) -> None:
    with (folder / "a").open("rb") as stream:
        keep(folder / "d", most_bytes=SIZE)
        assert not (folder / "a").exists()
        assert stream.read() == bytes(SIZE)


def test_what_a_killed_process_has_left_goes(folder: Path) -> None:
    for name in ("left_behind", "in_work"):
        (folder / name).mkdir()
    used_before(folder / "left_behind", 25 * 60 * 60)
    keep(folder / "d", most_bytes=9 * SIZE)
    assert kept(folder) == {"a", "b", "c", "d", "in_work"}


def work(folder: Path, number: int, files: int, most_bytes: int) -> None:
    """Add files, each followed by a use of the one that all share."""
    for i in range(files):
        keep(folder / f"{number}_{i}", most_bytes=most_bytes)
        assert find_kept(folder / "shared")


def test_processes_side_by_side_keep_the_limit_and_what_they_use(tmp_path: Path) -> None:
    workers = 4
    folder = tmp_path / "kept"
    folder.mkdir()
    # Between two uses of the shared file each process adds one file, so that two more always fit.
    most_bytes = (workers + 2) * SIZE
    keep(folder / "shared", most_bytes=most_bytes)
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=work, args=(folder, number, 25, most_bytes))
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * workers
    assert "shared" in kept(folder)
    assert len(kept(folder)) == most_bytes // SIZE
