"""The runs that studies need, each once, and what came of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from refprotofl.grids.cells import Cell, cell_of
from refprotofl.grids.choices import read_switches
from refprotofl.grids.results import Result
from refprotofl.grids.running import Done
from refprotofl.reproduction.studies import Block, Row, Study

Tuned = Mapping[str, Mapping[str, Sequence[str]]]  # settings by data set, then by method as it was asked for


@dataclass(frozen=True)
class Grid:
    """`tuned` has a say in the standard variant alone: the reconstruction is as the paper has it."""

    studies: tuple[Study, ...]
    preset: str
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    out: Path
    tuned: Tuned = field(default_factory=dict)

    def cells(self) -> list[Cell]:
        """Seed by seed, so that an interrupted grid is complete for its first seeds."""
        found: dict[str, Cell] = {}
        for seed in self.seeds:
            for study in self.studies:
                for block in study.blocks:
                    for row in block.rows:
                        cell = self.cell(study, block, row, seed)
                        found.setdefault(cell.experiment.hash, cell)
        return list(found.values())

    def cell(self, study: Study, block: Block, row: Row, seed: int) -> Cell:
        own = [f'dataset="{block.dataset}"', f"alpha={block.alpha:g}", *self.settings, *block.settings]
        cell = cell_of(None, self.preset, [*own, *self.tuned_of(study, block, row)], row.asked, seed, self.out / "runs")
        return replace(cell, name=f"{block.label}: {row.label}")

    def tuned_of(self, study: Study, block: Block, row: Row) -> Sequence[str]:
        """What a search chose for the method: the entry that has most of the row's switches and no others."""
        if study.variant != "standard":
            return ()
        method, switches = read_switches(row.asked)
        fits = {}
        for name, settings in self.tuned.get(block.dataset, {}).items():
            known, needed = read_switches(name)
            if known == method and {*needed} <= {*switches}:
                fits[len(needed)] = settings
        return fits[max(fits)] if fits else ()

    def done(self, study: Study, block: Block, results: Mapping[str, Result]) -> Iterator[Done]:
        """The finished runs of a block, under their rows' labels."""
        for row in block.rows:
            for seed in self.seeds:
                cell = self.cell(study, block, row, seed)
                result = results.get(cell.experiment.hash)
                if result is not None:
                    yield replace(cell, name=row.label), result
