"""The folder of compiled kernels: built once, bounded, and no obstacle where it is not writable."""

from pathlib import Path

from tilewright.cpu_gpu_backends.gpu.kernel_cache import KernelCache


class Compiler:
    """Stands for a compiler: counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> bytes:
        self.calls += 1
        return bytes(100)


def test_a_kernel_is_built_once(tmp_path: Path) -> None:
    cache, compiler = KernelCache(folder=tmp_path / "kernels"), Compiler()
    for _ in range(2):
        assert cache.get(("source", "options"), compiler) == bytes(100)
    assert compiler.calls == 1
    cache.get(("source", "other options"), compiler)
    assert compiler.calls == 2
    cache.forget(("source", "options"))
    cache.get(("source", "options"), compiler)
    assert compiler.calls == 3


def test_the_folder_holds_what_was_used_last(tmp_path: Path) -> None:
    cache, compiler = KernelCache(folder=tmp_path, most_bytes=250), Compiler()
    for name in ("a", "b", "a", "c", "a"):
        cache.get((name,), compiler)
    assert compiler.calls == 3
    cache.get(("b",), compiler)
    assert compiler.calls == 4
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 250


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache, compiler = KernelCache(folder=tmp_path / "file" / "kernels"), Compiler()
    for _ in range(2):
        assert cache.get(("source",), compiler) == bytes(100)
    assert compiler.calls == 2
