#!/bin/sh
# Packs what a machine with a device but without this project's libraries needs.   device-package.sh BUILD DIR
# DIR gets the programs, stripped, as they lie in BUILD, and their shared libraries but the C library's and CUDA's.
set -eu

build=$1
to=$2
mkdir -p "$to/lib" "$to/engine/tests/cuda"
tests=$(cd "$build" && find engine/tests/cuda -maxdepth 1 -name 'check_*' -type f -perm -u+x ! -name '*.*')
for program in assay assay-engine assay-engine-faulty $tests; do
	cp "$build/$program" "$to/$program"
	strip "$to/$program"
	ldd "$build/$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | while read -r library; do
		case ${library##*/} in
		libc.so* | libm.so* | libpthread.so* | libdl.so* | librt.so* | libresolv.so* | libcuda* | libcublas* | libcupti*) ;;
		*) cp -L "$library" "$to/lib/" ;;
		esac
	done
done
chmod -R u+w "$to/lib"
strip "$to"/lib/* 2>/dev/null || true
echo "packed into $to: $(du -sh "$to" | cut -f 1)"
echo "there, from the repository root: sh scripts/check-cuda.sh $to"
