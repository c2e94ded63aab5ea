"""Statements with other variables, and with tensors as parts of larger ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from typing_extensions import assert_never

from tilewright.compiler.tensor.expressions import Expr, Load, Tensor, Var
from tilewright.compiler.tensor.statements import (
    Allocate,
    For,
    If,
    IntrinsicCall,
    Region,
    Seq,
    Statement,
    Store,
)
from tilewright.compiler.tensor.traversal import transform


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """What takes the place of what.

    Attributes
    ----------
    tensors
        For each tensor another one, and the part of it, along its first axis, that accesses go to.
    values
        For each variable, by name, what it stands for.
    """

    tensors: Mapping[Tensor, tuple[Tensor, Expr]] = field(default_factory=dict)
    values: Mapping[str, Expr] = field(default_factory=dict)

    def statement(self, part: Statement) -> Statement:
        """Return `part` rewritten; loops keep their own variables."""
        match part:
            case For() | Allocate():
                return replace(part, body=self.statement(part.body))
            case If():
                body = self.statement(part.body)
                return If(condition=self.value(part.condition), body=body)
            case Seq():
                return Seq(statements=tuple(map(self.statement, part.statements)))
            case Store():
                return self._store(part)
            case IntrinsicCall():
                return self._call(part)
            case _:
                assert_never(part)

    def value(self, expr: Expr) -> Expr:
        """Return `expr` rewritten."""

        def step(node: Expr) -> Expr:
            if isinstance(node, Var):
                return self.values.get(node.name, node)
            if isinstance(node, Load) and node.tensor in self.tensors:
                tensor, index = self.tensors[node.tensor]
                return Load(tensor, (index, *node.indices))
            return node

        return transform(expr, step)

    def _store(self, store: Store) -> Store:
        indices, value = tuple(map(self.value, store.indices)), self.value(store.value)
        if store.tensor in self.tensors:
            tensor, index = self.tensors[store.tensor]
            return Store(tensor=tensor, indices=(index, *indices), value=value)
        return Store(tensor=store.tensor, indices=indices, value=value)

    def _call(self, call: IntrinsicCall) -> IntrinsicCall:
        return replace(
            call,
            output=self._region(call.output),
            inputs=tuple(map(self._region, call.inputs)),
            extents=tuple(map(self.value, call.extents)),
            parameters=tuple(map(self.value, call.parameters)),
            first=None if call.first is None else self.value(call.first),
        )

    def _region(self, part: Region) -> Region:
        offsets = tuple(map(self.value, part.offsets))
        if part.tensor not in self.tensors:
            return replace(part, offsets=offsets)
        tensor, index = self.tensors[part.tensor]
        axes = tuple(axis + 1 for axis in part.axes)
        return Region(tensor=tensor, offsets=(index, *offsets), axes=axes)
