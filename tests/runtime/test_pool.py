"""Several machines as one: jobs are distributed, and repeated where a machine drops out."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

import tilewright as tw
from tilewright import demo
from tilewright.isa.config import AcceleratorConfig
from tilewright.isa.errors import ConfigError, DeadlockError, InputError, TilewrightError
from tilewright.isa.presets import TINY
from tilewright.isa.program import Program
from tilewright.runtime.board_access import BoardError
from tilewright.runtime.board_machine import MachineRun, Patch, Region, SimulatorMachine
from tilewright.runtime.devices import PoolDevice, parse_device
from tilewright.runtime.pool import PoolMachine, Source
from tilewright.runtime.remote_client import RemoteAddress, RemoteError, RemoteMachine
from tilewright.runtime.server import Server
from tilewright.sim.random_programs import random_program
from tilewright.sim.simulator import Progress

Opener = Callable[[], "Member"]


class Member:
    """A machine of a pool, for one configuration or all; its next runs may fail."""

    def __init__(self, name: str, config: AcceleratorConfig | None = None) -> None:
        self.description, self.config = name, config
        self.errors: list[TilewrightError] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.runs = self.running = self.most = self.closed = 0

    def run(
        self,
        program: Program,
        patches: Sequence[Patch],
        regions: Sequence[Region],
        progress: Progress | None = None,
    ) -> MachineRun:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            self.may_end.wait(10)
            self.runs += 1
            if self.errors:
                raise self.errors.pop(0)
            return MachineRun(regions=(), cycles=len(self.description))
        finally:
            self.running -= 1

    def check_registers(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


def pool_of(*members: Member, retry_seconds: float = 1e9) -> PoolMachine:
    def opener(member: Member) -> Opener:
        return lambda: member

    sources = [Source(name=member.description, open=opener(member)) for member in members]
    return PoolMachine(sources, retry_seconds=retry_seconds)


@pytest.fixture(scope="module")
def program() -> Program:
    return random_program(TINY, 1, size=6)


def test_jobs_run_on_all_machines_at_a_time(program: Program) -> None:
    members = [Member("a"), Member("bb"), Member("ccc")]
    for member in members:
        member.may_end.clear()
    with pool_of(*members) as pool, ThreadPoolExecutor(6) as workers:
        jobs = [workers.submit(pool.run, program, [], []) for _ in range(6)]
        end = time.monotonic() + 10
        while [member.running for member in members] != [1, 1, 1]:
            assert time.monotonic() < end
            time.sleep(0.001)
        for member in members:
            member.may_end.set()
        assert {job.result(10).cycles for job in jobs} <= {1, 2, 3}
    assert [member.most for member in members] == [1, 1, 1]
    assert sum(member.runs for member in members) == 6
    assert [member.closed for member in members] == [1, 1, 1]


@pytest.mark.parametrize("error", [RemoteError("gone"), BoardError("stands in flames")])
def test_a_machine_that_drops_out_is_told_of_and_its_job_repeated(
    program: Program, caplog: pytest.LogCaptureFixture, error: TilewrightError
) -> None:
    members = [Member("a"), Member("bb")]
    members[0].errors.append(error)
    with caplog.at_level(logging.WARNING), pool_of(*members) as pool:
        assert [pool.run(program, [], []).cycles for _ in range(3)] == [2, 2, 2]
    assert [record.getMessage() for record in caplog.records] == [
        f"a has dropped out of the pool: {error}"
    ]
    assert members[0].runs == 1


def test_a_machine_that_dropped_out_is_tried_again(program: Program) -> None:
    members = [Member("a"), Member("bb")]
    members[0].errors.append(RemoteError("gone"))
    with pool_of(*members, retry_seconds=0.0) as pool:
        pool.run(program, [], [])
        assert pool.run(program, [], []).cycles == 1


def test_an_error_of_the_job_is_not_repeated(program: Program) -> None:
    members = [Member("a"), Member("bb")]
    members[0].errors.append(DeadlockError("gemm waits for load"))
    with pool_of(*members) as pool:
        with pytest.raises(DeadlockError, match=r"^gemm waits for load$"):
            pool.run(program, [], [])
        assert pool.run(program, [], []).cycles == 1
    assert members[1].runs == 0


def test_the_last_machine_takes_the_pool_with_it(program: Program) -> None:
    members = [Member("a"), Member("bb")]
    for member in members:
        member.errors.append(RemoteError("no answer"))
    with pool_of(*members) as pool, pytest.raises(RemoteError) as caught:
        pool.run(program, [], [])
    assert str(caught.value) == "no machine of the pool is left: a: no answer; bb: no answer"


def test_a_program_goes_to_a_machine_of_its_configuration(program: Program) -> None:
    other = TINY.replace(queue_entries=8)
    with pool_of(Member("a", other), Member("bb", TINY)) as pool:
        assert pool.run(program, [], []).cycles == 2
    with pool_of(Member("a", other)) as pool, pytest.raises(ConfigError, match="queue_entries"):
        pool.run(program, [], [])


def test_what_a_pool_is_called() -> None:
    device = parse_device("tcp://a:1,tcp://b")
    assert device == PoolDevice(
        addresses=(RemoteAddress(host="a", port=1), RemoteAddress(host="b", port=7320))
    )
    assert device.value == "tcp://a:1,tcp://b:7320"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tcp://a,tcp://a:7320", "device 'tcp://a,tcp://a:7320' names a server twice"),
        ("tcp://a,sim", "a server's address must be tcp://host:port, not 'sim'"),
        ("tcp://a,", "a server's address must be tcp://host:port, not ''"),
    ],
)
def test_what_is_no_pool_is_refused(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_device(name)
    assert str(caught.value) == message


def test_a_self_test_is_of_one_device() -> None:
    with pytest.raises(InputError, match=r"^a self-test takes one device, not a pool$"):
        tw.selftest("tcp://a,tcp://b")


class Leaving(SimulatorMachine):
    """A simulator whose server goes away in the middle of a job, once it has done some."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.leave: Callable[[], None] | None = None

    def run(self, *arguments: object, **options: object) -> MachineRun:
        self.jobs -= 1
        if self.jobs < 0 and self.leave is not None:
            self.leave()
            time.sleep(0.05)
        return super().run(*arguments, **options)  # type: ignore[arg-type]


