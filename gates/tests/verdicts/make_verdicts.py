#!/usr/bin/env python3
"""Writes the inputs of <case>/: recipe.yaml, golden.json, legs/*.json and README (expected.json is kept as it is).

  make_verdicts.py [CASE...]      all cases, or those named; needs numpy; validates against contract/schemas when jsonschema is there

Everything is synthetic and seeded: a "model" is a table of 64 logits per position, an oracle profile or a leg is that table
plus noise.  Only the three seed-* cases carry numbers of a real run (see their README).
"""
import hashlib
import json
import os
import sys
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = HERE
BLOCKS = {"mamba": 23, "attn": 6, "moe": 23, "mlp": 0, "layers": 52}
V, TOP = 64, 20
COUNTERS = ("state_update_rows conv_update_rows chunk_scan_calls conv_fwd_calls gathers scatters reference_tier w8a8_calls w8a16_calls "
            "w4a4_calls w4a16_calls bf16_calls state_resets kernel_launches graph_replays allocs_after_open").split()
FACTORS = {"backend": "cpu", "place.mamba": "backend", "place.attn": "backend", "place.moe": "backend", "place.mlp": "backend",
           "mamba.decode": "step", "mamba.prefill": "chunk", "mamba.proj": "w8a8", "mamba.state": "fp32", "moe.experts": "w4a16",
           "attn.kv": "bf16", "compute": "bf16", "head": "fp32", "batch": 1, "prefill_chunk": 0, "slots": "clean", "graph": "off",
           "threads": 2, "at": []}
STEP = {"state_update_rows": "mamba*nd", "conv_update_rows": "mamba*nd", "chunk_scan_calls": 0, "conv_fwd_calls": 0, "gathers": 0, "scatters": 0}
CHUNK = {"state_update_rows": 0, "conv_update_rows": 0, "chunk_scan_calls": "mamba", "conv_fwd_calls": "mamba", "gathers": "2*mamba",
         "scatters": "2*mamba"}
HOST = {"state_update_rows": 0, "conv_update_rows": 0, "chunk_scan_calls": 0, "conv_fwd_calls": 0, "gathers": "2*mamba", "scatters": "2*mamba"}


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def round_to(x, dtype):
    if dtype == "fp16":
        return x.astype(np.float16).astype(np.float64)
    x = np.ascontiguousarray(x, np.float32)
    if dtype == "bf16":
        u = x.view(np.uint32)
        x = ((u + (np.uint32(0x7FFF) + ((u >> 16) & np.uint32(1)))) & np.uint32(0xFFFF0000)).view(np.float32)
    return x.astype(np.float64)


def lse(z):
    return float(z.max() + np.log(np.exp(z - z.max()).sum()))


