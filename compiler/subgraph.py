"""Some nodes of a graph as a graph of their own."""

from tilewright.compiler.graph import Graph, Node


def subgraph(graph: Graph, nodes: tuple[Node, ...]) -> Graph:
    """Return the graph of some nodes: what they read from outside is input, what is left output."""
    own = {name for node in nodes for name in node.outputs}
    read = dict.fromkeys(name for node in nodes for name in node.inputs if name not in own)
    inputs = tuple(name for name in read if name not in graph.constants)
    within = {node.name for node in nodes}
    wanted = {
        name for node in graph.nodes if node.name not in within for name in node.inputs
    } | set(graph.outputs)
    outputs = tuple(name for node in nodes for name in node.outputs if name in wanted)
    constants = {name: graph.constants[name] for name in read if name in graph.constants}
    names = {*own, *read}
    return Graph(
        name=f"{graph.name}/{nodes[0].name}",
        tensors={name: tensor for name, tensor in graph.tensors.items() if name in names},
        nodes=nodes,
        inputs=inputs,
        outputs=outputs,
        constants=constants,
    )
