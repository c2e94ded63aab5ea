"""The graph: tensors, constants and operators in the order in which they run."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.compiler.operators import DataType, Operator
from tilewright.compiler.operators.inference import infer
from tilewright.compiler.operators.tensor_type import InferenceError, TensorType
from tilewright.isa.errors import ModelError

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The tensor of the model file that a tensor of the graph stands for.

    The graph's values are ``np.transpose(source, axes).reshape(shape)``; where the source is uint8
    and the graph's tensor int8, the zero point has moved by 128.
    """

    name: str
    axes: tuple[int, ...]

    def view(self, values: Array, tensor: "Tensor") -> Array:
        """Turn `values` of the source tensor into those of `tensor`, which stands for it."""
        view: Array = np.transpose(values, self.axes).reshape(tensor.shape)
        if values.dtype == np.uint8 and tensor.dtype is DataType.INT8:
            view = (view ^ 0x80).view(np.int8)
        return view


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A named value of fixed shape and type; `scale` and `zero_point` tell what integers mean."""

    name: str
    shape: tuple[int, ...]
    dtype: DataType
    scale: float | None = None
    zero_point: int | None = None
    source: Source | None = None

    @property
    def type(self) -> TensorType:
        """Shape and element type."""
        return TensorType(self.shape, self.dtype)

    def __str__(self) -> str:
        text = f"{self.name}: {self.type}"
        if self.scale is not None:
            text += f" scale {self.scale:.6g} zero {self.zero_point}"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operator applied to named tensors."""

    name: str
    op: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    #: How messages name its node of the model file, ``node 'pool' (ReduceMean)``; may be empty.
    source: str = ""

    @property
    def label(self) -> str:
        """Name the node as error messages do: in the words of the model file, if they are known."""
        return self.source or f"node {self.name!r} ({type(self.op).__name__})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A network: nodes in topological order over tensors, some of them constant.

    Attributes
    ----------
    tensors
        Every tensor by name, constants included.
    constants
        Values of the constant tensors; the arrays are read-only.
    inputs, outputs
        Names as in the model file; the outputs are in its order.
    notes
        What was assumed where the model file leaves a choice; one sentence each.

    Raises
    ------
    ModelError
        If a name is used before it is defined or defined twice, or if an operator's inferred type
        is not the declared one.
    """

    name: str
    tensors: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
        constants = {name: _read_only(values) for name, values in self.constants.items()}
        object.__setattr__(self, "constants", MappingProxyType(constants))
        for name, tensor in self.tensors.items():
            if name != tensor.name:
                raise ModelError(f"tensor {tensor.name!r} is filed under the name {name!r}")
        for name, values in self.constants.items():
            self._check_constant(name, values)
        self._check_nodes()

    def _check_constant(self, name: str, values: Array) -> None:
        declared = self._tensor(name, "constant").type
        if declared.shape != values.shape or declared.dtype.numpy != values.dtype:
            raise ModelError(
                f"constant {name!r} is {values.dtype}{list(values.shape)}, declared as {declared}"
            )

    def _check_nodes(self) -> None:
        defined = set(self.constants)
        for name in self.inputs:
            self._tensor(name, "input")
            if name in defined:
                raise ModelError(f"input {name!r} is defined twice")
            defined.add(name)
        for name, count in Counter(node.name for node in self.nodes).items():
            if count > 1:
                raise ModelError(f"{count} nodes are called {name!r}")
        for node in self.nodes:
            for name in node.inputs:
                if name not in defined:
                    raise ModelError(f"node {node.name!r} reads {name!r} before it is defined")
            self._check_output(node, defined)
            defined.update(node.outputs)
        for name in (*self.outputs, *self.tensors):
            if name not in defined:
                raise ModelError(f"tensor {name!r} is not computed by any node")

    def _check_output(self, node: Node, defined: set[str]) -> None:
        where = f"node {node.name!r} ({type(node.op).__name__})"
        if len(node.outputs) != 1:
            raise ModelError(f"{where} has {len(node.outputs)} outputs instead of one")
        (name,) = node.outputs
        if name in defined:
            raise ModelError(f"tensor {name!r} is defined twice")
        declared = self._tensor(name, "output").type
        try:
            inferred = infer(node.op, tuple(self.tensors[name].type for name in node.inputs))
        except InferenceError as error:
            raise ModelError(f"{where} {error}") from error
        if inferred != declared:
            raise ModelError(f"{where} yields {inferred}, declared as {declared}")

    def _tensor(self, name: str, role: str) -> Tensor:
        if name not in self.tensors:
            raise ModelError(f"{role} {name!r} is not declared")
        return self.tensors[name]

    def operands(self, node: Node) -> tuple[Tensor, ...]:
        """Return the tensors that `node` reads."""
        return tuple(self.tensors[name] for name in node.inputs)

    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """Return, for every tensor, the nodes that read it, in order."""
        readers: dict[str, list[Node]] = {name: [] for name in self.tensors}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                readers[name].append(node)
        return {name: tuple(nodes) for name, nodes in readers.items()}

    def __str__(self) -> str:
        lines = [f"graph {self.name}"]
        lines += [f"  input  {self.tensors[name]}" for name in self.inputs]
        lines += [f"  {self._line(node)}" for node in self.nodes]
        lines += [f"  output {self.tensors[name]}" for name in self.outputs]
        return "\n".join(lines)

    def _line(self, node: Node) -> str:
        outputs = ", ".join(str(self.tensors[name]) for name in node.outputs)
        operands = ", ".join(
            f"{name}<{self.tensors[name].type}>" if name in self.constants else name
            for name in node.inputs
        )
        return f"{outputs} = {type(node.op).__name__}({operands}){attributes(node.op)}"


def _read_only(values: Array) -> Array:
    view: Array = values.view()
    view.flags.writeable = False
    return view


def attributes(op: Operator) -> str:
    """Return the attributes of `op` as `` {name=value, ...}``, or nothing where there are none."""
    pairs = []
    for field in fields(op):
        value = getattr(op, field.name)
        pairs.append(f"{field.name}={value.value if isinstance(value, Enum) else value}")
    return f" {{{', '.join(pairs)}}}" if pairs else ""
