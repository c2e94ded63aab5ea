"""Tuned choices of the accelerator, as files of them hold them."""

from collections.abc import Mapping
from pathlib import Path

from tilewright.compiler.lowering.choices import Choice, Choices
from tilewright.compiler.tuning.records import machine_digest, restore_choice, store_choice
from tilewright.compiler.tuning.store import (
    DamagedRecord,
    KernelRecord,
    NetworkRecord,
    StoredChoice,
    TuningStore,
)
from tilewright.isa.config import AcceleratorConfig


class TuningCache:
    """What files of tuned choices hold for configurations; what is found goes to the last file.

    What is no choice of an accelerator counts as not there.
    """

    def __init__(self, *paths: Path) -> None:
        self._store = TuningStore(*paths)

    def choices(self, config: AcceleratorConfig) -> Choices:
        """Return all choices for a machine: those of networks that were tuned, and others."""
        machine = machine_digest(config)
        kernels = self._store.kernels(machine)
        return Choices(
            by_digest=_restored({name: record.worthwhile for name, record in kernels.items()}),
            networks={
                network: _restored(record.choices)
                for network, record in self._store.networks(machine).items()
            },
        )

    def alternatives(self, config: AcceleratorConfig, kernels: str) -> tuple[Choice, ...]:
        """Return all choices that were kept for some kernels, the best first."""
        record = self._store.record(machine_digest(config), kernels)
        if record is None:
            return ()
        try:
            return tuple(map(restore_choice, record.choices))
        except DamagedRecord:
            return ()

    def budget(self, config: AcceleratorConfig, kernels: str) -> int:
        """Return how many candidates the search for some kernels was allowed; 0 without one."""
        return self._store.budget(machine_digest(config), kernels)

    def add_kernels(
        self, config: AcceleratorConfig, kernels: str, choices: tuple[Choice, ...], budget: int
    ) -> None:
        """Keep what the search for some kernels has found: the best first, the estimate's last.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        self._store.add(
            KernelRecord(
                machine=machine_digest(config),
                kernels=kernels,
                choices=tuple(map(store_choice, choices)),
                budget=budget,
            )
        )

    def add_network(
        self, config: AcceleratorConfig, network: str, choices: Mapping[str, Choice]
    ) -> None:
        """Keep what suits the kernels of a network in their context, by their digest.

        Raises
        ------
        InputError
            If the file cannot be written.
        """
        self._store.add(
            NetworkRecord(
                machine=machine_digest(config),
                network=network,
                choices={digest: store_choice(choice) for digest, choice in choices.items()},
            )
        )


def _restored(choices: Mapping[str, StoredChoice]) -> dict[str, Choice]:
    restored = {}
    for digest, stored in choices.items():
        try:
            restored[digest] = restore_choice(stored)
        except DamagedRecord:
            continue
    return restored
