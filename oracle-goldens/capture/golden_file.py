"""The golden format of docs/formats.md, section 5, for the capture programs of this directory.

A profile is added to an existing golden only if model files, prompts and format are the same by hash or value: a
golden whose profiles saw different inputs would compare nothing."""
import hashlib
import json
import math
import os
import sys
import tempfile

SCHEMA = "assay/golden/1"


class Refused(Exception):
    """The capture cannot be written as asked; the message is one line."""


def sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            h.update(block)
    return h.hexdigest()


def model_files(directory):
    """Name and sha256 of every file that decides what a checkpoint computes or how it reads text."""
    keep = [n for n in sorted(os.listdir(directory))
            if n.endswith(".safetensors") or n in ("config.json", "hf_quant_config.json", "tokenizer.json",
                                                   "model.safetensors.index.json", "generation_config.json")]
    if not any(n.endswith(".safetensors") for n in keep):
        raise Refused(f"{directory}: no safetensors file")
    return {n: sha256(os.path.join(directory, n)) for n in keep}


def load(path):
    with open(path, encoding="utf-8") as f:
        doc = json.load(f)
    if doc.get("schema") != SCHEMA:
        raise Refused(f"{path}: schema is {doc.get('schema')!r}, expected {SCHEMA!r}")
    return doc


def load_prompts(path):
    """A JSON list of {id, ids, text?}, or a golden, whose prompts are taken."""
    with open(path, encoding="utf-8") as f:
        doc = json.load(f)
    prompts = doc["prompts"] if isinstance(doc, dict) else doc
    for p in prompts:
        if not p.get("ids"):
            raise Refused(f"{path}: prompt {p.get('id')!r} has no ids")
    return [{k: p[k] for k in ("id", "text", "ids") if k in p} for p in prompts]


def counts_of(text, prompts):
    """Tokens per prompt: a number, or "like:GOLDEN:PROFILE" for as many as that profile has."""
    if not text.startswith("like:"):
        return {p["id"]: int(text) for p in prompts}
    _, path, name = text.split(":")
    rows = next((p for p in load(path)["profiles"] if p["name"] == name), None)
    if rows is None:
        raise Refused(f"{path}: no profile {name!r}")
    like = {p["id"]: len(p["ids"]) for p in rows["prompts"]}
    return {p["id"]: like[p["id"]] for p in prompts}


def top_of(logits, k=20):
    """The k best of a row of float64 logits as [id, log-probability], ties by lower id, and the log-sum-exp."""
    import numpy as np
    best = np.argsort(-logits, kind="stable")[:k]
    high = float(logits[best[0]])
    lse = high + math.log(float(np.exp(logits - high).sum()))
    return [[int(i), round(float(logits[i]) - lse, 6)] for i in best], round(lse, 6)


def new(name, model_name, files, prompts, max_tokens):
    return {"schema": SCHEMA, "name": name, "model": {"name": model_name, "files": files},
            **({"tokenizer_sha256": files["tokenizer.json"]} if "tokenizer.json" in files else {}),
            "sampling": {"temperature": 0, "max_tokens": max_tokens, "ignore_eos": True},
            "prompts": prompts, "profiles": []}


def add(golden, profile, model, path="the golden"):
    """Adds a profile after checking that it speaks of the same model and prompts."""
    if golden["model"]["files"] and golden["model"]["files"] != model:
        moved = sorted(n for n in {**model, **golden["model"]["files"]} if model.get(n) != golden["model"]["files"].get(n))
        raise Refused(f"{path}: captured from another model: {', '.join(moved)} differ by sha256")
    known = {p["id"] for p in golden["prompts"]}
    for p in profile["prompts"]:
        if p["id"] not in known:
            raise Refused(f"{path}: it has no prompt {p['id']!r}")
    if any(p["name"] == profile["name"] for p in golden["profiles"]):
        raise Refused(f"{path}: it has a profile {profile['name']!r} already")
    golden["profiles"].append(profile)


def save(golden, path):
    """Written to a temporary name beside it and renamed, so that a broken capture loses nothing."""
    fd, tmp = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), prefix=".golden-")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as f:
            json.dump(golden, f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")
            f.flush()
            os.fsync(f.fileno())
        os.chmod(tmp, 0o644)
        os.replace(tmp, path)
    except BaseException:
        if os.path.exists(tmp):
            os.unlink(tmp)
        raise


def open_or_new(path, name, model_name, files, prompts, max_tokens):
    if not os.path.exists(path):
        return new(name, model_name, files, prompts, max_tokens)
    golden = load(path)
    ours = {p["id"]: p["ids"] for p in prompts}
    theirs = {p["id"]: p["ids"] for p in golden["prompts"]}
    for i, ids in ours.items():
        if theirs.get(i) != ids:
            raise Refused(f"{path}: prompt {i!r} is not the same there")
    return golden


def same_runs(runs):
    """Do all runs hold the same ids, log-probabilities and log-sum-exps?"""
    return all(r == runs[0] for r in runs[1:])


def command_line():
    """What was typed, with absolute paths reduced to their last component: a golden names no machine."""
    def short(word):
        before, like, path = word.rpartition("like:")
        return before + like + os.path.basename(path) if os.path.isabs(path) else word
    return " ".join(short(a) for a in [os.path.basename(sys.argv[0])] + sys.argv[1:])
