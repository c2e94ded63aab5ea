"""Loop nests to functions: loops, guards, storage, and loops carried out in vector lanes."""

from collections.abc import Iterator
from math import prod

from llvmlite import ir
from typing_extensions import assert_never

from tilewright.compiler.tensor.expansion import expand
from tilewright.compiler.tensor.expressions import (
    Binary,
    Call,
    Const,
    Expr,
    Load,
    Select,
    Tensor,
)
from tilewright.compiler.tensor.operations import Function, Operator
from tilewright.compiler.tensor.scalar_types import ScalarType
from tilewright.compiler.tensor.statements import (
    Allocate,
    For,
    If,
    IntrinsicCall,
    LoopKind,
    Seq,
    Statement,
    Store,
)
from tilewright.compiler.tensor.traversal import loads, nodes, variables
from tilewright.cpu_gpu_backends.codegen.dot_products import (
    emit_dot_products,
    has_vector_code,
)
from tilewright.cpu_gpu_backends.codegen.expressions import ExpressionEmitter
from tilewright.cpu_gpu_backends.codegen.frame import Frame, Lanes, Storage
from tilewright.cpu_gpu_backends.codegen.target import LINE_BYTES
from tilewright.cpu_gpu_backends.codegen.types import INDEX, index, memory_type


class StatementEmitter:
    """Emits the statements of a loop nest in a frame."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._expressions = ExpressionEmitter(frame)

    def emit(self, statement: Statement) -> None:
        """Emit one statement."""
        match statement:
            case For():
                self._loop(statement)
            case If():
                self._if(statement)
            case Store():
                self._store(statement)
            case Allocate():
                self._allocate(statement)
            case Seq():
                for part in statement.statements:
                    self.emit(part)
            case IntrinsicCall():
                self._intrinsic(statement)
            case _:
                assert_never(statement)

    def counted_loop(self, loop: For, begin: ir.Value, end: ir.Value) -> None:
        """Emit the iterations of `loop` from `begin` to ``end - 1``; there may be none."""
        frame, b = self._frame, self._frame.builder
        body, done = frame.block(f"loop.{loop.var.name}"), frame.block("done")
        before = b.block
        b.cbranch(b.icmp_signed("<", begin, end), body, done)
        self._iterate(loop, begin, end, before, body, done)

    def _loop(self, loop: For) -> None:
        match loop.kind:
            case LoopKind.UNROLL:
                for iteration in range(loop.extent):
                    with self._frame.bound(loop.var.name, iteration, loop.extent):
                        self.emit(loop.body)
            case LoopKind.VECTORIZE if not self._frame.lanes and _suits_lanes(loop):
                self._vector_loop(loop)
            case _ if _resets(loop) and not self._frame.lanes:
                self._vector_loop(loop)
            case _:
                self._serial_loop(loop)

    def _serial_loop(self, loop: For) -> None:
        if loop.extent == 1:
            with self._frame.bound(loop.var.name, 0, 1):
                self.emit(loop.body)
            return
        frame, b = self._frame, self._frame.builder
        body, done = frame.block(f"loop.{loop.var.name}"), frame.block("done")
        before = b.block
        b.branch(body)
        self._iterate(loop, index(0), index(loop.extent), before, body, done)

    def _iterate(
        self,
        loop: For,
        begin: ir.Value,
        end: ir.Value,
        before: ir.Block,
        body: ir.Block,
        done: ir.Block,
    ) -> None:
        frame, b = self._frame, self._frame.builder
        frame.enter(body)
        variable = b.phi(INDEX)
        variable.add_incoming(begin, before)
        with frame.bound(loop.var.name, variable, loop.extent):
            self.emit(loop.body)
        following = b.add(variable, index(1), flags=("nsw", "nuw"))
        variable.add_incoming(following, b.block)
        b.cbranch(b.icmp_signed("<", following, end), body, done)
        frame.enter(done)

    def _vector_loop(self, loop: For) -> None:
        width = max(1, self._frame.target.vector_bytes // _widest_bytes(loop.body))
        whole = loop.extent // width
        if whole > _UNROLLED_VECTORS:
            self._strips(loop, width, whole)
            begin = whole * width
        else:
            begin = 0
        for start, lanes in _chunks(begin, loop.extent, width):
            if lanes == 1:
                with self._frame.bound(loop.var.name, start, loop.extent):
                    self.emit(loop.body)
                continue
            with (
                self._frame.bound(loop.var.name, Lanes(None, start, lanes), loop.extent),
                self._frame.vector(lanes),
            ):
                self.emit(loop.body)

    def _strips(self, loop: For, width: int, count: int) -> None:
        """Emit a loop over whole vectors."""
        frame, b = self._frame, self._frame.builder
        body, done = frame.block(f"strips.{loop.var.name}"), frame.block("done")
        before = b.block
        b.branch(body)
        frame.enter(body)
        base = b.phi(INDEX)
        base.add_incoming(index(0), before)
        with (
            frame.bound(loop.var.name, Lanes(base, 0, width), loop.extent),
            frame.vector(width),
        ):
            self.emit(loop.body)
        following = b.add(base, index(width), flags=("nsw", "nuw"))
        base.add_incoming(following, b.block)
        b.cbranch(b.icmp_signed("<", following, index(count * width)), body, done)
        frame.enter(done)

    def _if(self, guard: If) -> None:
        condition = self._expressions.condition(guard.condition)
        if isinstance(condition, bool):
            if condition:
                self.emit(guard.body)
            return
        frame, b = self._frame, self._frame.builder
        then, done = frame.block("then"), frame.block("done")
        b.cbranch(condition, then, done)
        frame.enter(then)
        self.emit(guard.body)
        b.branch(done)
        frame.enter(done)

    def _store(self, store: Store) -> None:
        product = _accumulated_product(store) if self._frame.target.fuses_products else None
        if product is None:
            value = self._expressions.value(store.value)
        else:
            total, left, right = product
            fused = Call(Function.FUSED_MULTIPLY_ADD, (left, right, total))
            value = self._expressions.value(fused)
        self._expressions.memory.store(store.tensor, store.indices, value)

    def _allocate(self, allocation: Allocate) -> None:
        frame, tensor = self._frame, allocation.tensor
        outer = frame.storages.get(tensor.name)
        if outer is None or outer.tensor is not tensor:
            frame.storages[tensor.name] = self._on_stack(tensor)
        self.emit(allocation.body)
        if outer is None:
            del frame.storages[tensor.name]
        else:
            frame.storages[tensor.name] = outer

    def _on_stack(self, tensor: Tensor) -> Storage:
        count = prod(tensor.shape)
        kind = ir.ArrayType(memory_type(tensor.dtype), count)
        return Storage(
            tensor=tensor,
            pointer=self._frame.entry_alloca(kind, LINE_BYTES),
            strides=contiguous_strides(tensor.shape),
            own=True,
        )

    def _intrinsic(self, call: IntrinsicCall) -> None:
        if has_vector_code(call, self._frame.target):
            emit_dot_products(self._frame, self._expressions.memory, call)
        else:
            self.emit(expand(call))


#: Up to so many vectors a vector loop is written out.
_UNROLLED_VECTORS = 4


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a row-major array, in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _chunks(begin: int, end: int, width: int) -> Iterator[tuple[int, int]]:
    """Cut a range into vectors, each a power of two of at most `width` lanes."""
    while begin < end:
        lanes = min(width, 1 << ((end - begin).bit_length() - 1))
        yield begin, lanes
        begin += lanes


def _widest_bytes(statement: Statement) -> int:
    """Return the size of the widest data type that a statement computes with."""
    sizes = [1]
    for part in walk(statement):
        if isinstance(part, Store):
            sizes.append(part.tensor.dtype.numpy.itemsize)
            sizes += [
                node.dtype.numpy.itemsize
                for node in nodes(part.value)
                if node.dtype not in (ScalarType.INDEX, ScalarType.BOOL)
            ]
    return max(sizes)


def walk(statement: Statement) -> Iterator[Statement]:
    """Iterate over a statement and those within it; an intrinsic counts as what it stands for."""
    yield statement
    match statement:
        case For() | If() | Allocate():
            yield from walk(statement.body)
        case Seq():
            for part in statement.statements:
                yield from walk(part)
        case IntrinsicCall():
            yield from walk(expand(statement))
        case Store():
            return
        case _:
            assert_never(statement)


def _suits_lanes(loop: For) -> bool:
    """Whether a loop's iterations can be lanes: they run alike and share all storage."""
    name = loop.var.name
    for part in walk(loop.body):
        match part:
            case Allocate():
                return False
            case If() if name in variables(part.condition):
                return False
            case For() if part.kind is LoopKind.VECTORIZE:
                return False
            case Store() if not all(map(_evaluates_both, _varying_choices(part, name))):
                return False
    return _guards_are_uniform(loop)


