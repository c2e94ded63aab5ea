"""What has to be known of the published networks beside their files."""

from collections.abc import Mapping

#: Shapes of inputs whose files leave them open, by the name of the file.
OPEN_SHAPES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "ppocr_cls_v2.onnx": {"x": (1, 3, 48, 192)}
}
