#!/bin/sh
# Runs test programs one after the other and counts their checks.   run-tests.sh [--with COMMAND] PROGRAM...
# Fails if a check fails, a program dies, says nothing of its checks or runs none, or if nothing ran at all.
# A program that exits 77 cannot run here and has said why: it is skipped.  PROGRAM.log keeps what it printed.
set -u

with=
if [ "${1:-}" = --with ]; then
	with=$2
	shift 2
fi
limit=${TEST_TIMEOUT_S:-900}
trap 'exit 130' INT
trap 'exit 143' TERM

# A report of a sanitizer can have ten thousand lines.
show() {
	lines=$(wc -l <"$1")
	if [ "$lines" -le 200 ]; then
		cat "$1"
	else
		head -n 100 "$1"
		echo "... $((lines - 150)) more lines in $1 ..."
		tail -n 50 "$1"
	fi
}

passed=0 failed=0 programs=0 broken= skipped=
for program in "$@"; do
	echo "== $program"
	programs=$((programs + 1))
	status=0
	output=$program.log
	timeout -k 10 "$limit" $with "$program" </dev/null >"$output" 2>&1 || status=$?
	show "$output"
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