def _resets(loop: For) -> bool:
    """Whether a loop sets elements to a constant, as reductions of intrinsics begin."""
    body = loop.body
    return isinstance(body, Store) and isinstance(body.value, Const)


def _guards_are_uniform(loop: For) -> bool:
    """Whether no guard reads a tensor that the loop itself writes: lanes could disagree."""
    written = {part.tensor.name for part in walk(loop.body) if isinstance(part, Store)}
    return not any(
        load.tensor.name in written
        for part in walk(loop.body)
        if isinstance(part, If)
        for load in loads(part.condition)
    )


def _varying_choices(store: Store, name: str) -> list[Select | Binary]:
    """Return the choices in a store whose condition differs between lanes, or may."""
    found: list[Select | Binary] = []
    for expr in (store.value, *store.indices):
        for node in nodes(expr):
            if isinstance(node, Select) and name in variables(node.condition):
                found.append(node)
            if isinstance(node, Binary) and node.operator in (Operator.AND, Operator.OR):
                found.append(node)
    return found


def _evaluates_both(choice: Select | Binary) -> bool:
    """Whether evaluating both alternatives is harmless: neither reads memory nor can fail."""
    branches = (choice.then, choice.otherwise) if isinstance(choice, Select) else (choice.right,)
    return not any(
        isinstance(node, Load)
        or (isinstance(node, Binary) and node.operator in (Operator.FLOOR_DIVIDE, Operator.MODULO))
        for branch in branches
        for node in nodes(branch)
    )


def _accumulated_product(store: Store) -> tuple[Expr, Expr, Expr] | None:
    """Return sum, left and right of ``x = x + left * right`` in floating point."""
    match store.value:
        case Binary(Operator.ADD, Load() as total, Binary(Operator.MULTIPLY, left, right)) if (
            store.tensor.dtype.is_float
            and total.tensor.name == store.tensor.name
            and total.indices == store.indices
        ):
            return total, left, right
        case _:
            return None
