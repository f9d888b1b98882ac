#!/bin/sh
# Captures oracle-goldens/book52-nvfp4-transformers.json anew, into BUILD/goldens, and shows how it differs from the one that is there.
# goldens.sh BUILD.   The first call makes a Python environment in BUILD/goldens/venv; an interrupted capture resumes.
set -eu

build=$1
venv=$build/goldens/venv
golden=oracle-goldens/book52-nvfp4-transformers.json
new=$build/goldens/book52-nvfp4-transformers.json

if [ ! -e "$venv/done" ]; then
	command -v python3 >/dev/null 2>&1 || { echo "goldens: no python3 is installed" >&2; exit 2; }
	mkdir -p "$build/goldens"
	python3 -m venv "$venv" || { echo "goldens: python3 -m venv fails; Debian has it in python3-venv" >&2; exit 2; }
	"$venv/bin/pip" install -q -r oracle-goldens/capture/requirements-transformers.txt
	: >"$venv/done"
fi
"$build/assay" capture recipes/capture-book52-transformers.yaml --golden "$new" --python "$venv/bin/python"
"$build/assay" golden check --model oracle-goldens/models/book52-nvfp4 "$new"
"$build/assay" golden diff "$golden" "$new" && echo "goldens: $new equals $golden" || {
	[ $? = 1 ] || exit 2
	echo "goldens: $new differs from $golden, see above"
}
