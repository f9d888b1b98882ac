#!/bin/sh
# llama.cpp's server as an oracle and as a leg, on a loopback port.   check-peers.sh LLAMACPP MODEL GOLDEN [PROMPTS [PORT]]
#
#   LLAMACPP   where llama.cpp was built: build/bin/llama-server and a gguf/NAME.gguf of the model, NAME as the model directory is called
#   MODEL      the checkpoint that the GGUF was converted from, and whose golden GOLDEN is
#   PROMPTS    of the leg, as in a recipe: "[p0, p1]"; default: all
# Nothing is built or fetched: building the server takes half an hour on two cores.  Exit code 77: llama-server is not there.
set -eu

[ -n "${1:-}" ] && [ -n "${2:-}" ] && [ -n "${3:-}" ] || {
	echo "usage: make check-peers LLAMACPP=DIR MODEL=DIR GOLDEN=FILE [PROMPTS='[ID, ...]']" >&2
	exit 2
}
llama=$1 model=$(realpath "$2") golden=$(realpath "$3") prompts=${4:-all} port=${5:-18080}
name=$(basename "$model")
server=$llama/build/bin/llama-server
gguf=$llama/gguf/$name.gguf
out=build/peers
for f in "$server" "$gguf"; do
	[ -e "$f" ] || { echo "check-peers: skipped, $f is not there" >&2; exit 77; }
done

mkdir -p "$out"
"$server" -m "$gguf" --alias "$name" --host 127.0.0.1 --port "$port" -t 1 -c 2048 -np 1 >"$out/server.log" 2>&1 &
pid=$!
trap 'kill $pid 2>/dev/null' EXIT
n=0
until grep -q 'listening on' "$out/server.log"; do
	kill -0 $pid 2>/dev/null && [ $n -lt 120 ] || { tail -n 5 "$out/server.log" >&2; exit 1; }
	n=$((n + 1))
	sleep 1
done

cat >"$out/capture.yaml" <<END
schema: assay/capture/1
name: $name-llamacpp
model: $model
prompts: $golden
golden: $out/$name-llamacpp.json
tokens: 16
profiles:
  base:   {program: openai, url: "http://127.0.0.1:$port/v1", model: $name}
  forced: {program: openai, url: "http://127.0.0.1:$port/v1", model: $name, mode: forced}
END
cat >"$out/leg.yaml" <<END
schema: assay/recipe/1
name: $name-llamacpp
kind: gate
question: Does llama.cpp on a CPU compute what the oracle does, to the oracle's own spread?
model: $model
golden: $golden
prompts: $prompts
steps: 96
modes: [free, forced]
timeout_s: 3600
legs:
  llamacpp: {engine: {openai: "http://127.0.0.1:$port/v1", model: $name}}
END
build/assay capture "$out/capture.yaml"
build/assay golden check "$out/$name-llamacpp.json"
rm -rf "$out/run"
code=0
build/assay run "$out/leg.yaml" --out "$out/run" || code=$?
# Another engine's arithmetic: forks at near-ties are what is expected of it.
[ $code -le 1 ] || exit $code
