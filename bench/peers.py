#!/usr/bin/env python3
"""Measure assay-engine and llama.cpp on the same checkpoints, turn by turn, and write the table.

usage: peers.py --engine ENGINE --llama DIR [--runs N] [--threads 1,2] [--json F] [--table F] MODEL_DIR...

DIR is what llamacpp/build.sh filled; a GGUF file of each checkpoint, in bf16, is made there once.  A run measures
every case with each engine, one after the other, so that both see the same machine; who begins changes from run to
run.  Both engines warm up in every turn, take the same token ids, and time the same thing: decode with the argmax but
without the prompt, prefill with the logits of its last token.  --json: records as `assay schema bench` prints them,
one a line.  Only the standard library is needed.
"""
import argparse
import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

DECODE_STEPS = 64
RUNS_LEAST = 5
# case -> (prompt, decode steps, metric of `assay-engine bench`)
CASES = {
    "decode after 13": (13, DECODE_STEPS, "decode"),
    "decode after 200": (200, DECODE_STEPS, "decode"),
    "prefill 512": (512, 0, "prefill"),
}
LLAMA_LINE = re.compile(r"(decode after \d+|prefill 512)\s+(\d+) threads?\s+([\d.]+) (ms/token|tokens/s)")


def run(*argv):
    done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"peers: {argv[0]} exited with {done.returncode}")
    return done.stdout


def measure_llama(llama, gguf, threads):
    """case -> tokens per second"""
    text = run(llama / "bin/bench", gguf, "-r", 1, "-n", DECODE_STEPS, "-t", threads)
    found = {}
    for case, count, value, unit in LLAMA_LINE.findall(text):
        if int(count) == threads:
            found[case] = float(value) if unit == "tokens/s" else 1e3 / float(value)
    if set(found) != set(CASES):
        sys.exit(f"peers: cannot read the output of {llama}/bin/bench")
    return found


def measure_engine(engine, model, threads, bandwidth):
    """case -> tokens per second; the rate at which decode would read at the full bandwidth goes to bandwidth[case, threads]"""
    found = {}
    for case, (prompt, decode, metric) in CASES.items():
        with tempfile.NamedTemporaryFile() as out:
            run(engine, "bench", "--model", model, "--prompt", prompt, "--decode", decode, "--runs", 1,
                *([] if decode else ["--no-bandwidth"]), "--arm", f"backend=cpu,threads={threads}", "--json", out.name)
            with open(out.name, encoding="utf-8") as lines:
                values = {r["metric"]["name"]: r["metric"]["value"] for r in map(json.loads, lines)}
        found[case] = values[metric]
        if decode:
            bandwidth.setdefault((case, threads), []).append(values[metric] / values["share of it"])
    return found


