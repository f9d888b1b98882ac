#!/usr/bin/env python3
"""Writes run directories of any size for the tests of what `assay report` makes.

  page_cases.py DIR [--prompts N] [--steps N] [--legs N] [--nasty] [--seed N]

Synthetic and seeded: an oracle profile or a leg is a table of logits plus noise; legs differ in `threads`.  --nasty: tokens and
prompts that hold markup, NUL, invalid UTF-8 and direction marks, with a tokenizer to show them.
"""
import argparse
import hashlib
import json
import math
import os
import random

COUNTERS = ("state_update_rows conv_update_rows chunk_scan_calls conv_fwd_calls gathers scatters reference_tier w8a8_calls w8a16_calls "
            "w4a4_calls w4a16_calls bf16_calls state_resets kernel_launches graph_replays allocs_after_open").split()
FACTORS = {"backend": "cpu", "place.mamba": "backend", "place.attn": "backend", "place.moe": "backend", "place.mlp": "backend",
           "mamba.decode": "step", "mamba.prefill": "chunk", "mamba.proj": "w8a8", "mamba.state": "fp32", "moe.experts": "w4a16",
           "attn.kv": "bf16", "compute": "bf16", "head": "fp32", "batch": 1, "prefill_chunk": 0, "slots": "clean", "graph": "off",
           "threads": 1, "at": None}
MAMBA = 4
NASTY = ["<script>document.title='owned'</script>", "</script><img src=x onerror=\"document.title='owned'\">", "\u202eevil\u202c", "\u0000", "\u200b",
         "&amp;]]>", "`code` | [x](http://x) @all *b*", "::error::owned", "\u05e9\u05dc\u05d5\u05dd", "%0A::error::owned", "line\nbreak", "\x1b[31mred"]
BYTES = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else None for b in range(256)]


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def byte_alphabet():
    """Byte-level BPE writes every byte as one visible character."""
    spare, out = 0, []
    for c in BYTES:
        if c is None:
            c, spare = chr(256 + spare), spare + 1
        out.append(c)
    return out


def tokenizer():
    alphabet = byte_alphabet()
    added = [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
             for i, text in enumerate(t for t in NASTY if "\0" not in t)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {c: i for i, c in enumerate(alphabet)}, "merges": []}}


class Oracle:
    """Per position four candidate ids and their logits."""

    def __init__(self, r, prompts, steps, vocabulary):
        self.r, self.prompts, self.steps = r, prompts, steps
        self.ids = [[r.sample(vocabulary, 4) for _ in range(steps)] for _ in range(prompts)]
        self.z = [[[20.0, 20.0 - r.expovariate(.5), 16.0 - r.random(), 14.0 - r.random()] for _ in range(steps)] for _ in range(prompts)]

    def row(self, p, noise, base=None):
        """[(id, [[id, logit]...])] of one prompt; after a fork from base it is about another text."""
        out, forked = [], False
        for t in range(self.steps):
            z = [x + noise * self.r.gauss(0, 1) for x in self.z[p][t]]
            if forked:
                self.r.shuffle(z)
            top = sorted(([i, round(x, 4)] for i, x in zip(self.ids[p][t], z)), key=lambda c: (-c[1], c[0]))
            out.append((top[0][0], top))
            forked = forked or (base is not None and top[0][0] != base[t])
        return out


def logsum(top):
    return top[0][1] + math.log(sum(math.exp(x - top[0][1]) for _, x in top)) + 1e-3


def counts(nd, np_):
    c = dict.fromkeys(COUNTERS, 0)
    if np_:
        c.update(chunk_scan_calls=MAMBA, conv_fwd_calls=MAMBA, state_resets=np_)
    else:
        c.update(state_update_rows=MAMBA * nd, conv_update_rows=MAMBA * nd)
    return c


def mode(oracle, ids, noise, base, forced):
    rows, trace = [], []
    for p in range(oracle.prompts):
        steps = []
        row = oracle.row(p, noise, None if forced else base[p])
        for t, (i, top) in enumerate(row):
            s = {"id": i, "margin": round(top[0][1] - top[1][1], 4), "lse": round(logsum(top), 4), "top": top}
            if forced:
                rank = [k for k, _ in top].index(base[p][t])
                s["given"] = [base[p][t], top[rank][1], rank + 1]
            steps.append(s)
        rows.append({"id": f"p{p}", "prompt_ids": ids[p], "ids": [i for i, _ in row], "text": "", "wall_s": 0.1, "steps": steps})
        trace.append({"step": len(trace), "T": len(ids[p]), "nd": 0, "np": 1, **counts(0, 1)})
    for _ in range(oracle.steps - 1):
        n = oracle.prompts
        trace.append({"step": len(trace), "T": n, "nd": n, "np": 0, **counts(n, 0)})
    return {"prompts": rows, "counters_total": {c: sum(t[c] for t in trace) for c in COUNTERS}, "trace": trace}


