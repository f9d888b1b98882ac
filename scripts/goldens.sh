#!/bin/sh
# Captures oracle-goldens/book52-nvfp4-transformers.json anew, into BUILD/goldens, and shows how it differs from the one that is there.
# goldens.sh BUILD [PYTHON].   PYTHON: one that has oracle-goldens/capture/requirements-transformers.txt installed; without it the first call
# makes an environment in BUILD/goldens/venv.  An interrupted capture resumes.
set -eu

build=$1
python=${2:-}
venv=$build/goldens/venv
golden=oracle-goldens/book52-nvfp4-transformers.json
new=$build/goldens/book52-nvfp4-transformers.json

if [ -n "$python" ]; then
	"$python" -c 'import numpy, safetensors, tokenizers, torch, transformers' || {
		echo "goldens: $python lacks what oracle-goldens/capture/requirements-transformers.txt lists" >&2
		exit 2
	}
else
	if [ ! -e "$venv/done" ]; then
		command -v python3 >/dev/null 2>&1 || { echo "goldens: no python3 is installed" >&2; exit 2; }
		mkdir -p "$build/goldens"
		python3 -m venv "$venv" || { echo "goldens: python3 -m venv fails; Debian has it in python3-venv" >&2; exit 2; }
		"$venv/bin/pip" install -q -r oracle-goldens/capture/requirements-transformers.txt
		: >"$venv/done"
	fi
	python=$venv/bin/python
fi
"$build/assay" capture recipes/capture-book52-transformers.yaml --golden "$new" --python "$python"
"$build/assay" golden check --model oracle-goldens/models/book52-nvfp4 "$new"
"$build/assay" golden diff "$golden" "$new" && echo "goldens: $new equals $golden" || {
	[ $? = 1 ] || exit 2
	echo "goldens: $new differs from $golden, see above"
}