def forget(path):
    """Drop a file from the page cache, so that each engine brings its weights there in its own way."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def ratio_of(ours, theirs):
    """Ratio of speeds with its 95 % interval, by Student's t on the differences of the logarithms within a run; None: fewer
    than five runs carry none."""
    d = [math.log(a / b) for a, b in zip(ours, theirs)]
    if len(d) < RUNS_LEAST:
        return None
    mean, half = statistics.mean(d), student_quantile(len(d) - 1) * statistics.stdev(d) / math.sqrt(len(d))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def student_quantile(df):
    """0.975 of Student's t: bisection on Simpson's rule over its density."""
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)

    def above_zero(t, n=2000):
        f = [scale * (1 + (t * i / n) ** 2 / df) ** (-(df + 1) / 2) for i in range(n + 1)]
        return t / n / 3 * (f[0] + f[n] + 4 * sum(f[1:n:2]) + 2 * sum(f[2:n:2]))
    low, high = 0, 20
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if above_zero(middle) < 0.475 else (low, middle)
    return low


def record(model, case, threads, ours, theirs, version, git):
    prompt, decode, metric = CASES[case]
    value, peer, found = statistics.median(ours), statistics.median(theirs), ratio_of(ours, theirs)
    against = {"peer": "llama.cpp"}
    if found:
        against.update(version=version, same_box=True, value=peer, ratio=found[0], lower=found[1], upper=found[2], turns=len(ours))
    else:
        against["refused"] = f"{len(ours)} runs, fewer than {RUNS_LEAST}"
    ordered = sorted(ours)
    return {
        "schema": "assay/bench/1", "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "recipe": None, "leg": f"backend=cpu,threads={threads}", "verdict": None, "model": model,
        "shape": {"prompt": prompt, "decode": decode, "batch": 1},
        "box": {"gpu": None, "arch": None, "driver": None, "cpu": cpu_name()}, "git": git,
        "metric": {"name": metric, "unit": "tokens/s", "value": value, "p50": value,
                   "p90": ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))], "n": len(ours), "better": "larger"},
        "busy": None, "clocks": None,
        "against": against,
    }


def row(model, case, threads, ours, theirs, full):
    """full: tokens/s of decode at the whole of the read bandwidth, run by run; prefill has none."""
    def text(v):
        if "decode" in case:
            v = [1e3 / x for x in v]
        return f"{statistics.median(v):.4g} [{min(v):.4g}, {max(v):.4g}]"
    unit = "ms/token" if "decode" in case else "tokens/s"
    found = ratio_of(ours, theirs)
    ratio = "{:.2f} [{:.2f}, {:.2f}]".format(*found) if found else f"none: {len(ours)} runs, fewer than {RUNS_LEAST}"
    shares = " / ".join(f"{statistics.median(a / b for a, b in zip(v, full)):.2f}" for v in (ours, theirs)) if full else ""
    return f"| {model} | {case} | {threads} | {unit} | {text(ours)} | {text(theirs)} | {ratio} | {shares} |"


def main():
    ap = argparse.ArgumentParser(description="Measure assay-engine against llama.cpp.")
    ap.add_argument("models", nargs="+", type=Path)
    ap.add_argument("--engine", type=Path, required=True)
    ap.add_argument("--llama", type=Path, required=True)
    ap.add_argument("--runs", type=int, default=7)
    ap.add_argument("--threads", default="1,2")
    ap.add_argument("--json", type=Path)
    ap.add_argument("--table", type=Path)
    args = ap.parse_args()

    here = Path(__file__).resolve().parent
    version = json.loads((args.llama / "build.json").read_text())["llama_cpp_commit"]
    git = re.search(r"^git (\S+)", run(args.engine, "--version"), re.M).group(1)
    threads = [int(t) for t in args.threads.split(",")]
    records, rows = [], []
    for model in args.models:
        gguf = args.llama / f"{model.name}.gguf"
        if not gguf.exists():
            print(f"peers: converting {model.name}", file=sys.stderr)
            run(args.llama / "venv/bin/python", here / "llamacpp/hf_to_gguf.py", model, gguf, "--type", "bf16")
        for path in [gguf, *model.glob("*.safetensors")]:
            forget(path)
        ours = {(c, t): [] for c in CASES for t in threads}
        theirs = {(c, t): [] for c in CASES for t in threads}
        full = {}
        for i in range(args.runs):
            for t in threads:
                turns = [(ours, lambda: measure_engine(args.engine, model, t, full)),
                         (theirs, lambda: measure_llama(args.llama, gguf, t))]
                for into, measure in turns if i % 2 == 0 else reversed(turns):
                    for case, value in measure().items():
                        into[case, t].append(value)
            print(f"peers: {model.name}: run {i + 1} of {args.runs}", file=sys.stderr)
        for case in CASES:
            for t in threads:
                records.append(record(model.name, case, t, ours[case, t], theirs[case, t], version, git))
                rows.append(row(model.name, case, t, ours[case, t], theirs[case, t], full.get((case, t))))
    table = "\n".join(["| model | case | threads | unit | assay-engine | llama.cpp | ratio of speeds, 95 % "
                       "| share of read bandwidth |", "|---|---|---|---|---|---|---|---|"] + rows) + "\n"
    print(table, end="")
    if args.json:
        args.json.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    if args.table:
        head = (f"# assay-engine against llama.cpp\n\nWritten by `make bench-peers`: {cpu_name()}, llama.cpp {version[:9]} "
                f"(-march=native, OpenMP), bf16 weights in both,\nmedians of {args.runs} alternating runs with the least and "
                "the most. bench/README.md says what is timed. Share of read bandwidth: what\na step of decode must move (the used "
                "weights, the state read and written, the cached positions), at the speed of either\nengine, over the read bandwidth "
                "that `assay-engine bench` measured after the same run with as many threads.\nAn engine that moves the same bytes can be "
                "little more than 1 / s times as fast as one whose share is s.\n\n")
        args.table.write_text(head + table, encoding="utf-8")


if __name__ == "__main__":
    main()