def dump(path, doc):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(doc, f, ensure_ascii=False, separators=(",", ":"))


def profile(oracle, name, noise, base):
    rows = []
    for p in range(oracle.prompts):
        row = oracle.row(p, noise, base and base[p])
        rows.append({"id": f"p{p}", "ids": [i for i, _ in row], "text": "",
                     "steps": [{"id": i, "top": [[k, round(x - logsum(top), 4)] for k, x in top]} for i, top in row]})
    return {"name": name, "engine": {"name": "synthetic", "version": "1", "config": {}}, "device": "none", "logits_dtype": "fp32",
            "captured": "2026-12-01", "command": "page_cases.py", "repeats": 2, "repeats_agree": True, "mode": "free", "prompts": rows}


def write(out, prompts=3, steps=8, legs=1, nasty=False, seed=1, noise=0.03):
    r = random.Random(seed)
    os.makedirs(f"{out}/legs", exist_ok=True)
    vocabulary = [0, 65, 66, 128, 255, *range(256, 256 + len(NASTY) - 1)] if nasty else range(65000)
    oracle = Oracle(r, prompts, steps, list(vocabulary) if nasty else vocabulary)
    ids = [[r.choice(list(vocabulary)) if nasty else r.randrange(65000) for _ in range(5)] for _ in range(prompts)]
    base = profile(oracle, "base", noise, None)
    rows = [row["ids"] for row in base["prompts"]]
    texts = [t for t in NASTY if "\0" not in t] if nasty else ["A prompt of a synthetic oracle"]
    golden = {"schema": "assay/golden/1", "name": "synthetic", "model": {"name": "synthetic", "files": {}}, "tokenizer_sha256": sha("t"),
              "sampling": {"temperature": 0, "max_tokens": steps, "ignore_eos": True},
              "prompts": [{"id": f"p{p}", "text": texts[p % len(texts)], "ids": ids[p]} for p in range(prompts)],
              "profiles": [base, profile(oracle, "eager", noise, rows), profile(oracle, "batch", noise, rows)]}
    dump(f"{out}/golden.json", golden)
    with open(f"{out}/golden.json", "rb") as f:
        golden_sha = hashlib.sha256(f.read()).hexdigest()
    if nasty:
        dump(f"{out}/tokenizer.json", tokenizer())
    names = [f"leg{i}" for i in range(legs)]
    question = "Does </script><b>this</b> \\u202edo harm?" if nasty else "How large is the page?"
    with open(f"{out}/recipe.yaml", "w", encoding="utf-8") as f:
        f.write(f"schema: assay/recipe/1\nname: synthetic\nkind: gate\nquestion: \"{question}\"\nmodel: none\ngolden: golden.json\nsteps: {steps}\n"
                f"modes: [free, forced]\nbase: {{backend: cpu, batch: {prompts}}}\nlegs:\n" + "".join(f"  {n}: {{threads: {i + 1}}}\n" for i, n in enumerate(names)) +
                "require:\n" + "".join(f"  {n}: {{decode_step: {{state_update_rows: mamba*nd, gathers: 0}}, total: {{reference_tier: 0}}}}\n" for n in names))
    for i, name in enumerate(names):
        factors = {**FACTORS, "threads": i + 1, "batch": prompts}
        dump(f"{out}/legs/{name}.json", {
            "schema": "assay/report/1", "leg": name, "requested": factors, "effective": factors,
            "engine": {"name": "assay-engine", "version": "1", "git": "0" * 40, "dirty": False, "binary_sha256": sha("e"), "flags": "-O2", "features": {}},
            "host": {"name": "box", "cpu": "generic", "cores": 2, "memory": 1, "kernel": "6", "gpu": None, "arch": None, "driver": None, "cuda": None},
            "model": {"name": "synthetic", "files": {}, "config": {}, "blocks": {"mamba": MAMBA, "attn": 1, "moe": 3, "mlp": 0, "layers": 8}},
            "golden_sha256": golden_sha, "modes": {"free": mode(oracle, ids, noise, rows, False), "forced": mode(oracle, ids, noise, rows, True)},
            "timing": {"load_s": .1, "prefill_s": .1, "decode_s": 1.0, "per_token_ms": {"p50": 2.0, "p90": 2.5, "p99": 3.0, "n": prompts * steps}},
            "busy": None, "peak_rss_bytes": 1, "peak_device_bytes": 0})
        dump(f"{out}/legs/{name}.exit.json", {"schema": "assay/exit/1", "leg": name, "argv": ["assay-engine"], "started": "2026-12-01T00:00:00Z",
             "ended": "2026-12-01T00:00:02Z", "exit_code": 0, "signal": None, "timed_out": False, "stderr_tail": []})


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("out")
    for key, value in (("prompts", 3), ("steps", 8), ("legs", 1), ("seed", 1)):
        a.add_argument(f"--{key}", type=int, default=value)
    a.add_argument("--nasty", action="store_true")
    write(**vars(a.parse_args()))
