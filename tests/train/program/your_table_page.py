# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/data.md, "Your own table", as they stand there: your_table_page.py LOCKSTEP.

NumPy and PyTorch then make the predictions anew, from the table, the exported weights and the rules of the page.
"""

import csv
import pathlib
import random
import sys

import numpy
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import page
from program_round_trip import safetensors_of

DISTRICTS = ("south", "north", "east, far")
TARGETS = ("price", "rent")
MOST = 1e-6  # of the largest prediction


def write_table(path, columns, rows, seed):
    """Every seventh house has no age, every eleventh no district."""
    numbers = random.Random(seed)
    with open(path, "w", newline="") as file:
        table = csv.DictWriter(file, columns, extrasaction="ignore")
        table.writeheader()
        for i in range(rows):
            area, district = numbers.uniform(20, 200), numbers.choice(DISTRICTS)
            table.writerow({"id": 1000 + i, "area": f"{area:.2f}", "age": f"{numbers.uniform(0, 90):.1f}" if i % 7 else "NA",
                            "district": district if i % 11 else "", "rent": f"{12 * area:.2f}",
                            "price": f"{3e3 * area * (1 + DISTRICTS.index(district)):.0f}"})


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def features_of(table, trained):
    """One row of numbers for each of `table`, filled with the means of `trained`."""
    known = sorted(set(DISTRICTS))
    columns = []
    for name in ("area", "age"):
        mean = numpy.mean([numpy.float32(row[name]) for row in trained if row[name] != "NA"], dtype="f8")
        columns.append([numpy.float32(mean if row[name] == "NA" else row[name]) for row in table])
    having = [row["district"] for row in trained if row["district"]]
    for text in known:
        share = having.count(text) / len(having)
        columns.append([numpy.float32(row["district"] == text if row["district"] else share) for row in table])
    return numpy.array(columns, "f8").T


def predicted(rows, trained, weights):
    """In double precision; targets are scaled back by the table's own mean and deviation."""
    mine = features_of(trained, trained)
    x = torch.from_numpy((features_of(rows, trained) - mine.mean(0)) / mine.std(0))
    layers = sorted({name.rpartition(".")[0] for name in weights})
    for layer in layers:
        x = x @ weights[layer + ".weight"].T + weights[layer + ".bias"]
        x = x.relu() if layer != layers[-1] else x
    targets = numpy.array([[numpy.float32(row[name]) for name in TARGETS] for row in trained], "f8")
    return x.numpy() * targets.std(0) + targets.mean(0)


def make_data(_):
    write_table("houses.csv", ("id", "area", "age", "district", "price", "rent"), 240, 1)
    write_table("older.csv", ("rent", "price", "district", "area", "age"), 60, 2)
    write_table("new.csv", ("district", "id", "age", "area"), 40, 3)


def main():
    table = page.Page("data.md", sys.argv[1], short={},
                      proofs={"--missing mean": r"column 3 \('age'\): 35 of 240 cells have no value",
                              "lockstep data inspect": "district=north", "lockstep eval": "R2"})

    def difference():
        table.run("lockstep export runs/houses --out weights.safetensors")
        weights = {name: values.double() for name, values in safetensors_of("weights.safetensors").items()}
        theirs = numpy.array([[float(row[name]) for name in TARGETS] for row in rows_of("prices.csv")])
        ids = [row["id"] for row in rows_of("prices.csv")] == [row["id"] for row in rows_of("new.csv")]
        ours = predicted(rows_of("new.csv"), rows_of("houses.csv"), weights)
        return ids, numpy.max(numpy.abs(theirs - ours) / numpy.abs(ours).max(0))

    commands, (ids, apart) = table.follow(make_data, "Your own table", difference)
    print(f"your_table: {commands} commands of the page; predictions differ by {apart:.1e} from PyTorch's")
    return 0 if ids and apart < MOST else 1


if __name__ == "__main__":
    sys.exit(main())
