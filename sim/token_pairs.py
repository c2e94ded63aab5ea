"""Which instruction gives the token that another one takes."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tilewright.isa.instructions import AnyInstruction
from tilewright.isa.memories import Engine


class TokenPair(NamedTuple):
    """Positions of two instructions in the program."""

    giver: int
    taker: int


def token_pairs(instructions: Sequence[AnyInstruction]) -> tuple[TokenPair, ...]:
    """Pair the tokens of a legal program, ordered by taker and then by the giving engine.

    Each channel is a queue: the n-th token taken is the n-th token given.
    """
    givers: dict[tuple[Engine, Engine], deque[int]] = {
        (giver, taker): deque() for giver in Engine for taker in Engine
    }
    for position, instruction in enumerate(instructions):
        for taker in Engine:
            if instruction.engine is not None and instruction.signal >> taker & 1:
                givers[instruction.engine, taker].append(position)
    return tuple(
        TokenPair(givers[giver, instruction.engine].popleft(), position)
        for position, instruction in enumerate(instructions)
        if instruction.engine is not None
        for giver in Engine
        if instruction.wait >> giver & 1
    )
