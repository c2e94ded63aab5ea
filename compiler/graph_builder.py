"""Construction of a graph node by node, with types inferred on the way."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tilewright.compiler.graph import Array, Graph, Node, Source, Tensor
from tilewright.compiler.operators import DataType, Operator, Quantize, Reshape
from tilewright.compiler.operators.inference import infer
from tilewright.compiler.operators.tensor_type import InferenceError, TensorType
from tilewright.isa.errors import ModelError

#: Largest tensor, and longest axis, of a graph; more is taken for a damaged or hostile file.
MAX_ELEMENTS = 1 << 28
MAX_AXIS = 1 << 24


class GraphBuilder:
    """A graph under construction.

    Names are made unique where they are not; what no output depends on is left out of the result.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tensors: dict[str, Tensor] = {}
        self._constants: dict[str, Array] = {}
        self._nodes: list[Node] = []
        self._node_names: set[str] = set()
        self._inputs: list[str] = []
        self._reserved: frozenset[str] = frozenset()
        self._renamed: dict[str, str] = {}
        self._notes: list[str] = []

    def reserve(self, names: Iterable[str]) -> None:
        """Keep `names` for tensors that ask for them with ``exact=True``."""
        self._reserved = frozenset(names)

    def tensor(self, name: str) -> Tensor:
        """Return a tensor declared before."""
        return self._tensors[name]

    def constant_value(self, name: str) -> Array | None:
        """Return the values of a constant tensor, None for any other tensor."""
        return self._constants.get(name)

    def add_input(self, tensor: Tensor) -> str:
        """Declare an input of the graph."""
        self._declare(replace(tensor, name=self._free_name(tensor.name, exact=True)))
        self._inputs.append(tensor.name)
        return tensor.name

    def add_note(self, note: str) -> None:
        """Note what is assumed where the model file leaves a choice."""
        self._notes.append(note)

    def add_constant(self, name: str, values: Array) -> str:
        """Add a constant and return its name; its element type must be one of `DataType`."""
        name = self._free_name(name)
        dtype = DataType(str(values.dtype))
        self._declare(Tensor(name=name, shape=values.shape, dtype=dtype))
        self._constants[name] = np.ascontiguousarray(values).reshape(values.shape)
        return name

    def add(
        self,
        op: Operator,
        inputs: Sequence[str],
        *,
        node: str,
        output: str | None = None,
        exact: bool = False,
        scale: float | None = None,
        zero_point: int | None = None,
        source: Source | None = None,
        node_source: str = "",
    ) -> str:
        """Add a node and return the name of its output.

        `output` proposes the output's name, otherwise it is the node's; with ``exact=True`` it is
        kept as it is. `scale` and `zero_point` say what its integers mean; `Quantize` states its
        own. `source` is the tensor of the model file, `node_source` how messages name its node.

        Raises
        ------
        ModelError
            If the operator does not suit its inputs.
        """
        name = self._free_node_name(node)
        if isinstance(op, Quantize):
            scale, zero_point = op.scale, op.zero_point
        try:
            inferred = infer(op, tuple(self._tensors[operand].type for operand in inputs))
        except InferenceError as error:
            label = node_source or f"node {node!r} ({type(op).__name__})"
            raise ModelError(f"{label} {error}") from error
        tensor = Tensor(
            name=self._free_name(output or name, exact=exact),
            shape=inferred.shape,
            dtype=inferred.dtype,
            scale=scale,
            zero_point=zero_point,
            source=source,
        )
        self._declare(tensor)
        self._nodes.append(
            Node(name=name, op=op, inputs=tuple(inputs), outputs=(tensor.name,), source=node_source)
        )
        return tensor.name

    def describe(self, name: str, *, source: Source) -> None:
        """Say which tensor of the model file an existing tensor stands for."""
        self._tensors[name] = replace(self._tensors[name], source=source)

    def name_output(self, tensor: str, name: str, *, source: Source | None) -> None:
        """Make `tensor` the output of the graph called `name`.

        It is renamed, or copied where it is a constant, an input or another output already.
        """
        tensor = self._renamed.get(tensor, tensor)
        if tensor in self._reserved or tensor in self._inputs or tensor in self._constants:
            value = self._tensors[tensor]
            tensor = self.add(
                Reshape(shape=value.shape),
                [tensor],
                node=f"{name}/copy",
                scale=value.scale,
                zero_point=value.zero_point,
            )
        self._declare(replace(self._tensors.pop(tensor), name=name, source=source))
        self._renamed[tensor] = name

        def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(name if other == tensor else other for other in names)

        self._nodes = [
            replace(node, inputs=renamed(node.inputs), outputs=renamed(node.outputs))
            for node in self._nodes
        ]

    def build(self, outputs: Sequence[str]) -> Graph:
        """Return the graph of what `outputs` depend on; all inputs are kept."""
        needed = {*outputs, *self._inputs}
        nodes = []
        for node in reversed(self._nodes):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
                nodes.append(node)
        return Graph(
            name=self._name,
            tensors={name: tensor for name, tensor in self._tensors.items() if name in needed},
            nodes=tuple(reversed(nodes)),
            inputs=tuple(self._inputs),
            outputs=tuple(outputs),
            constants={name: array for name, array in self._constants.items() if name in needed},
            notes=tuple(self._notes),
        )

    def _declare(self, tensor: Tensor) -> None:
        check_size(tensor.name, tensor.type)
        self._tensors[tensor.name] = tensor

    def _free_name(self, name: str, *, exact: bool = False) -> str:
        if exact:
            if name in self._tensors:
                raise ModelError(f"tensor {name!r} is defined twice")
            return name
        taken = self._tensors.keys() | self._reserved
        return name if name not in taken else _numbered(name, taken)

    def _free_node_name(self, name: str) -> str:
        free = name if name not in self._node_names else _numbered(name, self._node_names)
        self._node_names.add(free)
        return free


def check_size(name: str, tensor: TensorType) -> None:
    """Raise ModelError for a tensor that is too large to be taken for real."""
    if max(tensor.shape, default=0) > MAX_AXIS or math.prod(tensor.shape) > MAX_ELEMENTS:
        raise ModelError(f"tensor {name!r} of {tensor} is too large")


def _numbered(name: str, taken: Iterable[str]) -> str:
    used = set(taken)
    number = 1
    while f"{name}_{number}" in used:
        number += 1
    return f"{name}_{number}"
