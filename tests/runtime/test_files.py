"""Files are written whole or not at all."""

import os
from pathlib import Path

import pytest

from tilewright.isa.errors import InputError
from tilewright.runtime.files import check_writable, read_file, write_atomically


def test_a_file_is_written_with_the_usual_permissions(tmp_path: Path) -> None:
    write_atomically(tmp_path / "ours", b"data")
    (tmp_path / "theirs").write_bytes(b"data")
    assert (tmp_path / "ours").read_bytes() == b"data"
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(tmp_path / "link", b"data")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"data"


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, b"data")
        assert os.read(reader, 10) == b"data"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_writable(tmp_path)
    assert str(caught.value) == f"cannot write {tmp_path}: it is a folder"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_writable(tmp_path / "none" / "file")
    assert str(caught.value) == (
        f"cannot write {tmp_path}/none/file: there is no folder {tmp_path}/none"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_protected_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError) as caught:
        check_writable(tmp_path / "file")
    assert str(caught.value) == (
        f"cannot write {tmp_path}/file: no permission to write to its folder"
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [("none", "no such file or directory"), (".", "it is a folder")],
)
def test_an_unreadable_file_is_named(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read_file(tmp_path / name, "picture")
    assert str(caught.value) == f"cannot read picture {tmp_path / name}: {reason}"
