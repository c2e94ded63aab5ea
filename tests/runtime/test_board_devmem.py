"""A board without pynq: the kernel's files, as files of a folder."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.runtime.board_access import BoardError
from tilewright.runtime.board_devmem import DevMemAccess


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What the kernel shows: `dev/mem` as a sparse file, a buffer of two pages."""
    for folder in ("dev", "lib/firmware", "sys/class/fpga_manager/fpga0"):
        (tmp_path / folder).mkdir(parents=True)
    attributes = tmp_path / "sys/class/u-dma-buf/udmabuf0"
    attributes.mkdir(parents=True)
    (attributes / "phys_addr").write_text("0x1f400000\n")
    (attributes / "size").write_text("8192\n")
    (tmp_path / "sys/class/fpga_manager/fpga0/state").write_text("operating\n")
    for name, size in (("mem", 1 << 32), ("udmabuf0", 8192)):
        with (tmp_path / "dev" / name).open("wb") as file:
            file.truncate(size)
    return tmp_path


def test_registers_are_words_at_their_address(root: Path) -> None:
    window = DevMemAccess(root).window(0xF800_0000, 0x1000)
    window.write(0x170, 0x0010_0A00)
    assert window.read(0x170) == 0x0010_0A00
    assert window.read(0x174) == 0
    with (root / "dev/mem").open("rb") as file:
        file.seek(0xF800_0170)
        assert file.read(4) == bytes.fromhex("000a1000")


def test_a_buffer_is_seen_by_both_sides(root: Path) -> None:
    buffer = DevMemAccess(root).allocate(5000)
    assert (buffer.physical_address, buffer.data.size) == (0x1F40_0000, 5000)
    buffer.data[4990:] = np.arange(10)
    assert (root / "dev/udmabuf0").read_bytes()[4990:5000] == bytes(range(10))
    buffer.free()


def test_a_download_goes_through_the_manager(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tilewright.bin").write_bytes(b"bits")
    DevMemAccess(root).download(tmp_path / "tilewright.bit")
    assert (root / "lib/firmware/tilewright.bin").read_bytes() == b"bits"
    manager = root / "sys/class/fpga_manager/fpga0"
    assert (manager / "firmware").read_text() == "tilewright.bin"
    assert (manager / "flags").read_text() == "0"


def refusal(root: Path, step: str, argument: object) -> BoardError:
    with pytest.raises(BoardError) as caught:
        getattr(DevMemAccess(root), step)(argument)
    return caught.value


def test_what_is_missing_is_named(root: Path) -> None:
    bitstream = root / "tilewright.bit"
    error = refusal(root, "download", bitstream)
    assert str(error) == f"there is no {root / 'tilewright.bin'}"
    (root / "tilewright.bin").write_bytes(b"bits")
    (root / "sys/class/fpga_manager/fpga0/state").write_text("write error\n")
    error = refusal(root, "download", bitstream)
    assert str(error) == (
        f"cannot load {root / 'tilewright.bin'}: the FPGA manager says 'write error'"
    )
    error = refusal(root, "allocate", 9000)
    assert str(error) == "udmabuf0 has 8192 bytes, 9000 are needed"
    (root / "dev/udmabuf0").unlink()
    error = refusal(root, "allocate", 10)
    assert str(error) == "there is no contiguous memory: No such file or directory"
    (root / "dev/mem").unlink()
    with pytest.raises(BoardError, match=r"^cannot reach the registers at 0x1000 through "):
        DevMemAccess(root).window(0x1000, 0x1000)
