"""Inputs from files: arrays as they are, pictures of the exact size, nothing else."""

import io
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tilewright.compiler.graph import Tensor
from tilewright.compiler.operators import DataType
from tilewright.input_files import read_inputs
from tilewright.isa.errors import InputError


def tensor(shape: tuple[int, ...], dtype: DataType = DataType.UINT8, name: str = "x") -> Tensor:
    return Tensor(name=name, shape=shape, dtype=dtype)


#: Rows of different pixels: red, green, blue, white; black, grey, ...
PIXELS = np.arange(4 * 2 * 3, dtype=np.uint8).reshape(2, 4, 3) * 10


@pytest.fixture
def picture(tmp_path: Path) -> str:
    path = tmp_path / "picture.png"
    Image.fromarray(PIXELS, "RGB").save(path)
    return str(path)


def test_an_array_is_taken_as_it_is(tmp_path: Path, rng: np.random.Generator) -> None:
    values = rng.standard_normal((2, 3, 4)).astype(np.float32).transpose(2, 0, 1)
    np.save(tmp_path / "x.npy", values)
    found = read_inputs([tensor((1,))], [str(tmp_path / "x.npy")])
    assert found["x"].dtype == np.float32
    np.testing.assert_array_equal(found["x"], values)


def test_inputs_are_named(tmp_path: Path) -> None:
    paths = {}
    for index, name in enumerate(("a", "b=c")):
        paths[name] = tmp_path / f"{index}.npy"
        np.save(paths[name], np.array([index]))
    tensors = [tensor((1,), name="a"), tensor((1,), name="b")]
    found = read_inputs(tensors, [f"a={paths['a']}", f"b={paths['b=c']}"])
    assert {name: int(values[0]) for name, values in found.items()} == {"a": 0, "b": 1}


def test_a_path_may_hold_an_equals_sign(tmp_path: Path) -> None:
    path = tmp_path / "seed=1.npy"
    np.save(path, np.array([7]))
    assert read_inputs([tensor((1,))], [str(path)])["x"].tolist() == [7]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((1, 2, 4, 3), PIXELS[None]), ((1, 3, 2, 4), PIXELS.transpose(2, 0, 1)[None])],
)
def test_a_picture_takes_the_layout_of_the_input(
    picture: str, shape: tuple[int, ...], expected: np.ndarray
) -> None:
    np.testing.assert_array_equal(read_inputs([tensor(shape)], [picture])["x"], expected)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (DataType.UINT8, [0, 127, 128, 255]),
        (DataType.INT8, [-128, -1, 0, 127]),
        (DataType.FLOAT32, [0.0, 127.0, 128.0, 255.0]),
    ],
)
def test_a_picture_takes_the_type_of_the_input(
    tmp_path: Path, dtype: DataType, expected: list[float]
) -> None:
    path = tmp_path / "grey.png"
    Image.fromarray(np.array([[0, 127], [128, 255]], np.uint8), "L").save(path)
    for shape in ((1, 2, 2, 1), (1, 1, 2, 2), (1, 2, 2), (2, 2)):
        found = read_inputs([tensor(shape, dtype)], [str(path)])["x"]
        assert found.shape == shape
        assert found.dtype == np.dtype(dtype.value)
        assert found.reshape(-1).tolist() == expected


def test_colour_becomes_grey_where_the_input_has_one_channel(picture: str) -> None:
    found = read_inputs([tensor((1, 2, 4, 1))], [picture])["x"]
    red, green, blue = (PIXELS[..., channel].astype(float) for channel in range(3))
    luma = 0.299 * red + 0.587 * green + 0.114 * blue  # ITU-R BT.601
    assert np.abs(found[0, ..., 0] - luma).max() <= 1


@pytest.mark.parametrize("mode", ["RGBA", "P", "L", "LA", "1"])
def test_other_kinds_of_pictures_are_converted(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "other.png"
    Image.new(mode, (4, 2), 1).save(path)
    assert read_inputs([tensor((1, 2, 4, 3))], [str(path)])["x"].shape == (1, 2, 4, 3)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            (1, 4, 2, 3),
            "picture {} is 4 x 2 pixels, input 'x' takes 2 x 4 (width x height)",
        ),
        (
            (2, 2, 4, 3),
            "input 'x' uint8[2, 2, 4, 3] does not have the shape of one picture of 1 or 3 channels",
        ),
        (
            (1, 640),
            "picture {} is 4 x 2 pixels, input 'x' takes 640 x 1 (width x height)",
        ),
    ],
)
def test_a_picture_that_does_not_fit_is_refused(
    picture: str, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_inputs([tensor(shape)], [picture])
    assert str(caught.value) == message.format(picture)


def test_sixteen_bits_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.png"
    Image.fromarray(np.full((2, 4), 40_000, np.uint16)).save(path)
    with pytest.raises(InputError) as caught:
        read_inputs([tensor((1, 2, 4, 1))], [str(path)])
    assert str(caught.value) == f"picture {path} must have 8 bits per channel"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.npy"], "there is no input file none.npy"),
        (["none.png"], "there is no input file none.png"),
        (["x=none.npy"], "there is no input file none.npy"),
        (["y=none.npy"], "there is no input 'y'"),
        (["x.txt"], "input file x.txt must be a .npy or .png file"),
    ],
)
def test_a_wrong_argument_is_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        read_inputs([tensor((1, 2, 4, 1))], arguments)
    assert str(caught.value) == message


def test_an_input_is_given_once(picture: str) -> None:
    with pytest.raises(InputError) as caught:
        read_inputs([tensor((1, 2, 4, 3))], [picture, f"x={picture}"])
    assert str(caught.value) == "input 'x' is given twice"


def test_a_bare_file_is_for_an_only_input(picture: str) -> None:
    with pytest.raises(InputError) as caught:
        read_inputs([tensor((1,), name="a"), tensor((1,), name="b")], [picture])
    assert str(caught.value) == (
        f"there are 2 inputs: say which one {picture} is for with NAME=FILE"
    )
    assert caught.value.hint == "inputs: 'a' uint8[1], 'b' uint8[1]"


def test_an_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"")
    with pytest.raises(InputError) as caught:
        read_inputs([tensor((1,))], [str(path)])
    assert str(caught.value) == f"{path} is an archive of several arrays, not a .npy file"


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"^cannot read .*x\.npy as a \.npy file: "):
        read_inputs([tensor((1,))], [str(path)])


def test_a_header_cannot_ask_for_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (1 << 45,)}
    )
    path.write_bytes(header.getvalue())
    with pytest.raises(InputError, match=r"^cannot read .*x\.npy as a \.npy file: "):
        read_inputs([tensor((1,))], [str(path)])


@pytest.mark.parametrize("suffix", [".npy", ".png"])
def test_damaged_files_are_refused_or_read(tmp_path: Path, picture: str, suffix: str) -> None:
    np.save(tmp_path / "whole.npy", PIXELS[None])
    data = (tmp_path / "whole.npy").read_bytes() if suffix == ".npy" else Path(picture).read_bytes()
    path = tmp_path / f"damaged{suffix}"
    dice = random.Random(5)
    messages = []
    for _ in range(400):
        damaged = bytearray(data[: dice.randrange(len(data) + 1)] if dice.random() < 0.3 else data)
        for _ in range(dice.randrange(4)):
            if damaged:
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        path.write_bytes(damaged)
        try:
            read_inputs([tensor((1, 2, 4, 3))], [str(path)])
        except InputError as error:
            messages.append(str(error))
    assert len(messages) > 100
    assert not any("\n" in message for message in messages)
