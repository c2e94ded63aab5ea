"""What an engine's counters hold at the end of a run, from the simulator's time line."""

from tilewright.isa.memories import Engine
from tilewright.sim.timeline import Timeline


def engine_counts(timeline: Timeline, engine: Engine) -> dict[str, int]:
    """Counters by the names of `EngineCounters`."""
    account = timeline.account(engine)
    count = int((timeline.engine == engine).sum())
    return {
        "started": count,
        "finished": count,
        "busy": account.busy,
        "memory_wait": account.memory_wait,
        "token_wait": sum(account.token_wait),
        "fetch_wait": account.fetch_wait,
        "drain": account.drain,
    }
