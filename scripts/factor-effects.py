#!/usr/bin/env python3
"""Prints the table of docs/factors.md from a run of recipes/factor-effects.yaml:  factor-effects.py RUN_DIR"""
import json
import sys

def main():
    with open(sys.argv[1] + "/verdict.json", encoding="utf-8") as f:
        verdict = json.load(f)
    print("| leg | differs from `base` in | median distance | tokens of %d that differ | R |" %
          verdict["legs"]["base"]["tokens"]["planned"])
    print("|---|---|---|---|---|")
    for pair in verdict["pairs"]:
        if pair["a"] != "base":
            continue
        leg = verdict["legs"][pair["b"]]
        ids = {b: {p["id"]: p["got"] for p in verdict["legs"][b]["prompts"]} for b in ("base", pair["b"])}
        differ = sum(x != y for p in ids["base"] for x, y in zip(ids["base"][p], ids[pair["b"]][p]))
        moved = "0, bit-equal" if pair["logits_bit_equal"] else "%.3f" % pair["distance"]
        print("| %s | %s | %s | %d | %.2f |" % (pair["b"], ", ".join(f"`{f}`" for f in pair["differ_in"]), moved, differ,
                                               leg["noise"]["distance"]["R"]))

if __name__ == "__main__":
    main()
