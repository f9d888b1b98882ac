#!/usr/bin/env python3
"""What `assay report --junit` and `--bench` print, read by others: libxml2 against a schema, junitparser, and the shape that
github-action-benchmark documents.

  check_readers.py ASSAY

Exit code 77: there is neither xmllint (Debian: libxml2-utils) nor junitparser (PyPI; `make check-junit` brings one).
"""
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [f"{HERE}/verdicts/{name}" for name in sorted(os.listdir(f"{HERE}/verdicts")) if os.path.isdir(f"{HERE}/verdicts/{name}")]
CASES.append(f"{HERE}/nasty")
SCHEMA = f"{HERE}/junit.xsd"
ran, failed = 0, 0

try:
    import junitparser
except ImportError:
    junitparser = None


def check(case, what, look):
    global ran, failed
    ran += 1
    try:
        look()
    except Exception as e:
        failed += 1
        print(f"{os.path.basename(case)}: {what}: {type(e).__name__}: {e}", file=sys.stderr)


def valid(path):
    done = subprocess.run(["xmllint", "--noout", "--schema", SCHEMA, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def tampered(path, old, new):
    """A schema that lets everything pass would be none."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    assert old in text, f"{old} is not in it"
    with open(path + ".bad", "w", encoding="utf-8") as f:
        f.write(text.replace(old, new, 1))
    done = subprocess.run(["xmllint", "--noout", "--schema", SCHEMA, path + ".bad"], capture_output=True, text=True)
    assert done.returncode != 0, f"{new} passes"


def parsed(path, verdict):
    """Sums as counted by the reader are those that are written, and the verdict's case says what the exit code says."""
    read = junitparser.JUnitXml.fromfile(path)
    totals = {"tests": 0, "failures": 0, "errors": 0}
    for suite in read:
        cases = list(suite)
        kinds = [r for case in cases for r in case.result]
        got = {"tests": len(cases), "failures": sum(isinstance(r, junitparser.Failure) for r in kinds),
               "errors": sum(isinstance(r, junitparser.Error) for r in kinds), "skipped": sum(isinstance(r, junitparser.Skipped) for r in kinds)}
        for key, n in got.items():
            assert getattr(suite, key) == n, f"{suite.name}: {key} says {getattr(suite, key)}, {n} are there"
        for key in totals:
            totals[key] += got[key]
    for key, n in totals.items():
        assert getattr(read, key) == n, f"{key} says {getattr(read, key)}, {n} are there"
    *legs, last = list(read)
    assert [s.name.split(".", 1)[1] for s in legs] == list(verdict["legs"]), "a suite per leg"
    (overall,) = list(last)
    assert bool(overall.result) == (verdict["overall"]["exit_code"] != 0), "the verdict's case fails when the exit code is not 0"


def array(text):
    """[{name, unit, value, range?, extra?}]: customSmallerIsBetter."""
    entries = json.loads(text)
    assert isinstance(entries, list)
    for e in entries:
        assert set(e) <= {"name", "unit", "value", "range", "extra"}, f"keys {sorted(e)}"
        assert isinstance(e["name"], str) and e["name"] and isinstance(e["unit"], str) and e["unit"]
        assert isinstance(e["value"], (int, float)) and not isinstance(e["value"], bool) and math.isfinite(e["value"]) and e["value"] > 0
        assert all(isinstance(e[k], str) for k in ("range", "extra") if k in e)
    names = [e["name"] for e in entries]
    assert len(names) == len(set(names)), "the chart tells its lines apart by name"


def main():
    (assay,) = sys.argv[1:]
    xmllint = shutil.which("xmllint")
    if not xmllint and not junitparser:
        print("check_readers: skipped, neither xmllint (Debian: libxml2-utils) nor junitparser (make check-junit) is here")
        sys.exit(77)
    if not xmllint:
        print("check_readers: without xmllint (Debian: libxml2-utils) nothing is held against the schema")
    if not junitparser:
        print("check_readers: without junitparser (make check-junit) nothing is read by it")
    with tempfile.TemporaryDirectory() as out:
        xml = f"{out}/junit.xml"
        for case in CASES:
            done = subprocess.run([assay, "report", case, "--junit", xml, "--bench", "-"], capture_output=True, text=True)
            if done.returncode:
                check(case, "assay report", lambda done=done: (_ for _ in ()).throw(RuntimeError(done.stderr)))
                continue
            check(case, "bench array", lambda done=done: array(done.stdout))
            if xmllint:
                check(case, "schema", lambda: valid(xml))
            if junitparser:
                run = f"{out}/run"
                shutil.rmtree(run, ignore_errors=True)
                shutil.copytree(case, run)
                subprocess.run([assay, "judge", run, "--quiet"], capture_output=True)
                shown = subprocess.run([assay, "judge", run, "--json"], capture_output=True, text=True).stdout
                check(case, "junitparser", lambda shown=shown: parsed(xml, json.loads(shown)))
        if xmllint:
            for old, new in ((' failures="', ' failures="-'), ("<testcase ", "<case "), (' message="', ' remark="'), (' tests="', ' test="')):
                check("nasty", f"{new.strip()} is refused", lambda old=old, new=new: tampered(xml, old, new))
    print(f"{100 * (ran - failed) // ran}%: Checks: {ran}, Failures: {failed}, Errors: 0")
    sys.exit(failed != 0)


main()
