#!/usr/bin/env python3
"""Captures golden profiles from vLLM's offline LLM class, on a CUDA device.

  vllm_oracle.py --model DIR --prompts FILE --golden OUT.json --do PROFILE=MODE[,PROFILE=MODE...] [--kw JSON] [--max-new N]

One process is one engine; each PROFILE is captured from it under MODE:
  single   one prompt at a time
  batch    all prompts in one call
  forced   one prefill over prompt and continuation of the golden's first profile, with prompt_logprobs
--prompts is a JSON list of {id, ids} or a golden, whose prompts are used.  --max-new may be "like:GOLDEN:PROFILE".  --kw are further
arguments of LLM(...), e.g. '{"enforce_eager": true}'.

The configuration that is recorded is read back from the engine that was built, never echoed from the arguments.  The choice at each step is
the id that was sampled: at an exact tie the order inside the returned list says nothing.  Every profile is captured twice; whether
the runs agree bit for bit is recorded.  Known good: vLLM 0.26.0, torch 2.11.0+cu130, transformers 5.17.0, triton 3.6.0."""
import argparse
import json
import os
import sys
import time

for key, value in dict(VLLM_USE_FLASHINFER_SAMPLER="0", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1",
                       VLLM_DO_NOT_TRACK="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false").items():
    os.environ.setdefault(key, value)

import golden_file as gf

READ_BACK = {   # name in the golden: path from the engine's resolved configuration
    "dtype": "model_config.dtype", "quantization": "model_config.quantization", "max_model_len": "model_config.max_model_len",
    "enforce_eager": "model_config.enforce_eager", "logprobs_mode": "model_config.logprobs_mode", "block_size": "cache_config.block_size",
    "mamba_block_size": "cache_config.mamba_block_size", "mamba_page_size_padded": "cache_config.mamba_page_size_padded",
    "cache_dtype": "cache_config.cache_dtype", "mamba_cache_dtype": "cache_config.mamba_cache_dtype",
    "mamba_ssm_cache_dtype": "cache_config.mamba_ssm_cache_dtype", "mamba_cache_mode": "cache_config.mamba_cache_mode",
    "enable_prefix_caching": "cache_config.enable_prefix_caching", "num_gpu_blocks": "cache_config.num_gpu_blocks",
    "max_num_batched_tokens": "scheduler_config.max_num_batched_tokens", "max_num_seqs": "scheduler_config.max_num_seqs",
    "chunked_prefill": "scheduler_config.enable_chunked_prefill", "async_scheduling": "scheduler_config.async_scheduling",
    "compile_mode": "compilation_config.mode", "cudagraph_mode": "compilation_config.cudagraph_mode",
    "custom_ops": "compilation_config.custom_ops", "compile_backend": "compilation_config.backend",
    "attention_config": "attention_config", "kernel_config": "kernel_config", "mamba_config": "mamba_config"}


def follow(config, path):
    for part in path.split("."):
        config = getattr(config, part, None)
    return str(config)


def versions():
    import importlib.metadata as md
    out = {}
    for p in ("torch", "transformers", "triton", "compressed-tensors"):
        try:
            out[p] = md.version(p)
        except md.PackageNotFoundError:
            pass
    return out


def driver():
    import subprocess
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True,
                              check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def tops(position):
    """{id: Logprob} of one position as up to 20 [id, log-probability], best first, ties by lower id."""
    best = sorted(((int(t), l.logprob) for t, l in position.items()), key=lambda x: (-x[1], x[0]))[:20]
    return [[t, round(float(v), 6)] for t, v in best]


