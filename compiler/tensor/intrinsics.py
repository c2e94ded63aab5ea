"""Intrinsics: operations of a target, declared by the tensor expression that they compute."""

from dataclasses import dataclass

from tilewright.compiler.tensor.declare import inputs_of
from tilewright.compiler.tensor.expressions import Axis, ExpressionError, Reduce, Tensor, Var
from tilewright.compiler.tensor.traversal import nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Intrinsic:
    """An operation that a schedule can put in place of its innermost loops.

    Attributes
    ----------
    name
        Its name in schedules.
    pattern
        What it computes: a tensor defined over placeholders, each in the memory it must lie in.
    emitter
        The name under which a backend knows how to emit it.
    flexible
        Names of the pattern's axes that may be shorter than declared.
    overwrites
        For a reduction: whether the first contribution can overwrite the result. Otherwise the
        schedule puts loops before it that set the result to the reduction's identity.
    """

    name: str
    pattern: Tensor
    emitter: str
    flexible: tuple[str, ...] = ()
    overwrites: bool = True

    def __post_init__(self) -> None:
        if self.pattern.definition is None:
            raise ExpressionError(f"the pattern of intrinsic {self.name!r} has no definition")
        known = [axis.name for axis in self.axes]
        for name in self.flexible:
            if name not in known:
                raise ExpressionError(
                    f"the pattern of intrinsic {self.name!r} has no axis {name!r}"
                )

    @property
    def data_axes(self) -> tuple[Axis, ...]:
        """The axes of the result."""
        assert self.pattern.definition is not None, "checked on construction"
        return self.pattern.definition.axes

    @property
    def reduce_axes(self) -> tuple[Axis, ...]:
        """The axes that are reduced."""
        reduce = self.reduce
        return () if reduce is None else reduce.axes

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes of the pattern."""
        return (*self.data_axes, *self.reduce_axes)

    @property
    def reduce(self) -> Reduce | None:
        """The pattern's reduction, if it is one."""
        assert self.pattern.definition is not None, "checked on construction"
        body = self.pattern.definition.body
        return body if isinstance(body, Reduce) else None

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The placeholders of the pattern, in the order in which it reads them."""
        return inputs_of(self.pattern)

    @property
    def parameters(self) -> tuple[Var, ...]:
        """The scalars that the pattern leaves open, in the order in which they occur."""
        assert self.pattern.definition is not None, "checked on construction"
        known = {axis.name for axis in self.axes}
        found = (node for node in nodes(self.pattern.definition.body) if isinstance(node, Var))
        return tuple(dict.fromkeys(var for var in found if var.name not in known))
