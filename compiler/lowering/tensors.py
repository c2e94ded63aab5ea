"""Activation tensors in DRAM: channels in blocks, so that tiles are long runs of bytes."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.isa.config import AcceleratorConfig

Int8Array = npt.NDArray[np.int8]
ByteArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorShape:
    """Images, rows, columns and channels of an activation tensor."""

    images: int
    height: int
    width: int
    channels: int

    @staticmethod
    def of(shape: tuple[int, ...]) -> "TensorShape":
        """Read a shape whose last axis is the channel and whose first axis is the image."""
        match shape:
            case (images, height, width, channels):
                return TensorShape(images=images, height=height, width=width, channels=channels)
            case (images, *middle, channels):
                return TensorShape(
                    images=images, height=1, width=math.prod(middle), channels=channels
                )
            case _:
                raise ValueError(f"shape must have an image and a channel axis, not {shape}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedTensor:
    """An int8 tensor in DRAM, ``[group][block][row][column][image in group][channel in block]``.

    A group is `batch` images, a block `layout_block` channels. Missing images and channels of the
    last group and block hold anything.
    """

    shape: TensorShape
    address: int
    batch: int
    block: int

    @staticmethod
    def at(address: int, shape: TensorShape, config: AcceleratorConfig) -> "BlockedTensor":
        """Place a tensor of `shape` at a DRAM byte address."""
        return BlockedTensor(
            shape=shape, address=address, batch=config.batch, block=config.layout_block
        )

    @property
    def groups(self) -> int:
        """Groups of images."""
        return -(-self.shape.images // self.batch)

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return -(-self.shape.channels // self.block)

    @property
    def pixel_bytes(self) -> int:
        """Bytes of one pixel of one block."""
        return self.batch * self.block

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of one block."""
        return self.shape.width * self.pixel_bytes

    @property
    def plane_bytes(self) -> int:
        """Bytes of one block of one group."""
        return self.shape.height * self.row_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.groups * self.blocks * self.plane_bytes

    def address_of(self, group: int, block: int, row: int, column: int) -> int:
        """DRAM byte address of a pixel."""
        plane = group * self.blocks + block
        return (
            self.address
            + plane * self.plane_bytes
            + row * self.row_bytes
            + column * self.pixel_bytes
        )

    def pack(self, values: Int8Array) -> ByteArray:
        """Lay out an array ``[N, H, W, C]`` (or of equal size) as the tensor's bytes."""
        shape = self.shape
        padded = np.zeros(
            (self.groups * self.batch, shape.height, shape.width, self.blocks * self.block),
            dtype=np.int8,
        )
        padded[: shape.images, :, :, : shape.channels] = values.reshape(
            shape.images, shape.height, shape.width, shape.channels
        )
        split = padded.reshape(
            self.groups, self.batch, shape.height, shape.width, self.blocks, self.block
        )
        return np.ascontiguousarray(split.transpose(0, 4, 2, 3, 1, 5)).view(np.uint8).reshape(-1)

    def unpack(self, data: ByteArray) -> Int8Array:
        """Read the array ``[N, H, W, C]`` out of the tensor's bytes."""
        shape = self.shape
        split = data.view(np.int8).reshape(
            self.groups, self.blocks, shape.height, shape.width, self.batch, self.block
        )
        whole = split.transpose(0, 4, 2, 3, 1, 5).reshape(
            self.groups * self.batch, shape.height, shape.width, self.blocks * self.block
        )
        return np.ascontiguousarray(whole[: shape.images, :, :, : shape.channels])
