"""Simulates sums and products of two activations, resizes and attention's matrix products.

    python benchmarks/activation_products.py [--config PRESET]

``bound`` is what the array takes for the products alone, and for the rest the port of the store
engine for the results. Zero points other than 0 cost further passes, see docs/operators.md.
"""

import argparse
import math
import sys

import tilewright as tw
from tilewright.compiler.compile import compile_graph
from tilewright.compiler.compiled import AcceleratorStep
from tilewright.compiler.graph import Graph, Tensor
from tilewright.compiler.graph_builder import GraphBuilder
from tilewright.compiler.operators import Add, DataType, MatMul, Mul, Operator, Upsample2d
from tilewright.isa.config import AcceleratorConfig
from tilewright.runtime.tables import Table, plain_table
from tilewright.sim.clockwork import simulate_timing

Shape = tuple[int, ...]
COLUMNS = ("layer", "operands", "zero points", "cycles", "bound", "ratio")
SCALE = {"multiplier": 9_000_000, "shift": 34, "zero_point": 0, "low": -128, "high": 127}
IMAGE, VECTOR = (1, 28, 28, 240), (1, 1, 1, 240)
QUERIES, KEYS, SCORES = (1, 3, 197, 64), (1, 3, 64, 197), (1, 3, 197, 197)


def add() -> Operator:
    """Return a sum."""
    return Add(a_coefficient=3, b_coefficient=5, bias=0, **SCALE)


def product(kind: type[Mul] | type[MatMul], zeros: tuple[int, int]) -> Operator:
    """Return a product of operands with these zero points."""
    return kind(a_zero_point=zeros[0], b_zero_point=zeros[1], **SCALE)


LAYERS: tuple[tuple[str, Operator, tuple[Shape, ...]], ...] = (
    ("sum", add(), (IMAGE, IMAGE)),
    ("sum by channel", add(), (IMAGE, VECTOR)),
    ("product", product(Mul, (3, 3)), (IMAGE, IMAGE)),
    ("product by channel", product(Mul, (0, 3)), (IMAGE, VECTOR)),
    ("product by channel", product(Mul, (-128, -128)), (IMAGE, VECTOR)),
    ("upsampling by 2", Upsample2d(factor=(2, 2)), ((1, 20, 20, 256),)),
    ("Q K^T of three heads", product(MatMul, (0, 0)), (QUERIES, KEYS)),
    ("Q K^T of three heads", product(MatMul, (5, -7)), (QUERIES, KEYS)),
    ("P V of three heads", product(MatMul, (-128, 0)), (SCORES, QUERIES)),
    ("P V of three heads", product(MatMul, (-128, 9)), (SCORES, QUERIES)),
)


def network(name: str, op: Operator, shapes: tuple[Shape, ...]) -> Graph:
    """Return a graph of one operator."""
    builder = GraphBuilder(name)
    operands = [
        builder.add_input(Tensor(name=f"x{number}", shape=shape, dtype=DataType.INT8))
        for number, shape in enumerate(shapes)
    ]
    return builder.build([builder.add(op, operands, node="layer")])


def measure(graph: Graph, config: AcceleratorConfig) -> tuple[int, int]:
    """Return simulated cycles, and the bound."""
    (step,) = compile_graph(graph, config).steps
    assert isinstance(step, AcceleratorStep), "the accelerator takes these layers"
    results = math.prod(graph.tensors[graph.outputs[0]].shape)
    bound = sum(layer.ideal_cycles for layer in step.layers) or results // config.port_bytes
    return simulate_timing(step.program).cycles, bound


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Simulate sums and products of activations.")
    parser.add_argument("--config", default="pynq", choices=sorted(tw.presets))
    config = tw.presets[parser.parse_args().config]
    print(f"{config.name}, simulated, one image")
    rows = []
    for name, op, shapes in LAYERS:
        cycles, bound = measure(network(name, op, shapes), config)
        zeros = f"{op.a_zero_point}, {op.b_zero_point}" if isinstance(op, Mul | MatMul) else ""
        operands = ", ".join("x".join(map(str, shape[1:])) for shape in shapes)
        rows.append((name, operands, zeros, f"{cycles:,}", f"{bound:,}", f"{cycles / bound:.2f}"))
    print(plain_table(Table(columns=COLUMNS, rows=tuple(rows), numbers=COLUMNS[3:])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
