"""A checker by trial: executes small programs under different timings and compares what they do.

It shares nothing with the validator but the instruction classes. Every access is an action of its
own; so are each dispatch, start and finish. A program is sound if, whatever is delayed, it comes to
its end, every instruction reads the same values, no counter exceeds its limit, nothing is read
before it is written, and gemm and vector come to each bank of `acc` in the same order. Delaying one
engine as long as anything else can go on, its starts or its finishes most, exposes every pair that
is not ordered.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.instructions import (
    AnyInstruction,
    Finish,
    Gemm,
    GemmUop,
    Load,
    Store,
    Vector,
    VectorOperation,
    VectorTarget,
    VectorUop,
)
from tilewright.isa.memories import Engine, Memory, memory_shape

#: DRAM is followed in units of this size.
UNIT_BYTES = 4

_KINDS = ("start", "effect", "finish")

Location = tuple[str, int]
Effect = tuple[str, Location]


class Unsound(Exception):
    """A timing in which the program does what it must not."""


def effects(
    instruction: AnyInstruction,
    config: AcceleratorConfig,
    gemm_uops: Sequence[GemmUop],
    vector_uops: Sequence[VectorUop],
) -> list[Effect]:
    """List the reads ("r") and writes ("w") of an instruction in order, one by one."""
    match instruction:
        case Load():
            return list(_load(instruction, config))
        case Gemm():
            return list(_gemm(instruction, config, gemm_uops))
        case Vector():
            return list(_vector(instruction, config, vector_uops))
        case Store():
            return list(_store(instruction, config))
        case Finish():
            return []


def is_sound(
    instructions: Sequence[AnyInstruction],
    config: AcceleratorConfig,
    gemm_uops: Sequence[GemmUop],
    vector_uops: Sequence[VectorUop],
    seed: int,
) -> bool:
    """Execute a program under many timings and say whether all is well."""
    rng = random.Random(seed)
    outcomes = set()
    try:
        lists = [effects(item, config, gemm_uops, vector_uops) for item in instructions]
        for last, kinds in itertools.product(Engine, (_KINDS, _KINDS[::-1])):
            outcomes.add(_Execution(instructions, lists, config).run(last, kinds, None))
        for _ in range(3):
            outcomes.add(_Execution(instructions, lists, config).run(None, _KINDS, rng))
    except Unsound:
        return False
    return len(outcomes) == 1


def _entry(memory: Memory, index: int, config: AcceleratorConfig) -> Location:
    if index >= memory_shape(memory, config).entries:
        raise Unsound
    return memory.name, index


def _dram(transfer: Load | Store, entry_bytes: int) -> list[list[Location]]:
    """Units of each entry, row by row."""
    result = []
    for plane, row, entry in itertools.product(
        range(transfer.planes), range(transfer.rows), range(transfer.entries)
    ):
        begin = (
            transfer.address
            + plane * transfer.plane_stride
            + row * transfer.row_stride
            + entry * entry_bytes
        )
        result.append([("DRAM", begin // UNIT_BYTES + i) for i in range(entry_bytes // UNIT_BYTES)])
    return result


def _load(load: Load, config: AcceleratorConfig) -> Iterator[Effect]:
    entry_bytes = memory_shape(load.memory, config).entry_bytes
    data = iter(_dram(load, entry_bytes))
    index = load.dst
    for _ in range(load.planes):
        for row in range(-load.pad_top, load.rows + load.pad_bottom):
            for column in range(-load.pad_left, load.entries + load.pad_right):
                if 0 <= row < load.rows and 0 <= column < load.entries:
                    yield from (("r", unit) for unit in next(data))
                yield "w", _entry(load.memory, index, config)
                index += 1


def _store(store: Store, config: AcceleratorConfig) -> Iterator[Effect]:
    entry_bytes = memory_shape(Memory.OUT, config).entry_bytes
    for index, units in enumerate(_dram(store, entry_bytes), store.src):
        yield "r", _entry(Memory.OUT, index, config)
        yield from (("w", unit) for unit in units)


def _gemm(gemm: Gemm, config: AcceleratorConfig, uops: Sequence[GemmUop]) -> Iterator[Effect]:
    for i in itertools.product(*(range(loop.extent) for loop in gemm.loops)):
        for number in range(gemm.uop_begin, gemm.uop_begin + gemm.uop_count):
            yield "r", _entry(Memory.GUOP, number, config)
            uop = uops[number]
            src = gemm.src + uop.src + sum(x.src * n for x, n in zip(gemm.loops, i, strict=True))
            wgt = gemm.wgt + uop.wgt + sum(x.wgt * n for x, n in zip(gemm.loops, i, strict=True))
            dst = gemm.dst + uop.dst + sum(x.dst * n for x, n in zip(gemm.loops, i, strict=True))
            yield "r", _entry(Memory.INP, src % (1 << config.inp_index_bits), config)
            yield "r", _entry(Memory.WGT, wgt % (1 << config.wgt_index_bits), config)
            acc = _entry(Memory.ACC, dst % (1 << config.acc_index_bits), config)
            if gemm.accumulate:
                yield "r", acc
            yield "w", acc


def _vector(
    vector: Vector, config: AcceleratorConfig, uops: Sequence[VectorUop]
) -> Iterator[Effect]:
    steps = []
    for i in itertools.product(*(range(loop.extent) for loop in vector.loops)):
        for number in range(vector.uop_begin, vector.uop_begin + vector.uop_count):
            yield "r", _entry(Memory.VUOP, number, config)
            uop = uops[number]
            pairs = list(zip(vector.loops, i, strict=True))
            steps.append(
                (
                    (vector.dst + uop.dst + sum(x.dst * n for x, n in pairs))
                    % (1 << config.result_index_bits),
                    (vector.src + uop.src + sum(x.src * n for x, n in pairs))
                    % (1 << config.operand_bits),
                    (vector.coef + uop.coef + sum(x.coef * n for x, n in pairs))
                    % (1 << config.coef_index_bits),
                    (vector.prm + sum(x.prm * n for x, n in pairs)) % (1 << config.prm_index_bits),
                )
            )
    target = Memory.OUT if vector.target is VectorTarget.OUT else Memory.ACC
    base = config.acc_operand_base
    written: set[Location] = set()
    for position, (dst, src, coef, prm) in enumerate(steps):
        operand = _entry(
            Memory.ACC if src >= base else Memory.VEC, src - base * (src >= base), config
        )
        if operand in written:
            raise Unsound
        yield "r", operand
        if vector.operation is VectorOperation.MAC:
            yield "r", _entry(Memory.COEF, coef, config)
        if position + 1 == len(steps) or steps[position + 1][0] != dst:
            if vector.requantise:
                yield "r", _entry(Memory.PRM, prm, config)
            if vector.lookup:
                yield "r", _entry(Memory.LUT, vector.lut, config)
            result = _entry(target, dst, config)
            written.add(result)
            yield "w", result


@dataclass
class _EngineState:
    queued: list[int] = field(default_factory=list)
    started: int = 0
    finished: int = 0
    effect: int = 0


class _Execution:
    """One execution, action by action."""

    def __init__(
        self,
        instructions: Sequence[AnyInstruction],
        effect_lists: Sequence[list[Effect]],
        config: AcceleratorConfig,
    ) -> None:
        self._instructions = instructions
        self._effects = effect_lists
        self._config = config
        self._engines = {engine: _EngineState() for engine in Engine}
        self._tokens = dict.fromkeys(itertools.product(Engine, Engine), 0)
        self._dispatched = 0
        self._values: dict[Location, int] = {}
        self._digests = [hash((i,)) for i in range(len(instructions))]
        self._bank_order: dict[int, list[int]] = {0: [], 1: []}

    def run(self, last: Engine | None, kinds: Sequence[str], rng: random.Random | None) -> object:
        """Execute to the end, one engine delayed as long as possible, or at random.

        Of several actions that are possible the first of `kinds` is taken.
        """
        while True:
            actions = [
                (engine, kind) for kind in kinds for engine in Engine if self._enabled(engine, kind)
            ]
            can_dispatch = self._can_dispatch()
            if not actions and not can_dispatch:
                break
            if can_dispatch and (rng is None or not actions or rng.random() < 0.5):
                self._dispatch()
            elif rng is not None:
                self._act(*rng.choice(actions))
            else:
                self._act(*min(actions, key=lambda action: action[0] is last))
        done = all(item.finished == len(item.queued) for item in self._engines.values())
        if not done or self._dispatched < len(self._instructions) or any(self._tokens.values()):
            raise Unsound
        return (
            tuple(self._digests),
            tuple(sorted(item for item in self._values.items() if item[0][0] == "DRAM")),
            tuple(map(tuple, self._bank_order.values())),
        )

    def _can_dispatch(self) -> bool:
        if self._dispatched == len(self._instructions):
            return False
        engine = self._instructions[self._dispatched].engine
        if engine is None:
            return True
        state = self._engines[engine]
        return len(state.queued) - state.started < self._config.queue_entries

    def _dispatch(self) -> None:
        engine = self._instructions[self._dispatched].engine
        if engine is not None:
            self._engines[engine].queued.append(self._dispatched)
        self._dispatched += 1

    def _enabled(self, engine: Engine, kind: str) -> bool:
        state = self._engines[engine]
        if kind == "start":
            if state.started == len(state.queued):
                return False
            wait = self._instructions[state.queued[state.started]].wait
            return all(self._tokens[giver, engine] for giver in Engine if wait >> giver & 1)
        if state.finished == state.started:
            return False
        left = state.effect < len(self._effects[state.queued[state.finished]])
        return left if kind == "effect" else not left

    def _act(self, engine: Engine, kind: str) -> None:
        state = self._engines[engine]
        if kind == "start":
            position = state.queued[state.started]
            for giver in Engine:
                if self._instructions[position].wait >> giver & 1:
                    self._tokens[giver, engine] -= 1
            state.started += 1
            return
        position = state.queued[state.finished]
        if kind == "effect":
            self._apply(position, *self._effects[position][state.effect])
            state.effect += 1
            return
        for taker in Engine:
            if self._instructions[position].signal >> taker & 1:
                self._tokens[engine, taker] += 1
                if self._tokens[engine, taker] > self._config.token_limit:
                    raise Unsound
        state.finished += 1
        state.effect = 0

    def _apply(self, position: int, kind: str, location: Location) -> None:
        if kind == "r":
            if location not in self._values and location[0] != "DRAM":
                raise Unsound
            value = self._values.get(location, 0)
            self._digests[position] = hash((self._digests[position], value))
        else:
            self._values[location] = self._digests[position]
        if location[0] == "ACC":
            order = self._bank_order[location[1] // self._config.acc_bank_entries]
            if order[-1:] != [position]:
                order.append(position)
