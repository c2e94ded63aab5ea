"""The page on the hardware lists the units and the registers that there are."""

import re
from pathlib import Path

from tilewright.isa.memories import Engine
from tilewright.isa.registers import EngineRegister, Register, engine_base


def test_every_file_is_listed(repository: Path) -> None:
    page = (repository / "docs" / "hardware.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+\.py)`", page))
    helpers = {"__init__.py", "axi.py", "component.py", "pipeline.py"}
    assert {path.name for path in (repository / "hw").glob("*.py")} - helpers <= listed


def test_register_map(repository: Path) -> None:
    page = (repository / "docs" / "hardware.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (0x[^|]*) \| `(\w+)` \|$", page, re.MULTILINE)
    first, second = (engine_base(engine) for engine in list(Engine)[:2])
    base = f"0x{first:03x} + 0x{second - first:02x} x engine"
    expected = [(f"0x{register:03x}", register.name) for register in Register]
    expected += [(f"{base} + 0x{register:02x}", register.name) for register in EngineRegister]
    assert rows == expected
