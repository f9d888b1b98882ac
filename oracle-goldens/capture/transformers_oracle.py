#!/usr/bin/env python3
"""Captures a golden profile from transformers' NemotronH on a CPU or a CUDA device.

  transformers_oracle.py --model DIR --prompts FILE --golden OUT.json --profile NAME [--max-new N] [--dtype bf16|fp32|f64]
      [--fp8 w8a8|w8a16] [--attn eager|sdpa] [--no-cache] [--score] [--device cpu|cuda] [--threads N] [--repeats 2]

--prompts is a JSON list of {id, ids} or a golden, whose prompts are used.  --max-new may be "like:GOLDEN:PROFILE": as many tokens per
prompt as that profile has.  --score feeds the ids of the golden's first profile in one prefill and records the choices (mode forced).

transformers reads no ModelOpt checkpoint, so quantised modules are replaced here: y = round(x W^T * scale), with W the stored codes
(exact in every float type), the product in fp32 (f64 under --dtype f64) and one rounding.  FP8 modules with an input_scale
quantise their activations under w8a8 (docs/model.md, 4.2).  time_step_min is set to 0: otherwise transformers clamps dt from below in prefill
(docs/model.md, section 9), an error of up to 0.9 in the logits.

The capture runs --repeats times (at least twice) and records whether the runs agree bit for bit; with --require-reproducible it is
refused when they don't."""
import argparse
import json
import os
import platform
import sys
import time

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import golden_file as gf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from transformers.models.nemotron_h.configuration_nemotron_h import NemotronHConfig
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHForCausalLM

DTYPE = {"bf16": torch.bfloat16, "fp32": torch.float32, "f64": torch.float64}
E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


class Tensors(dict):
    """All tensors of a checkpoint directory under transformers' names."""
    def __init__(self, directory):
        super().__init__()
        for f in sorted(os.listdir(directory)):
            if f.endswith(".safetensors"):
                self.update({self.canonical(n): t for n, t in load_file(os.path.join(directory, f)).items()})

    @staticmethod
    def canonical(n):
        n = n.removeprefix("language_model.")
        return n.replace("backbone.", "model.", 1) if n.startswith("backbone.") else n

    def codes(self, module):
        """The stored values of a weight without its per-tensor scale, and that scale; (weight, None) if it is not quantised."""
        w = self[module + ".weight"]
        if w.dtype == torch.float8_e4m3fn:
            return w.to(torch.float32), self[module + ".weight_scale"].reshape(())
        if w.dtype == torch.uint8:
            v = torch.stack([E2M1[(w & 15).long()], E2M1[(w >> 4).long()]], -1).flatten(1)
            return (v * self[module + ".weight_scale"].double().repeat_interleave(16, 1)).float(), self[module + ".weight_scale_2"].reshape(())
        return w, None


class QuantLinear(torch.nn.Module):
    """y = round(x W^T * scale); the product and the scaling in `wide`, one rounding to the dtype of x."""
    def __init__(self, codes, scale, input_scale, wide, bias=None):
        super().__init__()
        self.register_buffer("w", codes.to(wide))
        self.register_buffer("scale", scale.to(wide))
        self.register_buffer("input_scale", None if input_scale is None else input_scale.reshape(()).float())
        self.register_buffer("bias_", bias)
        self.wide = wide

    def forward(self, x):
        v, scale = x.to(self.wide), self.scale
        if self.input_scale is not None:
            inverse = (1 / self.input_scale).to(self.wide)
            v = (v * inverse).clamp(-448, 448).float().to(torch.float8_e4m3fn).to(self.wide)
            scale = scale * self.input_scale.to(self.wide)
        y = torch.nn.functional.linear(v, self.w) * scale
        return (y if self.bias_ is None else y + self.bias_.to(self.wide)).to(x.dtype)


class QuantExperts(torch.nn.Module):
    """Routed experts as QuantLinear modules, combined as transformers does: fp32 sum in expert order, one rounding."""
    def __init__(self, up, down):
        super().__init__()
        self.up, self.down = torch.nn.ModuleList(up), torch.nn.ModuleList(down)

    def forward(self, x, index, weights):
        out = torch.zeros_like(x, dtype=weights.dtype)
        for e in index.unique().tolist():
            token, slot = torch.where(index == e)
            y = self.down[e](torch.relu(self.up[e](x[token])) ** 2)
            out.index_add_(0, token, y * weights[token, slot, None])
        return out.to(x.dtype)


