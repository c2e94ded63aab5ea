"""Weights that are loaded while the array has nothing to do, before they are needed."""

from collections.abc import Sequence

from tilewright.compiler.lowering.tasks import Task
from tilewright.isa.instructions import Gemm, Load
from tilewright.isa.memories import Memory


def prefetch_weights(pipelines: Sequence[Sequence[Task]]) -> list[Task]:
    """Join the tasks of pipelines, weights in front of what does not use the array.

    Before a pipeline without products, such as a pooling, come the first weights of the next one:
    its loads wait for the results that they read, and what follows them waits too. Weights stay
    behind all tasks that touch the entries they are loaded to.
    """
    result: list[Task] = []
    rest = [list(tasks) for tasks in pipelines]
    for number, tasks in enumerate(rest):
        if number + 1 < len(rest) and not _multiplies(tasks) and _multiplies(rest[number + 1]):
            result += _take_first_weights(tasks, rest[number + 1])
        result += tasks
    return result


def _multiplies(tasks: Sequence[Task]) -> bool:
    return any(isinstance(task.instruction, Gemm) for task in tasks)


def _take_first_weights(before: Sequence[Task], tasks: list[Task]) -> list[Task]:
    """Remove and return the weights that may be loaded ahead of `before` and of all `tasks`."""
    taken: list[Task] = []
    passed = list(before)
    kept: list[Task] = []
    for number, task in enumerate(tasks):
        if not _loads_weights(task):
            kept.append(task)
            passed.append(task)
        elif any(_touches(other, task) for other in passed):
            kept += tasks[number:]
            break
        else:
            taken.append(task)
    tasks[:] = kept
    return taken


def _loads_weights(task: Task) -> bool:
    """Whether a task loads constant weights; others are results that must be there first."""
    load = task.instruction
    return isinstance(load, Load) and load.memory is Memory.WGT and task.dram is None


def _touches(task: Task, load: Task) -> bool:
    (written,) = load.writes
    return any(
        span.memory is written.memory and span.begin < written.end and written.begin < span.end
        for span in (*task.reads, *task.writes)
    )