class World:
    """True logits z[p, t, V], the ids behind them, and a noise scale per position."""

    def __init__(self, seed, lens=(5, 8, 11), steps=12, s0=0.02, dtype="fp32", profiles=("base", "batch8", "eager", "chunked"), gaps={}):
        self.rng = np.random.default_rng(seed)
        self.P, self.L, self.s0, self.dtype, self.names = len(lens), steps, s0, dtype, list(profiles)
        r = self.rng
        self.ids = np.sort(r.choice(4096, V, replace=False))
        self.prompt_ids = [[int(x) for x in r.integers(3, 4096, n)] for n in lens]
        self.order = np.stack([[r.permutation(V) for _ in range(steps)] for _ in lens])
        gap = np.concatenate([1.0 + r.exponential(1.0, (self.P, steps, 1)), 0.05 + r.exponential(0.3, (self.P, steps, V - 2))], -1)
        for (p, t), g in gaps.items():
            gap[p, t, 0] = g
        ranked = 20 + 1.5 * r.standard_normal((self.P, steps, 1)) - np.concatenate([np.zeros((self.P, steps, 1)), np.cumsum(gap, -1)], -1)
        self.z = np.empty((self.P, steps, V))
        np.put_along_axis(self.z, self.order, ranked, -1)
        self.scale = s0 * np.exp(0.3 * r.standard_normal((self.P, steps, 1)))

    def best(self, p, t, k=0):
        """Index of the k-th best token of the true model."""
        return int(self.order[p, t, k])

    def run(self, kappa=1.0, dtype=None, margin={}, put={}, drift=0.0, bias=0.0):
        """Noisy logits.  margin {(p, t): m}: the exact gap best - second; put {(p, t): {rank: logit}}; bias: shift of every gap in s0."""
        z = self.z + kappa * self.scale * self.rng.standard_normal(self.z.shape) * np.exp(drift * (np.arange(self.L) - (self.L - 1) / 2))[:, None]
        for p in range(self.P):
            for t in range(self.L):
                z[p, t, self.best(p, t)] += bias * self.s0
        for (p, t), m in margin.items():
            z[p, t, self.best(p, t, 1)] = z[p, t, self.best(p, t)] - m
        for (p, t), ranks in put.items():
            for k, v in ranks.items():
                z[p, t, self.best(p, t, k)] = v
        return round_to(z, dtype or self.dtype)

    def argmax(self, z):
        return self.ids[z.argmax(-1)]           # ids ascend, so a tie goes to the lower id

    def listed(self, row):
        """Best first, ties by lower id."""
        return np.argsort(-row, kind="stable")[:TOP]

    def free(self, z, base):
        """ids and logits of a free run: after a fork from base, another stream."""
        ids, z = self.argmax(z), z.copy()
        for p in range(self.P):
            f = np.nonzero(ids[p] != base[p])[0]
            if len(f):
                t = f[0] + 1
                z[p, t:] = self.rng.permuted(z[p, t:], axis=-1)
                ids[p, t:] = self.argmax(z[p, t:])
        return ids, z

    # -- documents
    def golden(self, runs, name="book52", files=None, tops=True, with_lse=False, forced=()):
        base = self.argmax(runs[0])
        profs = []
        for n, z in zip(self.names, runs):
            ids, zz = (self.argmax(z), z) if n in forced else self.free(z, base)
            rows = []
            for p in range(self.P):
                row = {"id": f"p{p}", "ids": [int(i) for i in ids[p]], "text": ""}
                if tops:
                    row["steps"] = []
                    for t in range(self.L):
                        s = {"id": int(ids[p, t]), "top": [[int(self.ids[i]), round(float(zz[p, t, i] - lse(zz[p, t])), 6)] for i in self.listed(zz[p, t])]}
                        if with_lse:
                            s["lse"] = round(lse(zz[p, t]), 6)
                        row["steps"].append(s)
                rows.append(row)
            profs.append({"name": n, "engine": {"name": "synthetic", "version": "1", "config": {"profile": n}}, "device": "none",
                          "logits_dtype": self.dtype, "captured": "2026-12-01", "command": "make_verdicts.py", "repeats": 2, "repeats_agree": True,
                          "mode": "forced" if n in forced else "free", "prompts": rows})
        self.base = base
        return {"schema": "assay/golden/1", "name": name, "model": {"name": name, "files": model_files(name) if files is None else files},
                "tokenizer_sha256": sha(name + "tokenizer"), "sampling": {"temperature": 0, "max_tokens": self.L, "ignore_eos": True},
                "prompts": [{"id": f"p{p}", "text": "", "ids": ids} for p, ids in enumerate(self.prompt_ids)], "profiles": profs}

    def modes(self, z, factors, modes=("free", "forced"), steps=True):
        out = {}
        for mode in modes:
            ids, zz = self.free(z, self.base) if mode == "free" else (self.argmax(z), z)
            prompts = []
            for p in range(self.P):
                row = {"id": f"p{p}", "prompt_ids": self.prompt_ids[p], "ids": [int(i) for i in ids[p]], "text": "", "wall_s": 0.1}
                if steps:
                    row["steps"] = []
                    for t in range(self.L):
                        x = zz[p, t]
                        top = self.listed(x)
                        s = {"id": int(ids[p, t]), "margin": round(float(x[top[0]] - x[top[1]]), 6), "lse": round(lse(x), 6),
                             "top": [[int(self.ids[i]), round(float(x[i]), 6)] for i in top],
                             "logits_xxh64": hashlib.blake2b(x.tobytes(), digest_size=8).hexdigest()}
                        if mode == "forced":
                            i = int(np.nonzero(self.ids == self.base[p, t])[0][0])
                            s["given"] = [int(self.base[p, t]), round(float(x[i]), 6), int((x > x[i]).sum()) + 1]
                        row["steps"].append(s)
                prompts.append(row)
            rows = trace(factors, [len(x) for x in self.prompt_ids], [self.L] * self.P)
            out[mode] = {"prompts": prompts, "counters_total": totals(rows), "trace": rows}
        return out


def model_files(name):
    return {f: sha(name + f) for f in ("config.json", "model-00001-of-00001.safetensors", "tokenizer.json")}


def trace(factors, lens, tokens):
    """One row per step, as the arm would leave them; prompts run in groups of `batch`."""
    M, rows, b = BLOCKS["mamba"], [], factors["batch"]
    arm = "host" if factors["place.mamba"] == "host" else factors["mamba.decode"]

    def row(T, nd, n_p):
        c = dict.fromkeys(COUNTERS, 0)
        kind = arm if n_p == 0 or arm == "host" else "prefill"
        if kind == "step":
            c.update(state_update_rows=M * nd, conv_update_rows=M * nd)
        elif kind == "chunk":
            c.update(chunk_scan_calls=M, conv_fwd_calls=M, gathers=2 * M, scatters=2 * M)
        elif kind == "prefill":
            c.update(chunk_scan_calls=M, conv_fwd_calls=M)
        else:
            c.update(gathers=2 * M, scatters=2 * M)
        linears = {"native": "bf16_calls"}.get(factors["mamba.proj"], f"{factors['mamba.proj']}_calls")
        c["bf16_calls"] = 47
        c["w4a16_calls"] = 230
        c[linears] += 2 * M
        c["state_resets"] = n_p
        if factors["backend"] == "cuda":
            c["kernel_launches"] = 1012
        return {"step": len(rows), "T": T, "nd": nd, "np": n_p, **c}
    for g in range(0, len(lens), b):
        group = range(g, min(g + b, len(lens)))
        for p in group:
            if tokens[p]:
                rows.append(row(lens[p], 0, 1))
        for t in range(1, max(tokens[p] for p in group)):
            nd = sum(tokens[p] > t for p in group)
            rows.append(row(nd, nd, 0))
    return rows


