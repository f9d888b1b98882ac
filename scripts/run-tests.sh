#!/bin/sh
# Runs test programs one after the other and counts their checks.   run-tests.sh [--with COMMAND] PROGRAM...
# Fails if a check fails, a program dies, says nothing of its checks or runs none, or if nothing ran at all.
# A program that exits 77 cannot run here and has said why: it is skipped.
set -u

with=
if [ "${1:-}" = --with ]; then
	with=$2
	shift 2
fi
limit=${TEST_TIMEOUT_S:-900}
output=$(mktemp) || exit 2
trap 'rm -f "$output"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

passed=0 failed=0 programs=0 broken= skipped=
for program in "$@"; do
	echo "== $program"
	programs=$((programs + 1))
	status=0
	timeout -k 10 "$limit" $with "$program" </dev/null >"$output" 2>&1 || status=$?
	cat "$output"
	if [ "$status" -eq 77 ]; then
		skipped="$skipped $program"
		continue
	fi
	# "97%: Checks: 70, Failures: 2, Errors: 0", one line a suite runner
	set_of_counts=$(sed -n 's/^[0-9]*%: Checks: \([0-9]*\), Failures: \([0-9]*\), Errors: \([0-9]*\)$/\1 \2 \3/p' "$output" |
		awk '{ c += $1; f += $2 + $3 } END { print c + 0, f + 0 }')
	checks=${set_of_counts% *} bad=${set_of_counts#* }
	passed=$((passed + checks - bad))
	failed=$((failed + bad))
	if [ "$status" -ne 0 ] || [ "$checks" -eq 0 ] || [ "$bad" -ne 0 ]; then
		broken="$broken $program"
		case $status in
		124 | 137) why="stopped after $limit s, or killed" ;;
		0) why='ran no check' ;;
		*) why="exit code $status" ;;
		esac
		# what no summary line counts is one failure
		[ "$bad" -ne 0 ] || failed=$((failed + 1))
		[ "$bad" -ne 0 ] || echo "$program: $why"
	fi
done

[ -z "$skipped" ] || echo "skipped:$skipped"
[ -z "$broken" ] || echo "failed:$broken"
echo "$passed passed, $failed failed ($programs test programs)"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
