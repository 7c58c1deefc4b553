"""``python -m simulation``: the table, the plots, and the verdict of the gates."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import click

from simulation.campaign import SEEDS, run
from simulation.gates import judge
from simulation.plots import page
from simulation.png import draw
from simulation.table import by_scaler, by_shape, gates_list

BLOCK = re.compile(r"(<!-- simulation -->\n).*?(<!-- /simulation -->)", re.DOTALL)


@click.command()
@click.option("--shape", "shapes", multiple=True, help="Only this one; may be repeated.")
@click.option("--seed", "seeds", multiple=True, type=int, help="Instead of 1, 2 and 3.")
@click.option("--jobs", default=os.cpu_count() or 1, help="Processes; one for each core.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("build/simulation"),
    show_default=True,
    help="Where the plots go.",
)
@click.option(
    "--write",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Also put the tables into this page.",
)
def main(
    shapes: tuple[str, ...], seeds: tuple[int, ...], jobs: int, out: Path, write: Path | None
) -> None:
    """Simulate the operator beside KEDA and the HPA; exit code 1 when a gate fails."""
    began = time.monotonic()
    try:
        results = run(shapes, seeds or SEEDS, jobs=jobs)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--shape") from None
    gates = judge(results)
    report = "\n\n".join((by_shape(results), by_scaler(results), gates_list(gates)))
    click.echo(f"Late messages / replica-hours / reversals / failed calls, means.\n\n{report}\n")
    out.mkdir(parents=True, exist_ok=True)
    (out / "index.html").write_text(page(results, report), encoding="utf-8")
    drawn = draw(results, out / "simulation.png")
    click.echo(f"{time.monotonic() - began:.0f} s; plots in {out / 'index.html'}")
    if not drawn:
        click.echo("no PNG: matplotlib is not installed")
    if write is not None:
        text = write.read_text(encoding="utf-8")
        write.write_text(
            BLOCK.sub(lambda found: f"{found[1]}{report}\n{found[2]}", text), encoding="utf-8"
        )
    if not all(gate.holds for gate in gates):
        sys.exit(1)


if __name__ == "__main__":
    main()
