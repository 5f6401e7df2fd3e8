"""Which runs attacks against defences need: every attack, and none, under every defence, for each method and seed."""

from dataclasses import dataclass, replace
from pathlib import Path

from refprotofl.attacks.kinds import KINDS
from refprotofl.errors import InputError
from refprotofl.grids.cells import Cell, cell_of
from refprotofl.grids.choices import read_switches

NO_ATTACK = "none"


@dataclass(frozen=True)
class Place:
    """Where a run stands in the table."""

    method: str
    attack: str  # each as it was asked for, switches included
    defence: str

    @property
    def kind(self) -> str:
        return read_switches(self.attack)[0]


@dataclass(frozen=True)
class Planned:
    place: Place
    cell: Cell
    target: int | None  # of a trigger that is tried: after a backdoor and, for what it does by itself, after no attack


@dataclass(frozen=True)
class Asked:
    """An experiment, and what is varied of it."""

    file: Path | None
    preset: str | None
    settings: tuple[str, ...]
    methods: tuple[str, ...]
    attacks: tuple[str, ...]
    fraction: float
    defences: tuple[str, ...]
    seeds: tuple[int, ...]

    def cells(self, out: Path) -> list[Planned]:
        """Seed by seed, so that an interrupted grid is complete for its first ones; that of no attack goes first."""
        self._check()
        places = [
            Place(method, attack, defence)
            for method in self.methods
            for attack in dict.fromkeys((NO_ATTACK, *self.attacks))
            for defence in self.defences
        ]
        cells = [(place, self._cell(place, seed, out)) for seed in self.seeds for place in places]
        targets = {place: cell.experiment.attack.target for place, cell in cells if place.kind == "backdoor"}
        beside = next(iter(targets.values()), None)
        return [
            Planned(place, cell, targets.get(place, beside if place.kind == NO_ATTACK else None))
            for place, cell in cells
        ]

    def _cell(self, place: Place, seed: int, out: Path) -> Cell:
        kind, switches = read_switches(place.attack)
        rule, defended = read_switches(place.defence)
        hostile = [f'attack.kind="{kind}"', f"attack.fraction={self.fraction}", *switches] if kind != NO_ATTACK else []
        settings = [*self.settings, f'aggregate="{rule}"', *defended, *hostile]
        cell = cell_of(self.file, self.preset, settings, place.method, seed, out)
        return replace(cell, name=f"{place.method}, {place.attack}, {place.defence}")

    def _check(self) -> None:
        for option, chosen in (("--kind", self.attacks), ("--defence", self.defences), ("--methods", self.methods)):
            if not chosen or len(set(chosen)) < len(chosen):
                raise InputError(f"{option} names nothing, or something twice: {', '.join(chosen) or 'nothing'}.")
        unknown = [one for one in self.attacks if read_switches(one)[0] not in (NO_ATTACK, *KINDS)]
        if unknown:
            raise InputError(f"--kind {unknown[0]}: allowed are {', '.join(KINDS)}.")
