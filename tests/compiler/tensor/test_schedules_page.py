"""What `docs/schedules.md` prints is what its Python blocks print today."""

import contextlib
import io
import re
from pathlib import Path

BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def render(page: str) -> str:
    """Run the Python blocks in order and put what each prints into the text block after it."""
    namespace: dict[str, object] = {}

    def replaced(match: re.Match[str]) -> str:
        code, shown = match.groups()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "docs/schedules.md", "exec"), namespace)
        text = printed.getvalue()
        assert (shown is not None) == bool(text), f"no block for what this prints:\n{code}"
        return f"```python\n{code}```" + (f"\n\n```text\n{text}```" if text else "")

    return BLOCK.sub(replaced, page)


def test_every_printed_block_of_the_page_is_current(repository: Path, update_golden: bool) -> None:
    path = repository / "docs" / "schedules.md"
    page = path.read_text(encoding="utf-8")
    rendered = render(page)
    if update_golden:
        path.write_text(rendered, encoding="utf-8")
    assert rendered == path.read_text(encoding="utf-8"), "renew it with --update-golden"
