"""Allocation of scratchpad entries and of DRAM."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.lowering.scratchpads import Ring
from tilewright.compiler.memory_plan import Lifetime, plan_memory
from tilewright.isa.errors import CompileError
from tilewright.isa.memories import Memory
from tilewright.isa.presets import PRESETS

lifetimes = st.lists(
    st.tuples(st.integers(1, 900), st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=25
).map(
    lambda rows: [
        Lifetime(name=f"t{number}", size_bytes=size, first=first, last=first + length)
        for number, (size, first, length) in enumerate(rows)
    ]
)


@given(lifetimes)
def test_tensors_that_live_together_do_not_share_bytes(tensors: list[Lifetime]) -> None:
    plan = plan_memory(tensors, 64)
    owners: dict[tuple[int, int], str] = {}
    for tensor in tensors:
        offset = plan.offsets[tensor.name]
        assert offset % 64 == 0
        assert offset + tensor.size_bytes <= plan.size_bytes
        for when in range(tensor.first, tensor.last + 1):
            for byte in range(offset, offset + tensor.size_bytes):
                assert owners.setdefault((when, byte), tensor.name) == tensor.name


def test_memory_of_a_chain_is_reused() -> None:
    chain = [
        Lifetime(name=f"t{number}", size_bytes=1024, first=number, last=number + 1)
        for number in range(10)
    ]
    assert plan_memory(chain, 64).size_bytes == 2 * 1024


def test_a_ring_keeps_what_it_has_not_overwritten() -> None:
    ring = Ring(Memory.WGT, PRESETS["tiny"])
    first = ring.allocate("a", 24)
    second = ring.allocate("b", 24)
    assert (first.begin, second.begin) == (0, 24)
    assert ring.find("a") == first
    third = ring.allocate("c", 30)
    assert third.begin == 0
    assert ring.find("a") is None
    assert ring.find("b") is None
    assert ring.find("c") == third


def test_a_ring_spares_pinned_entries() -> None:
    ring = Ring(Memory.WGT, PRESETS["tiny"])
    pinned = ring.allocate("a", 10)
    ring.allocate("b", 50)
    assert ring.allocate("c", 20, (pinned,)).begin == 10


def test_what_does_not_fit_is_an_error() -> None:
    ring = Ring(Memory.WGT, PRESETS["tiny"])
    with pytest.raises(CompileError) as caught:
        ring.allocate("a", 65)
    assert str(caught.value) == "65 entries do not fit scratchpad wgt of 64 entries"
