#!/bin/sh
# Build llama.cpp's library for the CPU from one pinned Python source package, and our timing program on it.
#
# usage: build.sh DIR [JOBS]
#
# The source package of llama-cpp-python vendors the whole llama.cpp tree, so the package index is the only network
# source.  Leaves
#   DIR/src      the unpacked package (llama.cpp in src/vendor/llama.cpp)
#   DIR/build    the CMake build; DIR/build/bin has libllama.so
#   DIR/venv     Python with numpy and gguf
#   DIR/bin/bench
#   DIR/build.json   what was built
# A second run in the same DIR only does what is missing.  Debian packages: cmake g++ ninja-build python3-venv
# (installed here when run as root, named otherwise).  A build for this machine alone: -march=native.
set -eu

PACKAGE=llama-cpp-python
VERSION=0.3.36
SHA256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
COMMIT=0c1e57098bba43ac29e6e3b677cdceebdd22334f		# the vendored llama.cpp, 0.5.0-dev
APT='cmake g++ ninja-build python3-venv'

[ $# -ge 1 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
root=$(cd "$1" && pwd)
jobs=${2:-$(nproc)}
here=$(cd "$(dirname "$0")" && pwd)

missing=
for package in $APT; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
	if [ "$(id -u)" -ne 0 ]; then
		echo "build.sh: first run as root: apt-get install --no-install-recommends$missing" >&2
		exit 1
	fi
	apt-get update
	# shellcheck disable=SC2086 # a list of words
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
fi

py=$root/venv/bin/python
if [ ! -f "$root/venv/done" ]; then
	/usr/bin/python3 -m venv "$root/venv"
	"$py" -m pip install --quiet --disable-pip-version-check numpy==2.4.6 tqdm==4.70.1 PyYAML==6.0.4 requests==2.34.2
	touch "$root/venv/done"
fi

sdist=$root/llama_cpp_python-$VERSION.tar.gz
if [ ! -f "$sdist" ]; then
	# only this package from source: with :all: pip would also compile the build tools
	echo "$PACKAGE==$VERSION --hash=sha256:$SHA256" > "$root/sdist.txt"
	"$py" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary $PACKAGE \
		--require-hashes -r "$root/sdist.txt" -d "$root"
fi
echo "$SHA256  $sdist" | sha256sum --check --quiet

if [ ! -d "$root/src" ]; then
	rm -rf "$root/src.part"
	mkdir "$root/src.part"
	tar -xzf "$sdist" -C "$root/src.part" --strip-components=1
	mv "$root/src.part" "$root/src"
fi

tree=$root/src/vendor/llama.cpp
if [ ! -f "$root/build/bin/libllama.so" ]; then
	cmake -S "$tree" -B "$root/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
		-DGGML_NATIVE=ON -DGGML_CCACHE=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
		-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
		-DLLAMA_BUILD_NUMBER=0 -DLLAMA_BUILD_COMMIT="$(echo $COMMIT | cut -c1-9)" > "$root/cmake.log"
	cmake --build "$root/build" -j "$jobs" --target llama
fi

site=$("$py" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
rm -rf "$site/gguf"
cp -r "$tree/gguf-py/gguf" "$site/"

mkdir -p "$root/bin"
cc -O2 -std=gnu11 -Wall -Wextra -I"$tree/include" -I"$tree/ggml/include" -o "$root/bin/bench" "$here/bench.c" \
	-L"$root/build/bin" -Wl,-rpath,"$root/build/bin" -lllama -lggml -lggml-base
cat > "$root/build.json" <<END
{"package": "$PACKAGE $VERSION", "sdist_sha256": "$SHA256", "llama_cpp_commit": "$COMMIT",
 "compiler": "$(c++ --version | head -n 1)", "build_type": "Release, -march=native, OpenMP, llamafile sgemm"}
END
echo "built in $root"