def totals(rows):
    return {c: sum(r[c] for r in rows) for c in COUNTERS}


def report(leg, factors, modes, golden_sha, model="book52", requested=None, engine=None, host=None, ms=8.0, features=None):
    e = {"name": "assay-engine", "version": "1.0", "git": "0" * 40, "dirty": False, "binary_sha256": sha("assay-engine"), "flags": "-O2",
         "features": features or {"avx2": "enabled"}}
    h = {"name": "box", "cpu": "generic", "cores": 2, "memory": 8589934592, "kernel": "6.1", "gpu": None, "arch": None, "driver": None, "cuda": None}
    n = sum(len(r["ids"]) for m in modes.values() for r in m["prompts"])
    return {"schema": "assay/report/1", "leg": leg, "requested": requested or factors, "effective": factors, "engine": {**e, **(engine or {})},
            "host": {**h, **(host or {})}, "model": {"name": model, "files": model_files(model), "config": {"model_type": "nemotron_h"}, "blocks": BLOCKS},
            "golden_sha256": golden_sha, "modes": modes,
            "timing": {"load_s": 0.2, "prefill_s": 0.1, "decode_s": round(n * ms / 1000, 6), "per_token_ms": {"p50": ms, "p90": ms, "p99": ms, "n": n}},
            "busy": None, "peak_rss_bytes": 100000000, "peak_device_bytes": 0}


