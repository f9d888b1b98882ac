#!/usr/bin/env python3
"""An engine of another kind as a leg: a request on stdin, a report on stdout (docs/foreign-engines.md).
It replays a golden where an engine would compute: foreign_engine.py GOLDEN PROFILE.  Put yours in place of `logits`."""
import json, platform, sys

golden = json.load(open(sys.argv[1], encoding="utf-8"))
profile = next(p for p in golden["profiles"] if p["name"] == sys.argv[2])
recorded = {p["id"]: p["steps"] for p in profile["prompts"]}

def logits(prompt, fed):
    """The 20 best of the next token as [[id, logit], ...], best first, ties by lower id; and the log-sum-exp of all logits."""
    step = recorded[prompt["id"]][len(fed)]
    return step["id"], step["top"], 0.0          # log-probabilities are logits whose log-sum-exp is 0

def row(prompt, forced):
    steps, fed = [], []
    for given in prompt["given"]:
        best, top, lse = logits(prompt, fed)
        steps.append({"id": best, "margin": top[0][1] - top[1][1], "lse": lse, "top": top})
        if forced:
            steps[-1]["given"] = [given] + next([value, i + 1] for i, (token, value) in enumerate(top) if token == given)
        fed.append(given if forced else best)
    return {"id": prompt["id"], "prompt_ids": prompt["ids"], "ids": [s["id"] for s in steps], "text": None, "wall_s": None, "steps": steps}

ask = json.load(sys.stdin)
json.dump({
    "schema": "assay/report/1", "leg": ask["leg"], "golden_sha256": ask["golden_sha256"],
    "requested": ask["requested"], "effective": {name: None for name in ask["requested"]},       # a factor we have not
    "engine": {"name": "replay", "version": "1", "git": None, "dirty": None, "binary_sha256": None, "flags": None, "features": {}},
    "host": {"name": platform.node(), **dict.fromkeys(["cpu", "cores", "memory", "kernel", "gpu", "arch", "driver", "cuda"])},
    "model": {"name": "replayed", "files": golden["model"]["files"], "config": {}, "blocks": dict.fromkeys(["mamba", "attn", "moe", "mlp", "layers"], 0)},
    "modes": {m: {"prompts": [row(p, m == "forced") for p in ask["prompts"]], "counters_total": {}, "trace": []} for m in ask["modes"]},
    "timing": None, "busy": None, "peak_rss_bytes": None, "peak_device_bytes": None}, sys.stdout)
