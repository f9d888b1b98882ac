#!/bin/sh
# Everything that needs an NVIDIA device.   check-cuda.sh DIR [OUT]
# DIR: the programs as `make check-cuda` builds them (build/), or as `make device-package` packs them.  Run it from the
# repository root; OUT keeps what it writes (default DIR/check-cuda).  Exit 0 all passed, 1 not so, 77 there is no device.
# TESTS names test programs (default all), JOBS how many sanitizers run at a time (8), LIMIT_S the time of each part (300).
set -u

dir=$1
out=${2:-$dir/check-cuda}
jobs=${JOBS:-8}
mkdir -p "$out" || exit 1
[ ! -d "$dir/lib" ] || export LD_LIBRARY_PATH="$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
engine=$dir/assay-engine
failed=

say() { echo "$*" | tee -a "$out/summary"; }

# part NAME COMMAND...: what it printed is in OUT/NAME.log, how it went in OUT/NAME.status
part() {
	name=$1
	shift
	begun=$(date +%s)
	status=0
	timeout -k 10 "${LIMIT_S:-300}" "$@" >"$out/$name.log" 2>&1 </dev/null || status=$?
	echo "$status $name, $(($(date +%s) - begun)) s:" >"$out/$name.status"
}

# tell PATTERN NAME...: a line for each part, with what matches in its log
tell() {
	pattern=$1
	shift
	for name in "$@"; do
		read -r code words <"$out/$name.status"
		say "$words exit $code  $(grep -E "$pattern" "$out/$name.log" | sed 's/^=* *//' | tr '\n' ' ')"
		[ "$code" -eq 0 ] || failed="$failed $name"
	done
}

: >"$out/summary"
printf '[{"id":"a","ids":[5]},{"id":"b","ids":[' >"$out/prompts.json"
seq -s , 1 75 >"$out/ids" && printf '%s]}]' "$(cat "$out/ids")" >>"$out/prompts.json"

"$engine" run --model engine/tests/fixtures/tiny-mix8 --prompts "$out/prompts.json" --steps 2 --arm backend=cuda \
	--report "$out/first.json" 2>"$out/first.err"
case $? in
0) ;;
77)
	echo "check-cuda: skipped: $(cat "$out/first.err")"
	exit 77
	;;
*)
	cat "$out/first.err"
	exit 1
	;;
esac
grep -o '"features": *{[^}]*}' "$out/first.json" >"$out/features"

# ---- tests, and the device against the counters: none of them is timed, so they run together ----

all=$(cd "$dir/engine/tests/cuda" && find . -maxdepth 1 -name 'check_*' ! -name '*.*' -type f -perm -u+x | sed 's|^\./||' | sort)
tests=${TESTS:-$all}
for test in $tests; do
	part "$test" "$dir/engine/tests/cuda/$test" &
done
part selftest "$dir/assay" selftest --backend cuda --engine "$dir/assay-engine-faulty" --out "$out/selftest" &
rm -rf "$out/device-audit"
part device-audit "$dir/assay" run "${AUDIT:-recipes/device-audit.yaml}" --out "$out/device-audit" &
wait
# shellcheck disable=SC2086
tell '^[0-9]+%: Checks|planted faults caught|^(DECIDED|ERROR|VOID|NOT MEASURED|SHORT|UNDECIDED)' $tests selftest device-audit

# ---- compute-sanitizer ----

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
cases='tiny-mix8 backend=cuda
tiny-lightning backend=cuda,graph=off,mamba.decode=chunk,batch=2
tiny-lightning backend=cuda,mamba.proj=w8a8-lt
tiny-super backend=cuda,compute=fp32,graph=off
tiny-latent backend=cuda,graph=off,batch=2
tiny-odd backend=cuda
tiny-group backend=cuda,graph=off,place.mamba=host
tiny-fp8 backend=cuda,slots=dirty'

if [ -z "$sanitizer" ]; then
	say 'compute-sanitizer: not found'
else
	names=
	n=0
	for tool in memcheck racecheck initcheck synccheck; do
		options=
		[ $tool != memcheck ] || options='--leak-check full'
		while read -r fixture arm; do
			n=$((n + 1))
			name=$tool.$n.$fixture
			names="$names $name"
			# shellcheck disable=SC2086
			part "$name" "$sanitizer" --tool $tool $options --error-exitcode 9 "$engine" run \
				--model "engine/tests/fixtures/$fixture" --prompts "$out/prompts.json" --steps 3 --arm "$arm" \
				--report "$out/$name.json" &
			[ $((n % jobs)) -ne 0 ] || wait
		done <<-END
			$cases
		END
	done
	wait
	# shellcheck disable=SC2086
	tell 'SUMMARY' $names
fi

[ -z "$failed" ] || say "failed:$failed"
[ -z "$failed" ]
