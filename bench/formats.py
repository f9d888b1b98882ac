#!/usr/bin/env python3
"""Decode of one shape in bf16, FP8 and NVFP4, and at each dispatch level, turn by turn.

usage: formats.py --engine ENGINE [--threads 1,2] [--runs N] [--table F]

The weights of a format are fewer bytes, and decode is bound by bytes: the first table holds the gain in time against the
gain in bytes that a step moves (weights of the experts that a token uses, and the state).  Random weights, made in
memory from bench/shapes.  The order changes from run to run; medians with the least and the most.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from peers import cpu_name

SHAPES = {"bf16": "book52-wide", "FP8": "book52-wide-fp8", "NVFP4": "book52-wide-nvfp4"}
PROMPT, STEPS, PREFILL = 13, 48, 512
HEAD = """# Decode by weight format and by dispatch level

Written by `make bench-formats`: {cpu}, medians of {runs} alternating runs of {steps} decode steps with the least and the most.

Formats: the billion random weights of bench/shapes, backend cpu at its best level. MB/step: weights of the experts that a token
uses, and the state, read and written. Gain: what the format saves against bf16, as a ratio less one; its last column is the
gain in time over the gain in bytes, 1 where decode is bound by memory alone.

Levels: the bundled book52-nvfp4; prefill is {prefill} tokens in one piece.

"""


def bench(engine, *argv):
    """metric name -> value; and the bytes of a step"""
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run([engine, "bench", "--runs", "1", "--json", out.name, *map(str, argv)],
                              stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"formats: {engine} exited with {done.returncode}")
        with open(out.name, encoding="utf-8") as lines:
            return {r["metric"]["name"]: r["metric"]["value"] for r in map(json.loads, lines)}


def step(engine, here, fmt, threads):
    """ms of a decode step, MB that it moves, its share of the read bandwidth"""
    m = bench(engine, "--shape", here / f"shapes/{SHAPES[fmt]}.json", "--prompt", PROMPT, "--decode", STEPS, "--arm",
              f"backend=cpu,threads={threads}")
    return m["decode step"], 1e3 * m["weights and state"] / m["decode"], m["share of it"]


def level(engine, here, name, threads):
    """ms of a decode step, tokens/s of prefill, of the checkpoint in bench/README.md"""
    arm = f"backend=cpu,threads={threads}"
    m = bench(engine, "--model", here.parent / "oracle-goldens/models/book52-nvfp4", "--prompt", PREFILL, "--decode",
              STEPS, "--level", name, "--no-bandwidth", "--arm", arm)
    return m["decode step"], m["prefill"]


def text(values):
    return f"{statistics.median(values):.4g} [{min(values):.4g}, {max(values):.4g}]"


def turns(keys, runs, measure):
    found = {k: [] for k in keys}
    for i in range(runs):
        for k in keys if i % 2 == 0 else reversed(keys):
            found[k].append(measure(k))
    return {k: list(zip(*v)) for k, v in found.items()}


def format_rows(engine, here, threads, runs):
    found = turns(list(SHAPES), runs, lambda f: step(engine, here, f, threads))
    wide, wide_mb = (statistics.median(found["bf16"][i]) for i in (0, 1))
    for fmt, (ms, mb, share) in found.items():
        row = f"| {fmt} | {threads} | {text(ms)} | {statistics.median(mb):.0f} | {statistics.median(share):.2f} |"
        if fmt == "bf16":
            yield row + " | | |"
            continue
        gain, bytes_gain = wide / statistics.median(ms) - 1, wide_mb / statistics.median(mb) - 1
        yield row + f" {gain:.2f} | {bytes_gain:.2f} | {gain / bytes_gain:.2f} |"


def levels_here(engine):
    version = subprocess.run([engine, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    cells = {"avx2": "avx2", "avx512": "avx512", "avx512bf16": "avx512_bf16"}
    return ["portable"] + [name for name, cell in cells.items() if f"feature {cell}: enabled" in version]


def main():
    ap = argparse.ArgumentParser(description="Decode by weight format and by dispatch level.")
    ap.add_argument("--engine", required=True)
    ap.add_argument("--threads", default="1,2")
    ap.add_argument("--runs", type=int, default=7)
    ap.add_argument("--table", type=Path)
    args = ap.parse_args()
    here = Path(__file__).resolve().parent
    threads = list(dict.fromkeys(int(t) for t in args.threads.split(",")))

    out = ["| weights | threads | ms/step | MB/step | share of read bandwidth | gain in time | gain in bytes | share |",
           "|---|---|---|---|---|---|---|---|"]
    for t in threads:
        out += format_rows(args.engine, here, t, args.runs)
    out += ["", "| level | threads | decode, ms/step | prefill, tokens/s |", "|---|---|---|---|"]
    for t in threads:
        names = levels_here(args.engine)
        for name, (ms, speed) in turns(names, args.runs, lambda n, t=t: level(args.engine, here, n, t)).items():
            out.append(f"| {name} | {t} | {text(ms)} | {text(speed)} |")
    table = "\n".join(out) + "\n"
    print(table, end="")
    if args.table:
        args.table.write_text(HEAD.format(cpu=cpu_name(), runs=args.runs, steps=STEPS, prefill=PREFILL) + table, encoding="utf-8")


if __name__ == "__main__":
    main()
