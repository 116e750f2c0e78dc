"""Writes the results into the documents: drawings as SVG, and the tables of docs/papers/lightshaper.md."""

import importlib
import os
import re

import results

PAGE = "docs/papers/lightshaper.md"
IMAGES = "docs/images"


def block(result):
    """Returns the text between the markers of an experiment."""
    where = result["machine"]
    lines = [results.markdown(result), ""]
    lines += [f"- {definition}" for definition in result["definitions"]]
    lines += [f"- **Note:** {note}" for note in result["notes"]]
    lines += ["", f"{result['date'][:16].replace('T', ' ')} UTC, {where['cpus']} CPUs ({where['cpu']}), Linux {where['kernel']}, "
              f"{where['netlathe']} at {where['commit']}; {where['busy_cpus']} CPUs busy before the run, {result['took_s']} s."]
    return "\n".join(lines)


def filled(page, name, text):
    """The page with the text between `<!-- NAME -->` and `<!-- /NAME -->`."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if begin not in page or end not in page:
        raise ValueError(f"{PAGE} has no place for {name}")
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{text}\n{end}", page, flags=re.DOTALL)


def contents(root, folder, experiments):
    """Returns the expected content of each document, by path, from the available results."""
    with open(os.path.join(root, PAGE), encoding="utf-8") as file:
        page = file.read()
    wanted = {}
    for name in experiments:
        if not os.path.exists(results.path(folder, name)):
            continue
        result = results.load(folder, name)
        page = filled(page, name, block(result))
        experiment = importlib.import_module(name)
        if hasattr(experiment, "drawing") and result["series"]:
            wanted[f"{IMAGES}/lightshaper-{name}.svg"] = experiment.drawing(result)
    return {**wanted, PAGE: page}


def stale(root, folder, experiments):
    """The documents that differ from the results."""
    differ = []
    for path, wanted in contents(root, folder, experiments).items():
        whole = os.path.join(root, path)
        if not os.path.exists(whole) or open(whole, encoding="utf-8").read() != wanted:
            differ.append(path)
    return differ


def write(root, folder, experiments):
    """Updates drawings and tables from the results."""
    for path, wanted in contents(root, folder, experiments).items():
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(wanted)
