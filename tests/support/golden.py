"""Comparison of printed text with golden files."""

from pathlib import Path


def check_golden(path: Path, text: str, *, update: bool) -> None:
    """Compare `text` with the file `path`, or write it there."""
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    assert path.is_file(), f"{path.name} is missing: run pytest with --update-golden"
    assert text + "\n" == path.read_text(), f"{path.name} differs: --update-golden renews it"
