#!/bin/sh
# The house rules that a machine can see, then cppcheck, clang and clang-tidy where they are installed.
# lint.sh [FLAG]...: the compiler flags that clang and clang-tidy need.
set -u

failed=0
complain() {
	echo "$1"
	failed=1
}

files() {
	git ls-files --cached --others --exclude-standard -- "$@" | grep -v '^engine/tests/fixtures/'
}

# rule MESSAGE PATTERN EXCEPT FILE...: no line of the files matches PATTERN unless it matches EXCEPT.
rule() {
	message=$1 pattern=$2 except=$3
	shift 3
	found=$(grep -nE -- "$pattern" /dev/null "$@" | grep -vE -- "$except")
	[ -z "$found" ] || complain "$found
    ^ $message"
}

sources=$(files '*.c' '*.h' '*.cu')
product=$(files engine gates contract | grep -E '\.(c|h|cu)$' | grep -v '/tests/')
scripts=$(files '*.sh' '*.py' Makefile .ci)

rule 'factors arrive by argument, not by the environment' '\<(secure_)?getenv *\(' \
	'getenv\("(HOME|TMPDIR|NO_COLOR)"\)|name \? getenv\(name\)' $(echo "$product" | grep -E '^(engine|gates)/')
rule 'nothing is left undone in a comment' '\<(TO''DO|FIX''ME|XX''X)\>' '^$' $sources $scripts
rule 'the judge never includes the engine' '# *include +"engine/' '^$' $(echo "$product" | grep -E '^(gates|contract)/')
for part in engine gates contract; do
	rule 'a header of its own directory goes by its name alone' "# *include +\"$part/[a-z_]+\.h" '^$' \
		$(echo "$product" | grep -E "^$part/[^/]+\$")
done
rule 'no path of one machine' '(^|[^A-Za-z0-9_.])/(home|root|Users)/' '^$' $sources $scripts
rule 'white space at the end of a line' '[[:blank:]]+$' '^$' $sources $scripts
rule 'C is indented by tabs' '^ {4,}[^ *]' '^$' $sources

kernels=$(files '*.cu')
[ -z "$kernels" ] || rule 'a .cu file includes launch.h, device code that several share, and what CUDA brings' '# *include +"' \
	'"(launch\.h|[a-z]+\.cuh)"' $kernels

# A file or a function may be longer where a comment says "over 600 lines because" or "over 60 lines because";
# tests, which are lists, get 1000.
for f in $sources $scripts; do
	case $f in */tests/*) most=1000 ;; *) most=600 ;; esac
	lines=$(wc -l <"$f")
	[ "$lines" -le $most ] || grep -qi 'over 600 lines because' "$f" ||
		complain "$f: $lines lines, more than $most without a reason"
done
long=$(awk 'FNR == 1 { start = 0 }
	/[Oo]ver 60 lines because/ { excused = FNR }
	/^\{/ { start = FNR }
	/^\}/ && start { n = FNR - start - 1
		if (n > 60 && !(excused && excused > start - 6))
			print FILENAME ":" start ": a function of " n " lines, more than 60 without a reason"
		start = 0; excused = 0 }' /dev/null $(echo "$product" | grep -v '\.h$'))
[ -z "$long" ] || complain "$long"

code=$(echo "$product" | grep '\.c$')
if command -v cppcheck >/dev/null 2>&1; then
	echo "lint: cppcheck"
	# it does not follow results through pointers, vector types or BUG_ON; gcc and the sanitizers do
	cppcheck -q --std=c11 --language=c --enable=warning,portability --inline-suppr --error-exitcode=1 -I. \
		--suppress=missingInclude --suppress=uninitvar --suppress=legacyUninitvar \
		--suppress=nullPointerRedundantCheck --suppress=unknownMacro --suppress=internalAstError $code || failed=1
else
	echo "lint: cppcheck skipped, it is not installed"
fi
if command -v clang >/dev/null 2>&1; then
	echo "lint: clang compiles it too"
	for f in $(echo "$code" | grep -v '^engine/cuda/'); do
		clang "$@" -Wall -Wextra -Werror -fsyntax-only -DLEVEL=portable -DLEVEL_HEADER='"vec_portable.h"' "$f" || failed=1
	done
else
	echo "lint: clang skipped, it is not installed"
fi
if command -v clang-tidy >/dev/null 2>&1; then
	echo "lint: clang-tidy"
	# the kernels of engine/cpu are compiled once per dispatch level, engine/cuda needs the toolkit
	for f in $(echo "$code" | grep -vE '^engine/(cpu|cuda)/'); do
		clang-tidy --quiet "$f" -- "$@" 2>/dev/null || failed=1
	done
else
	echo "lint: clang-tidy skipped, it is not installed"
fi

[ "$failed" -eq 0 ] && echo "lint: clean"