class Capture:
    def __init__(self, args, prompts, counts):
        from vllm import LLM
        self.args, self.prompts, self.counts = args, prompts, counts
        kw = dict(skip_tokenizer_init=True, max_model_len=2048, max_num_seqs=64, gpu_memory_utilization=0.05,
                  kv_cache_memory_bytes=1 << 30, attention_backend="TRITON_ATTN", disable_log_stats=True, seed=0)
        kw.update(json.loads(args.kw))
        self.llm = LLM(model=args.model, **{k: v for k, v in kw.items() if v is not None})

    def resolved(self, mode):
        import torch
        config = self.llm.llm_engine.vllm_config
        out = {name: follow(config, path) for name, path in READ_BACK.items()}
        return {**out, "batch": "1" if mode != "batch" else "all prompts together", "cuda": torch.version.cuda, "driver": driver(), **versions()}

    def generate(self, requests, **sampling):
        from vllm import SamplingParams
        params = [SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True, detokenize=False, **sampling) for _, n in requests]
        return self.llm.generate([{"prompt_token_ids": list(ids)} for ids, _ in requests], params, use_tqdm=False)

    def free(self, batch):
        requests = [(p["ids"], self.counts[p["id"]]) for p in self.prompts]
        groups = [requests] if batch else [[r] for r in requests]
        results = [o for g in groups for o in self.generate(g, logprobs=20)]
        out = []
        for p, o in zip(self.prompts, results):
            c = o.outputs[0]
            ids = [int(t) for t in c.token_ids]
            out.append({"id": p["id"], "ids": ids, "steps": [{"id": i, "top": tops(d)} for i, d in zip(ids, c.logprobs)]})
        return out

    def forced(self, given):
        out = []
        for p in self.prompts:
            text = given[p["id"]]
            o = self.generate([(list(p["ids"]) + text, 1)], prompt_logprobs=20)[0]
            steps = []
            for j in range(len(text)):
                top = tops({t: l for t, l in o.prompt_logprobs[len(p["ids"]) + j].items() if l.rank <= 20})
                steps.append({"id": top[0][0], "top": top})
            out.append({"id": p["id"], "ids": [s["id"] for s in steps], "steps": steps})
        return out

    def profile(self, name, mode, golden, repeats):
        import torch
        import vllm
        given = {p["id"]: p["ids"] for p in golden["profiles"][0]["prompts"]} if golden["profiles"] else {}
        if mode == "forced" and not given:
            raise gf.Refused(f"{name}: mode forced needs a profile whose ids are fed")
        runs = [self.forced(given) if mode == "forced" else self.free(mode == "batch") for _ in range(repeats)]
        return {"name": name, "engine": {"name": "vllm", "version": vllm.__version__, "config": self.resolved(mode)},
                "device": torch.cuda.get_device_name(), "logits_dtype": "fp32" if "float32" in self.resolved(mode)["dtype"] else "bf16",
                "captured": time.strftime("%Y-%m-%d", time.gmtime()), "command": gf.command_line(), "repeats": repeats,
                "repeats_agree": gf.same_runs(runs), "mode": "forced" if mode == "forced" else "free", "prompts": runs[0]}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "prompts", "golden", "do"):
        ap.add_argument("--" + name, required=True)
    ap.add_argument("--name")
    ap.add_argument("--kw", default="{}")
    ap.add_argument("--max-new", default="32")
    ap.add_argument("--only")
    ap.add_argument("--repeats", type=int, default=2)
    ap.add_argument("--require-reproducible", action="store_true")
    args = ap.parse_args()
    if args.repeats < 2:
        raise gf.Refused("--repeats: at least 2, or nothing is known about reproducibility")
    do = [item.split("=") for item in args.do.split(",")]
    for item in do:
        if len(item) != 2 or item[1] not in ("single", "batch", "forced"):
            raise gf.Refused(f"--do: {'='.join(item)!r} is not PROFILE=single, batch or forced")
    prompts = gf.load_prompts(args.prompts)
    if args.only:
        prompts = [p for p in prompts if p["id"] in args.only.split(",")]
    counts = gf.counts_of(args.max_new, prompts)
    files = gf.model_files(args.model)
    name = args.name or os.path.splitext(os.path.basename(args.golden))[0]
    golden = gf.open_or_new(args.golden, name, os.path.basename(os.path.normpath(args.model)), files, prompts, max(counts.values()))
    engine = Capture(args, prompts, counts)
    for profile, mode in do:
        start = time.time()
        made = engine.profile(profile, mode, golden, args.repeats)
        if not made["repeats_agree"] and args.require_reproducible:
            raise gf.Refused(f"{profile}: {args.repeats} runs differ")
        gf.add(golden, made, files, args.golden)
        gf.save(golden, args.golden)
        print(f"{args.golden}: profile {profile}, {sum(len(p['ids']) for p in made['prompts'])} tokens, {args.repeats} runs "
              f"{'agree bit for bit' if made['repeats_agree'] else 'DIFFER: not reproducible'}, {time.time() - start:.1f} s", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (gf.Refused, OSError) as e:
        sys.exit(f"vllm_oracle: {e}")
