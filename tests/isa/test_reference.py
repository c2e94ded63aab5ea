"""The reference page says what the encoder does, and the one in `docs/` is current."""

from pathlib import Path

import pytest

from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.encoding import layout
from tilewright.isa.instructions import INSTRUCTION_CLASSES, GemmUop, VectorUop
from tilewright.isa.memories import Memory
from tilewright.isa.presets import PRESETS
from tilewright.isa.reference import reference_page


def test_the_page_in_docs_is_current(repository: Path) -> None:
    page = (repository / "docs" / "isa.md").read_text(encoding="utf-8")
    assert page == reference_page(PRESETS["pynq"]), "renew it: tilewright isa > docs/isa.md"


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_every_field_stands_at_its_bits(config: AcceleratorConfig) -> None:
    page = reference_page(config)
    sections = page.split("\n### ")
    headings = {cls: opcode.name.lower() for opcode, cls in INSTRUCTION_CLASSES.items()}
    headings |= {GemmUop: "micro-op of gemm", VectorUop: "micro-op of vector"}
    for cls, heading in headings.items():
        (section,) = [item for item in sections if item.startswith(f"{heading}\n")]
        rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
        assert len(rows) == len(layout(cls, config))
        for row, item in zip(rows, layout(cls, config), strict=True):
            high, low = map(int, row[0].removeprefix("| ").split(":"))
            assert (low, high - low + 1) == (item.position, item.width)
            assert row[1] == f"`{item.field.path}`"
            assert row[5] == f"{item.field.operand.meaning} |"


def test_every_row_has_a_meaning() -> None:
    page = reference_page(PRESETS["tiny"])
    tables = page.replace("## Engines", "## Scratchpads").split("## Scratchpads")
    rows = [line for part in (tables[0], tables[2]) for line in part.splitlines() if "|" in line]
    assert len(rows) > 100
    assert not [row for row in rows if row.endswith("|  |")]
    assert all(f" | {memory.name.lower()} | " in tables[2] for memory in Memory)
