"""Results as people and programs see them."""

import hashlib

import numpy as np
import pytest

from tilewright.presentation import is_class_scores, output_lines, output_records, top_classes


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 10), True),
        ((1, 1, 1, 2), True),
        ((1, 1), False),
        ((2, 10), False),
        ((1, 10, 1), False),
        ((10,), False),
        ((), False),
        ((1, 0), False),
    ],
)
def test_class_scores_lie_along_the_last_axis(shape: tuple[int, ...], expected: bool) -> None:
    assert is_class_scores(np.zeros(shape, np.int8)) is expected


def test_the_largest_scores_come_first_and_equal_ones_in_order() -> None:
    scores = np.array([[3, -128, 127, 3, 0, 126, 3]], np.int8)
    assert top_classes(scores) == [(2, 127.0), (5, 126.0), (0, 3.0), (3, 3.0), (6, 3.0)]
    assert top_classes(scores[:, :2]) == [(0, 3.0), (1, -128.0)]


def test_unsigned_scores_are_not_taken_for_signed_ones() -> None:
    assert top_classes(np.array([[1, 255, 128]], np.uint8), 2) == [(1, 255.0), (2, 128.0)]


def test_records_hold_top_classes_or_a_digest() -> None:
    scores = np.array([[0.5, 1.5]], np.float32)
    image = np.arange(6, dtype=np.int16).reshape(1, 2, 3)
    assert output_records({"scores": scores, "image": image}) == {
        "scores": {
            "shape": [1, 2],
            "dtype": "float32",
            "top5": [{"index": 1, "score": 1.5}, {"index": 0, "score": 0.5}],
        },
        "image": {
            "shape": [1, 2, 3],
            "dtype": "int16",
            "digest": "sha256:" + hashlib.sha256(b"\0\0\1\0\2\0\3\0\4\0\5\0").hexdigest(),
        },
    }


def test_a_digest_does_not_depend_on_the_order_in_memory() -> None:
    image = np.arange(12, dtype=np.int8).reshape(2, 6)
    turned = np.asfortranarray(image)
    assert output_records({"x": image}) == output_records({"x": turned})


def test_lines() -> None:
    outputs = {
        "scores": np.array([[1, 9]], np.int8),
        "image": np.array([[-3, 4], [0, 1]], np.int8),
        "none": np.zeros((0, 2), np.int8),
    }
    assert output_lines(outputs) == [
        "output scores int8[1, 2]: classes 1 (9), 0 (1)",
        "output image int8[2, 2]: values from -3 to 4",
        "output none int8[0, 2]: empty",
    ]