def quantised(t, module, wide, w8a8):
    codes, scale = t.codes(module)
    if scale is None:
        return None
    use = w8a8 and t[module + ".weight"].dtype == torch.float8_e4m3fn
    return QuantLinear(codes, scale, t.get(module + ".input_scale") if use else None, wide, t.get(module + ".bias"))


def build(args):
    with open(os.path.join(args.model, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config.pop("quantization_config", None)
    c = NemotronHConfig(**config)
    c._experts_implementation = "eager"
    c._attn_implementation = args.attn
    dtype, wide = DTYPE[args.dtype], torch.float64 if args.dtype == "f64" else torch.float32
    t = Tensors(args.model)
    model = NemotronHForCausalLM(c).eval()
    model.to(dtype)
    for layer in model.model.layers:      # what time_step_min = 0 means; the initialiser takes its logarithm, so not in the config
        if hasattr(layer.mixer, "time_step_limit"):
            layer.mixer.time_step_limit = (0.0, float("inf"))
    state = {}
    for n, v in model.state_dict().items():
        if n.endswith(("experts.up_proj", "experts.down_proj")):
            a, _, b = n.rpartition(".")
            state[n] = torch.stack([t.codes(f"{a}.{e}.{b}")[0].to(dtype) for e in range(v.shape[0])])
        elif n.endswith(".weight"):
            state[n] = t.codes(n[:-7])[0].to(v.dtype)
        else:
            state[n] = t[n].to(v.dtype)
    model.load_state_dict(state)
    for name, _ in [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]:
        q = quantised(t, name, wide, args.fp8 == "w8a8")
        if q is not None:
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, q)
    for i, layer in enumerate(model.model.layers):
        experts = getattr(layer.mixer, "experts", None)
        p = f"model.layers.{i}.mixer.experts."
        if experts is not None and p + "0.up_proj.weight" in t and t.codes(p + "0.up_proj")[1] is not None:
            layer.mixer.experts = QuantExperts(*([quantised(t, f"{p}{e}.{b}", wide, False) for e in range(c.n_routed_experts)]
                                                 for b in ("up_proj", "down_proj")))
        gate = getattr(layer.mixer, "gate", None)
        if gate is not None:      # transformers keeps the router in fp32
            keep = torch.float64 if args.dtype == "f64" else torch.float32
            gate.weight.data = t[f"model.layers.{i}.mixer.gate.weight"].to(keep)
            gate.e_score_correction_bias.data = t[f"model.layers.{i}.mixer.gate.e_score_correction_bias"].to(keep)
    return model.to(args.device)


@torch.no_grad()
def decode(model, ids, n, cached, device):
    """Greedy: n rows of float64 logits and the ids chosen (equal logits: the lower id)."""
    rows, out, cache = [], [], None
    feed = torch.tensor([ids], device=device)
    for _ in range(n):
        if cached:
            r = model(feed, cache=cache, use_cache=True, logits_to_keep=1)
            cache = r.cache
        else:
            r = model(torch.tensor([ids + out], device=device), use_cache=False, logits_to_keep=1)
        row = r.logits[0, -1].double().cpu().numpy()
        rows.append(row)
        out.append(int(np.argmax(row)))
        feed = torch.tensor([[out[-1]]], device=device)
    return rows, out


@torch.no_grad()
def score(model, ids, given, device):
    r = model(torch.tensor([ids + given[:-1]], device=device), use_cache=False)
    rows = list(r.logits[0, len(ids) - 1:].double().cpu().numpy())
    return rows, [int(np.argmax(row)) for row in rows]


def capture(model, args, prompts, counts, given, tokenizer, progress=True):
    out = []
    for i, p in enumerate(prompts):
        start = time.time()
        if args.score:
            rows, ids = score(model, p["ids"], given[p["id"]], args.device)
        else:
            rows, ids = decode(model, p["ids"], counts[p["id"]], not args.no_cache, args.device)
        steps = []
        for row, chosen in zip(rows, ids):
            top, lse = gf.top_of(row)
            steps.append({"id": chosen, "top": top, "lse": lse})
        entry = {"id": p["id"], "ids": ids, "steps": steps}
        if tokenizer is not None:
            entry["text"] = tokenizer.decode(ids)
        out.append(entry)
        if progress:
            print(f"{args.profile}: prompt {i + 1} of {len(prompts)}, {len(ids)} tokens, {time.time() - start:.1f} s", file=sys.stderr, flush=True)
    return out


def resolved(model, args):
    """Read back from what was built, not from the arguments."""
    mixers = [layer.mixer for layer in model.model.layers]
    mamba = next(m for m in mixers if type(m).__name__ == "NemotronHMamba2Mixer")
    linear = model.lm_head
    quant = [m for m in model.modules() if isinstance(m, QuantLinear)]
    return {"dtype": str(next(model.parameters()).dtype), "attn_implementation": model.config._attn_implementation,
            "experts_implementation": model.config._experts_implementation, "time_step_limit": str(mamba.time_step_limit),
            "mamba_kernels": "torch", "use_cache": str(not (args.no_cache or args.score)), "lm_head": type(linear).__name__,
            "quant_linear_modules": len(quant), "w8a8_modules": sum(m.input_scale is not None for m in quant),
            "threads": torch.get_num_threads(), "torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--model", required=True)
    ap.add_argument("--prompts", required=True)
    ap.add_argument("--golden", required=True, help="written, or extended by one profile")
    ap.add_argument("--name", help="of a new golden (default: its file name)")
    ap.add_argument("--profile", required=True)
    ap.add_argument("--max-new", default="32")
    ap.add_argument("--only", help="comma-separated prompt ids")
    ap.add_argument("--dtype", choices=DTYPE, default="bf16")
    ap.add_argument("--fp8", choices=["w8a8", "w8a16"], default="w8a8")
    ap.add_argument("--attn", choices=["eager", "sdpa"], default="eager")
    ap.add_argument("--no-cache", action="store_true", help="recompute the whole sequence at every step")
    ap.add_argument("--score", action="store_true")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--repeats", type=int, default=2)
    ap.add_argument("--require-reproducible", action="store_true")
    args = ap.parse_args()
    if args.repeats < 2:
        raise gf.Refused("--repeats: at least 2, or nothing is known about reproducibility")
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    prompts = gf.load_prompts(args.prompts)
    if args.only:
        prompts = [p for p in prompts if p["id"] in args.only.split(",")]
    files = gf.model_files(args.model)
    name = args.name or os.path.splitext(os.path.basename(args.golden))[0]
    counts = {} if args.score else gf.counts_of(args.max_new, prompts)
    golden = gf.open_or_new(args.golden, name, os.path.basename(os.path.normpath(args.model)), files, prompts, max(counts.values(), default=0))
    given = {p["id"]: p["ids"] for p in golden["profiles"][0]["prompts"]} if args.score and golden["profiles"] else {}
    if args.score and any(p["id"] not in given for p in prompts):
        raise gf.Refused("--score: the golden's first profile has no ids for every prompt")
    tokenizer = None
    if os.path.exists(os.path.join(args.model, "tokenizer.json")):
        from tokenizers import Tokenizer
        tokenizer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    model = build(args)
    runs = [capture(model, args, prompts, counts, given, tokenizer) for _ in range(args.repeats)]
    agree = gf.same_runs(runs)
    if not agree and args.require_reproducible:
        raise gf.Refused(f"{args.profile}: {args.repeats} runs differ")
    device = torch.cuda.get_device_name() if args.device.startswith("cuda") else platform.processor() or platform.machine()
    gf.add(golden, {"name": args.profile,
                    "engine": {"name": "transformers", "version": transformers.__version__, "config": resolved(model, args)},
                    "device": device, "logits_dtype": args.dtype if args.dtype != "f64" else "fp32",
                    "captured": time.strftime("%Y-%m-%d", time.gmtime()), "command": gf.command_line(),
                    "repeats": args.repeats, "repeats_agree": agree, "mode": "forced" if args.score else "free", "prompts": runs[0]},
           files, args.golden)
    gf.save(golden, args.golden)
    print(f"{args.golden}: profile {args.profile}, {sum(len(p['ids']) for p in runs[0])} tokens, {args.repeats} runs "
          f"{'agree bit for bit' if agree else 'DIFFER: not reproducible'}")


if __name__ == "__main__":
    try:
        main()
    except (gf.Refused, OSError) as e:
        sys.exit(f"transformers_oracle: {e}")