def text(doc):
    s = json.dumps(doc, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for key in ('{"id":', '{"step":', '{"name":', '"modes":', '"timing":'):
        s = s.replace(key, "\n" + key)
    return s + "\n"


def flow(d):
    return "{" + ", ".join(f"{k}: {flow(v) if isinstance(v, dict) else v}" for k, v in d.items()) + "}"


def recipe(name, legs, require, kind="gate", modes="[free, forced]", steps=12, base={}, golden=None, **more):
    out = [f"schema: assay/recipe/1", f"name: {name}", f"kind: {kind}", f"model: oracle-goldens/models/{more.pop('model', 'book52')}",
           f"golden: oracle-goldens/{golden or name}.json", f"steps: {steps}", f"modes: {modes}"]
    if base:
        out.append(f"base: {flow(base)}")
    out.append("legs:")
    out += [f"  {k}: {flow(v)}" for k, v in legs.items()]
    out.append("require:")
    out += [f"  {k}: {flow(v)}" for k, v in require.items()]
    for k, v in more.items():
        if isinstance(v, dict) and any(isinstance(x, dict) for x in v.values()):
            out.append(f"{k}:")
            out += [f"  {a}: {flow(b) if isinstance(b, dict) else b}" for a, b in v.items()]
        else:
            out.append(f"{k}: {flow(v) if isinstance(v, dict) else v}")
    return "\n".join(out) + "\n"


class Case:
    def __init__(self, name, readme):
        self.dir = os.path.join(OUT, name)
        self.name = name
        os.makedirs(os.path.join(self.dir, "legs"), exist_ok=True)
        for f in os.listdir(os.path.join(self.dir, "legs")):
            os.remove(os.path.join(self.dir, "legs", f))
        self.write("README", readme.strip() + "\n")

    def write(self, path, s):
        with open(os.path.join(self.dir, path), "w", encoding="utf-8") as f:
            f.write(s)

    def golden(self, doc):
        s = text(doc)
        self.sha = sha(s)
        self.write("golden.json", s)

    def recipe(self, *a, **k):
        self.write("recipe.yaml", recipe(self.name, *a, **k))

    def leg(self, name, factors, modes, **k):
        doc = report(name, factors, modes, k.pop("golden_sha", self.sha), **k)
        self.put(name, doc)
        return doc

    def put(self, name, doc):
        self.write(f"legs/{name}.json", text(doc))

    def exit(self, name, code=None, signal=None, timed_out=False, tail=()):
        self.write(f"legs/{name}.exit.json", text({"schema": "assay/exit/1", "leg": name, "argv": ["assay-engine", "run", "--report", f"legs/{name}.json"],
                   "started": "2026-12-01T00:00:00Z", "ended": "2026-12-01T00:00:05Z", "exit_code": code, "signal": signal, "timed_out": timed_out,
                   "stderr_tail": list(tail)}))


def arm(**k):
    return {**FACTORS, **{a.replace("_", "."): v for a, v in k.items()}}


REQ = {"all": {"total": {"allocs_after_open": 0}}, "step": {"decode_step": STEP, "total": {"reference_tier": 0}}}

# -------------------------------------------------------------------------------------------------- the thread's run

TAIL = [1044, 12837, 2505, 1261, 9943, 1307]
SEED_HOST = {"name": "dgx", "cpu": "GB10", "cores": 20, "memory": 137438953472, "gpu": "NVIDIA GB10", "arch": "sm_121a", "driver": "580", "cuda": "13.0"}
SEED_ENGINE = {"name": "nemotron-h-gen", "version": "21", "git": "e35c14d52", "binary_sha256": sha("e35c14d52"), "flags": "sm_121a",
               "features": {"cutlass_fp8": "enabled"}}
SEED_LEGS = {"on": (dict(), 31, 1513.958, STEP), "off": ({"mamba.decode": "chunk"}, 31, 1554.0, CHUNK),
             "host": ({"place.mamba": "host", "mamba.proj": "w8a16"}, 32, 10319.0, HOST)}


def seed_case(name, readme, fourth=None, oracle_rerun=False):
    c = Case(name, readme)
    r = np.random.default_rng(2508)
    lens, L = (5, 8, 13), 32
    prompt_ids = [[int(x) for x in r.integers(1000, 60000, n)] for n in lens]
    exp = [[int(x) for x in r.integers(1000, 60000, L)] for _ in lens]
    exp[2][25:] = TAIL + [3468]
    profile = lambda n, rows: {"name": n, "engine": {"name": "vllm", "version": "0.23.1rc1.dev1511+g555967922", "config": {}}, "prompts": [
        {"id": f"p{i}", "ids": x, "text": ""} for i, x in enumerate(rows)]}
    profs = [profile("base", exp)]
    if oracle_rerun:
        other = [list(x) for x in exp]
        other[2][26:] = [11286, 12927, 1394, 1044, 2505, 1261]
        profs.append(profile("max-model-len-512", other))
    name_model = "NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"
    c.golden({"schema": "assay/golden/1", "name": "nemotron-35-lightning", "model": {"name": name_model, "files": model_files(name_model)},
              "sampling": {"temperature": 0, "max_tokens": 32}, "prompts": [{"id": f"p{i}", "text": "", "ids": x} for i, x in enumerate(prompt_ids)],
              "profiles": profs})
    legs, require, predicts = {}, {"all": {"total": {"allocs_after_open": 0}}}, {}
    arms = dict(SEED_LEGS)
    if fourth:
        arms["host-w8a8"] = ({"place.mamba": "host"}, 31 if fourth == "diverges" else 32, 10319.0, HOST)
    for leg, (change, matched, ms, want) in arms.items():
        legs[leg] = change
        require[leg] = {"decode_step": want, "total": {"reference_tier": 0}}
        f = {**FACTORS, "backend": "cuda", **change}
        got = [list(x) for x in exp]
        if matched == 31:
            got[2][31] = 11286
        rows = trace(f, lens, [L] * 3)
        modes = {"free": {"prompts": [{"id": f"p{i}", "prompt_ids": prompt_ids[i], "ids": got[i], "text": "", "wall_s": round(L * ms / 1000, 3)}
                                      for i in range(3)], "counters_total": totals(rows), "trace": rows}}
        c.leg(leg, f, modes, model=name_model, engine=SEED_ENGINE, host=SEED_HOST, ms=ms, features=None)
    p4 = {"kernel": "pass", "place": "pass", "fp8": "diverge", "none": "pass"}
    p5 = {"kernel": "diverge", "place": "diverge", "fp8": "pass", "none": "pass"}
    table = {"kernel": ("the recurrent kernel moves it", "diverge", "pass", "pass"), "place": ("the device arm as a whole moves it", "diverge", "diverge", "pass"),
             "fp8": ("W8A8 projections move it", "diverge", "diverge", "pass"), "none": ("nothing here moves it", "pass", "pass", "pass")}
    hyp = {}
    for h, (says, on, off, host) in table.items():
        pr = {"on": on, "off": off, "host": host}
        pr.update({"host-w8a8": p4[h]} if fourth else {"host+mamba.proj=w8a8": p4[h], "on+mamba.proj=w8a16": p5[h]})
        hyp[h] = {"says": says, "predicts": pr}
    c.recipe(legs, require, kind="discriminate", modes="[free]", steps=32, base={"backend": "cuda", "mamba.decode": "step", "mamba.proj": "w8a8"},
             model=name_model, golden="nemotron-35-lightning", question="Is it the recurrent kernel, the device arm or the FP8 projections that moves the token?",
             features={"cutlass_fp8": "enabled"}, hypotheses=hyp)


# ------------------------------------------------------------------------------------------------------------ the cases

def seed_three_legs():
    seed_case("seed-three-legs", """
The thread's three legs: token counts, tail ids, decode counters, rows, s/token and build as reported there; other ids, hashes and counters invented.
95/96, 95/96, 96/96; place.mamba and mamba.proj are aliased, two hypotheses survive (exit 4), two legs would separate them, margins NOT MEASURED.""")


def seed_four_legs_diverges():
    seed_case("seed-four-legs-diverges", """
The same, with a fourth leg host-w8a8 (invented: never run in the thread) that loses the same token, and the oracle's own 26/32 rerun as a profile.
Only `fp8` survives (exit 0); the flip is ORACLE-UNSTABLE (that profile forks at p2[26]), still NOT MEASURED for lack of logits.""", "diverges", True)


def seed_four_legs_passes():
    seed_case("seed-four-legs-passes", """
The same, with a fourth leg host-w8a8 (invented: never run in the thread) that passes 96/96.
Only `place` survives (exit 0): fp8 is eliminated by host-w8a8, kernel by off, none by on and off.""", "passes", True)


def profiles(w, n=None, **k):
    return [w.run(**k) for _ in range(n or len(w.names))]


def strict_pass_equivalent():
    c = Case("strict-pass-equivalent", """
Four oracle profiles with logits, a leg that is one more benign configuration, and the f64 arbiter; no token moves.
STRICT PASS, EQUIVALENT, exit 0; the arbiter is nearer to both than they are to each other.""")
    w = World(3)
    c.golden(w.golden(profiles(w)))
    f64 = arm(backend="ref", compute="f64", mamba_decode="chunk", threads=1)
    c.leg("step", FACTORS, w.modes(w.run(), FACTORS))
    c.leg("arbiter", f64, w.modes(w.run(kappa=0.001), f64), ms=80.0)
    c.recipe({"step": {}, "arbiter": {"backend": "ref", "compute": "f64", "mamba.decode": "chunk", "threads": 1}},
             {**REQ, "arbiter": {"decode_step": CHUNK}}, base={"backend": "cpu"})


def near_tie():
    c = Case("near-tie", """
Two tokens differ: at p1[7] the oracle's margin is below its spread and profile eager forks too; at p2[9] it is 2.5 spreads, which is usual here.
DIVERGENCE, NEAR-TIE (one flip ORACLE-UNSTABLE, one SUSPICIOUS with p >= 0.05), exit 1: an adjudication excuses nothing.""")
    w = World(4, gaps={(1, 7): 0.02, (0, 4): 0.02, (2, 9): 0.09})
    quiet = {(0, 4): 0.02, (2, 9): 0.095}
    runs = profiles(w, 3, margin={(1, 7): 0.021, **quiet})
    runs.insert(2, w.run(margin={(1, 7): -0.012, **quiet}))
    c.golden(w.golden(runs))
    c.leg("step", FACTORS, w.modes(w.run(margin={(1, 7): -0.014, (0, 4): 0.03, (2, 9): -0.015}), FACTORS))
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"})


def suspicious():
    c = Case("suspicious", """
One token differs at p0[6], 3.5 spreads from the oracle's choice, and nothing else is near a tie: too far to call usual, not far enough to call a defect.
DIVERGENCE, the flip SUSPICIOUS with p < 0.05, the leg UNDETERMINED although R is EQUIVALENT, exit 1.""")
    w = World(24, gaps={(0, 6): 0.13})
    c.golden(w.golden(profiles(w, margin={(0, 6): 0.13})))
    c.leg("step", FACTORS, w.modes(w.run(margin={(0, 6): -0.06}), FACTORS))
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"})


def excess():
    c = Case("excess", """
One token differs at p2[3] although the oracle prefers its own by 1.9 nats, tens of times its spread; all else is benign.
DIVERGENCE, EXCESS, exit 1, by that flip alone: R stays near 1.""")
    w = World(5, steps=8, gaps={(2, 3): 1.9})
    c.golden(w.golden(profiles(w)))
    c.leg("step", FACTORS, w.modes(w.run(margin={(2, 3): -0.8}), FACTORS))
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"}, steps=w.L)


def exact_tie():
    c = Case("exact-tie", """
Oracle logits rounded to fp16, lse given: an exact tie at p0[5] (46.875 twice), one ulp at p1[6] (46.90625 against 46.875); the leg flips both.
DIVERGENCE with one EXACT TIE and one NEAR-TIE of exactly 1 ulp; the tie goes to the lower id in the golden.""")
    w = World(6, dtype="fp16", s0=0.03)
    a, b = w.best(0, 5), w.best(0, 5, 1)
    tie = {(0, 5): {0: 46.875, 1: 46.875, 2: 45.0}, (1, 6): {0: 46.90625, 1: 46.875, 2: 45.5}}
    near = [{(0, 5): {0: 46.875 + x, 1: 46.875 - x, 2: 45.0}, (1, 6): {0: 46.90625 - x, 1: 46.875, 2: 45.5}} for x in (0.03125, -0.03125, 0.0625)]
    runs = [w.run(put=tie)] + [w.run(put=x) for x in near]
    lower = 0 if w.ids[a] < w.ids[b] else 1                     # rank of the token the golden holds
    c.golden(w.golden(runs, with_lse=True, forced=("batch8", "eager", "chunked")))
    z = w.run(dtype="fp32", put={(0, 5): {lower: 46.87, 1 - lower: 46.89, 2: 45.0}, (1, 6): {0: 46.88, 1: 46.91, 2: 45.5}})
    c.leg("step", FACTORS, w.modes(z, FACTORS))
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"})


def noisy_pass():
    c = Case("noisy-pass", """
All tokens equal, but the leg is three times as far from the oracle as its profiles are from each other.
STRICT PASS with adjudication EXCESS, exit 0: tokens alone would have hidden it.""")
    w = World(7, steps=8)
    c.golden(w.golden(profiles(w)))
    c.leg("step", FACTORS, w.modes(w.run(kappa=4.2), FACTORS))
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"}, steps=w.L)


def drift():
    c = Case("drift", """
Teacher-forced only, 12 prompts of 12 steps, 3 profiles: the distance grows with the step in every prompt, as a carried-state error does; R is below 2.
STRICT PASS, SYSTEMATIC by the drift test (one-sided sign test over prompts, Holm), exit 0.""")
    w = World(8, lens=(4,) * 12, profiles=("base", "batch8", "eager"))
    c.golden(w.golden(profiles(w)))
    c.leg("step", FACTORS, w.modes(w.run(kappa=1.2, drift=0.1), FACTORS, modes=("forced",)))
    c.recipe({"step": {}}, REQ, modes="[forced]", base={"backend": "cpu"})


def direction():
    c = Case("direction", """
The leg favours the oracle's token by one noise scale at every position (a scale error, say): distances hardly grow, the sign does not lie.
STRICT PASS, SYSTEMATIC by the direction test (two-sided sign test over positions, Holm), exit 0.""")
    w = World(9)
    c.golden(w.golden(profiles(w)))
    c.leg("step", FACTORS, w.modes(w.run(bias=2.0), FACTORS))
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"})


def two_legs(c, w, **k):
    """step and chunk legs over one world; returns their documents."""
    f = arm(mamba_decode="chunk")
    c.golden(w.golden(profiles(w)))
    a = c.leg("step", FACTORS, w.modes(w.run(), FACTORS))
    b = c.leg("chunk", f, w.modes(w.run(), f))
    c.recipe({"step": {}, "chunk": {"mamba.decode": "chunk"}}, {**REQ, "chunk": {"decode_step": CHUNK, "total": {"reference_tier": 0}}},
             base={"backend": "cpu"}, steps=w.L, **k)
    return a, b


def void_contract():
    c = Case("void-contract", """
Leg chunk took the single-step kernel in one decode row in the middle of its forced run (row 10); all tokens equal.
VOID, exit 3; a claim that rests on that leg is withdrawn, and the design holds the other leg alone.""")
    _, b = two_legs(c, World(10, steps=7), claims={"decode-kernel": {"says": "the decode kernel changes nothing", "about": "mamba.decode", "legs": "[step, chunk]"}})
    m = b["modes"]["forced"]
    m["trace"][10].update(state_update_rows=23, conv_update_rows=23, chunk_scan_calls=0, conv_fwd_calls=0, gathers=0, scatters=0)
    m["counters_total"] = totals(m["trace"])
    c.put("chunk", b)


def void_counter_missing():
    c = Case("void-counter-missing", """
Leg step does not report `gathers` at all, in rows or totals, though its contract asks for 0.
VOID, exit 3: a counter that is absent is not zero.""")
    a, _ = two_legs(c, World(11, steps=7))
    for m in a["modes"].values():
        for row in m["trace"] + [m["counters_total"]]:
            del row["gathers"]
    c.put("step", a)


def short():
    c = Case("short", """
Prompt p2 stopped after 9 of 12 tokens in free mode (its trace rows agree), and one of its tokens differs; forced mode is complete.
SHORT, exit 4, which ranks above the DIVERGENCE that the compared part shows.""")
    w = World(12, gaps={(2, 4): 0.02})
    c.golden(w.golden(profiles(w, margin={(2, 4): 0.02})))
    modes = w.modes(w.run(margin={(2, 4): -0.01}), FACTORS)
    row = modes["free"]["prompts"][2]
    row["ids"], row["steps"] = row["ids"][:9], row["steps"][:9]
    rows = trace(FACTORS, [5, 8, 11], [12, 12, 9])
    modes["free"].update(trace=rows, counters_total=totals(rows))
    c.leg("step", FACTORS, modes)
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"})


def crashed():
    c = Case("crashed", """
Leg chunk was killed by SIGKILL and left no report; leg step passed.
ERROR, exit 2, with the signal in the reason; the result of step is kept.""")
    two_legs(c, World(13, steps=7))
    os.remove(os.path.join(c.dir, "legs", "chunk.json"))
    c.exit("step", code=0)
    c.exit("chunk", signal="SIGKILL", tail=["load 0.2 s", "prompt p1 step 3"])


def void_same_binary():
    c = Case("void-same-binary", """
Legs before and after name two engine builds, but both reports carry the same binary_sha256 and the same factors.
Both legs are VOID, exit 3: nothing was compared with anything.""")
    w = World(14, steps=7)
    c.golden(w.golden(profiles(w)))
    z = w.run()
    for leg in ("before", "after"):
        c.leg(leg, FACTORS, w.modes(z, FACTORS))
    c.recipe({"before": {"engine": {"argv": "[build-old/assay-engine]"}}, "after": {"engine": {"argv": "[build/assay-engine]"}}},
             {"before": {"decode_step": STEP}, "after": {"decode_step": STEP}}, base={"backend": "cpu"}, steps=w.L)


def void_effective():
    c = Case("void-effective", """
Leg chunk asked for mamba.decode=chunk and got step; its counters are those of step, and it has become the same run as leg step.
VOID, exit 3, for both.""")
    w = World(15, steps=7)
    f = arm(mamba_decode="chunk")
    c.golden(w.golden(profiles(w)))
    z = w.run()
    c.leg("step", FACTORS, w.modes(z, FACTORS))
    c.leg("chunk", FACTORS, w.modes(z, FACTORS), requested=f)
    c.recipe({"step": {}, "chunk": {"mamba.decode": "chunk"}}, {**REQ, "chunk": {"decode_step": CHUNK}}, base={"backend": "cpu"}, steps=w.L)


def rounded():
    c = Case("rounded", """
Everybody's logits rounded to bf16, so most margins of the oracle do not move at all (median |d| = 0); one token differs by 1 ulp at p1[3].
DIVERGENCE, NEAR-TIE, exit 1: the spread falls back on mean |d|, and a margin is never measured in less than half an ulp.""")
    w = World(26, steps=10, dtype="bf16", s0=0.012, gaps={(0, 5): 0.3, (2, 6): 0.3})
    flip = {(1, 3): {0: 20.25, 1: 20.125, 2: 18.0}}
    even = {(0, 5): {0: 20.25, 1: 20.125, 2: 18.0}, (2, 6): {0: 18.5, 1: 18.375, 2: 17.0}}
    c.golden(w.golden(profiles(w, put={**flip, **even}), with_lse=True))
    c.leg("step", FACTORS, w.modes(w.run(put={(1, 3): {0: 20.125, 1: 20.25, 2: 18.0}, **even}), FACTORS))
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"}, steps=w.L)


def single_profile():
    c = Case("single-profile", """
One oracle profile only, bf16 logits: the margin of the flip at p0[6] is known (in nats and ulps), the oracle's spread is not.
DIVERGENCE, the flip NOT MEASURED, the leg UNDETERMINED, exit 1.""")
    w = World(16, steps=8, dtype="bf16", profiles=("base",))
    c.golden(w.golden([w.run(put={(0, 6): {0: 20.25, 1: 20.125, 2: 18.0}})], with_lse=True))
    c.leg("step", FACTORS, w.modes(w.run(dtype="fp32", put={(0, 6): {0: 20.18, 1: 20.21, 2: 18.0}}), FACTORS))
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"}, steps=w.L)


def got_outside_top():
    c = Case("got-outside-top", """
At p1[5] the leg chose a token the oracle does not list among its 20 best: the margin is a lower bound, and far beyond the spread.
DIVERGENCE, EXCESS, exit 1.""")
    w = World(17, steps=8)
    c.golden(w.golden(profiles(w)))
    c.leg("step", FACTORS, w.modes(w.run(put={(1, 5): {30: 26.0}}), FACTORS))
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"}, steps=w.L)


def void_other_model():
    c = Case("void-other-model", """
The leg ran another checkpoint than the golden's (one file differs in sha256), and every token agrees all the same.
VOID, exit 3: the identity of a model is its files.""")
    w = World(18, steps=7)
    files = {**model_files("book52"), "model-00001-of-00001.safetensors": sha("another")}
    c.golden(w.golden(profiles(w), files=files))
    c.leg("step", FACTORS, w.modes(w.run(), FACTORS))
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"}, steps=w.L)


def not_finite():
    c = Case("not-finite", """
All tokens equal, but one listed logit of p0[8] is NaN in the free run.
DIVERGENCE, EXCESS, exit 1: a number that is not finite is never part of a pass.""")
    w = World(19, steps=9)
    c.golden(w.golden(profiles(w)))
    modes = w.modes(w.run(), FACTORS)
    modes["free"]["prompts"][0]["steps"][8]["top"][19][1] = "nan"
    c.leg("step", FACTORS, modes)
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"}, steps=w.L)


def not_greedy():
    c = Case("not-greedy", """
At p1[4] of the free run the leg emitted its second best token, 1.5 nats below its best; its logits are those of the oracle everywhere.
DIVERGENCE, EXCESS, exit 1: no displacement of logits explains it, so no spread excuses it.""")
    w = World(25, steps=7, gaps={(1, 4): 1.5})
    c.golden(w.golden(profiles(w)))
    z = w.run()
    modes = w.modes(z, FACTORS)
    row = modes["free"]["prompts"][1]
    row["ids"][4] = row["steps"][4]["id"] = int(w.ids[w.best(1, 4, 1)])
    c.leg("step", FACTORS, modes)
    c.recipe({"step": {}}, REQ, base={"backend": "cpu"}, steps=w.L)


def batched():
    c = Case("batched", """
Three prompts decoded together (batch 3): decode rows carry nd=3 and 69 state updates, one chunk scan per layer whatever the rows.
STRICT PASS on both legs, exit 0; they differ in mamba.decode alone, and their logits are not bit-equal.""")
    w = World(20, steps=8)
    a, b = arm(batch=3), arm(batch=3, mamba_decode="chunk")
    c.golden(w.golden(profiles(w)))
    c.leg("step", a, w.modes(w.run(), a))
    c.leg("chunk", b, w.modes(w.run(), b))
    c.recipe({"step": {}, "chunk": {"mamba.decode": "chunk"}}, {**REQ, "chunk": {"decode_step": CHUNK}}, base={"backend": "cpu", "batch": 3}, steps=w.L)


def free_hazard():
    c = Case("free-hazard", """
Free mode only, margins of many sizes: all three prompts fork, p0 and p1 at wide margins.
DIVERGENCE, exit 1; the hazard test says how surprising three forks are, and distances are not measured without forced mode.""")
    gaps = {(p, t): g for p, ts in enumerate(((2, 6, 9), (3, 7, 10), (1, 5, 8))) for t, g in zip(ts, (0.01, 0.05, 0.09))}
    w = World(21, gaps=gaps)
    c.golden(w.golden(profiles(w, margin={k: g + 0.002 for k, g in gaps.items()})))
    flips = {k: g for k, g in gaps.items()}
    flips.update({(0, 9): -0.03, (1, 10): -0.02, (2, 1): -0.015})
    c.leg("step", FACTORS, w.modes(w.run(margin=flips), FACTORS, modes=("free",)))
    c.recipe({"step": {}}, REQ, modes="[free]", base={"backend": "cpu"})


def bit_equal():
    c = Case("bit-equal", """
Both legs reproduce the oracle's base profile to the last bit, on two kernels.
STRICT PASS, EQUIVALENT with R = 0, exit 0; the kernel is exonerated because the logits are bit-equal, not because the tokens are.""")
    w = World(22, steps=8)
    runs = profiles(w)
    f = arm(mamba_decode="chunk")
    c.golden(w.golden(runs))
    c.leg("step", FACTORS, w.modes(runs[0], FACTORS))
    c.leg("chunk", f, w.modes(runs[0], f))
    c.recipe({"step": {}, "chunk": {"mamba.decode": "chunk"}}, {**REQ, "chunk": {"decode_step": CHUNK}}, base={"backend": "cpu"}, steps=w.L)


CASES = {f.__name__.replace("_", "-"): f for f in (
    seed_three_legs, seed_four_legs_diverges, seed_four_legs_passes, strict_pass_equivalent, near_tie, suspicious, excess, exact_tie, noisy_pass, drift, direction, void_contract,
    void_counter_missing, short, crashed, void_same_binary, void_effective, rounded, single_profile, got_outside_top, void_other_model, not_finite, not_greedy, batched,
    free_hazard, bit_equal)}


def validate():
    try:
        import jsonschema
    except ImportError:
        print("jsonschema is not installed: not validated")
        return
    schema = {}
    for n in ("golden", "report"):
        with open(os.path.join(HERE, "..", "..", "..", "contract", "schemas", f"{n}.schema.json"), encoding="utf-8") as f:
            schema[n] = json.load(f)
    check = {"golden": jsonschema.Draft202012Validator(schema["golden"]), "report": jsonschema.Draft202012Validator(schema["report"]),
             "exit": jsonschema.Draft202012Validator({"$ref": "#/$defs/exit", "$defs": schema["report"]["$defs"]})}
    n = 0
    for case in sorted(os.listdir(OUT)):
        d = os.path.join(OUT, case)
        if os.path.isdir(d):
            for f in ["golden.json"] + sorted(os.path.join("legs", x) for x in os.listdir(os.path.join(d, "legs"))):
                kind = "golden" if f == "golden.json" else "exit" if f.endswith(".exit.json") else "report"
                with open(os.path.join(d, f), encoding="utf-8") as h:
                    check[kind].validate(json.load(h))
                n += 1
    print(f"{n} documents valid")


def main():
    names = sys.argv[1:] or list(CASES)
    for n in names:
        CASES[n]()
    validate()


if __name__ == "__main__":
    main()