def test_inferences_go_on_when_a_server_dies(
    caplog: pytest.LogCaptureFixture, image: npt.NDArray[np.float32]
) -> None:
    compiled = tw.compile(demo.MODEL_PATH, config=TINY)
    images = [image * factor for factor in np.linspace(0.5, 1, 12, dtype=np.float32)]
    expected = compiled.run_many(images, "reference")
    leaving = Leaving(3)
    first, second, missing = Server(leaving), Server(SimulatorMachine()), Server(Leaving(0))
    leaving.leave = lambda: [c.shutdown(2) for c in list(first._connections)] and None
    missing.close()
    names = [RemoteAddress(host=s.address[0], port=s.address[1]).value for s in (first, second)]
    gone = RemoteAddress(host=missing.address[0], port=missing.address[1]).value
    with first, second, caplog.at_level(logging.WARNING):
        results = compiled.run_many(images, ",".join([*names, gone]))
    for result, reference in zip(results, expected, strict=True):
        for name, values in reference.outputs.items():
            np.testing.assert_array_equal(result.outputs[name], values)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith(f"{gone} has dropped out of the pool: cannot reach {gone}: ")
    assert lines[1].startswith(f"{names[0]} has dropped out of the pool: {names[0]}: ")


def test_a_server_in_front_of_a_pool_runs_as_many_jobs(program: Program) -> None:
    members = [Member("a"), Member("bb")]
    for member in members:
        member.may_end.clear()
    with pool_of(*members) as pool, Server(pool, parallel=2) as server:
        host, port = server.address

        def job(_: int) -> int:
            with RemoteMachine(RemoteAddress(host=host, port=port)) as client:
                return client.run(program, [], []).cycles

        with ThreadPoolExecutor(4) as workers:
            jobs = [workers.submit(job, number) for number in range(4)]
            end = time.monotonic() + 10
            while (server.jobs, [member.running for member in members]) != (4, [1, 1]):
                assert time.monotonic() < end
                time.sleep(0.001)
            for member in members:
                member.may_end.set()
            assert {item.result(10) for item in jobs} == {1, 2}
