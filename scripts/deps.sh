#!/bin/sh
# Installs the Debian packages that the build and the tests need and that are missing; does nothing, and asks no
# network, when all are there.   deps.sh [--check]: only say what is missing.   Exit 2: something stays missing.
set -u

# What pkg-config calls it, and the Debian package.
modules='jansson:libjansson-dev yaml-0.1:libyaml-dev libpcre2-8:libpcre2-dev libcrypto:libssl-dev
	libxxhash:libxxhash-dev libcurl:libcurl4-openssl-dev check:check'

have_module() {
	if command -v pkg-config >/dev/null 2>&1; then
		pkg-config --exists "$1"
	else
		dpkg-query -W -f '${Status}' "$2" 2>/dev/null | grep -q '^install ok installed'
	fi
}

# What the HTML report embeds.
have_chart_js() {
	[ -f /usr/share/javascript/chart.js/chart.min.js ]
}

# What JUnit is held against its schema with.
have_xmllint() {
	command -v xmllint >/dev/null 2>&1
}

have_headers() {
	printf '#include <stdio.h>\n' | "${CC:-gcc}" -E - >/dev/null 2>&1
}

missing_packages() {
	command -v pkg-config >/dev/null 2>&1 || echo pkg-config
	command -v "${CC:-gcc}" >/dev/null 2>&1 || echo gcc
	have_headers || echo libc6-dev
	for m in $modules; do
		have_module "${m%%:*}" "${m#*:}" || echo "${m#*:}"
	done
}

# What is only wanted is no reason to stop.
refuse() {
	if [ -z "$missing" ]; then
		echo "deps: $1; without libjs-chart.js HTML reports have tables instead of charts, without libxml2-utils no test holds JUnit" \
			"against its schema; missing:$wanted" >&2
		exit 0
	fi
	echo "deps: $1" >&2
	echo "deps: missing packages:" $missing >&2
	exit 2
}

# Every missing package has a candidate in the lists that are there.
lists_know_them() {
	for p in $missing $wanted; do
		apt-cache show "$p" >/dev/null 2>&1 || return 1
	done
}

missing=$(missing_packages) wanted=
[ "${1:-}" = --check ] || have_chart_js || wanted=" libjs-chart.js"
[ "${1:-}" = --check ] || have_xmllint || wanted="$wanted libxml2-utils"
[ -n "$missing$wanted" ] || exit 0
[ "${1:-}" != --check ] || refuse 'run `make deps`, or install them by hand'
command -v apt-get >/dev/null 2>&1 || refuse 'there is no apt-get here; install the equivalents by hand'

sudo=
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null 2>&1 || refuse 'not root, and there is no sudo'
	sudo=sudo
	[ -t 0 ] || sudo='sudo -n'      # nobody is there to type a password
	$sudo true || refuse 'sudo refuses'
fi

echo "deps: installing" $missing $wanted
get="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y"
install="$get install --no-install-recommends"
updated=
if ! lists_know_them; then
	$get update </dev/null || refuse 'apt-get update failed'
	updated=1
fi
if ! $install $missing $wanted </dev/null; then
	# What must be there does not wait for what is only wanted.
	[ -n "$updated" ] || $get update </dev/null
	if [ -n "$missing" ]; then
		$install $missing </dev/null || refuse 'apt-get install failed'
	fi
	if [ -n "$wanted" ]; then
		$install $wanted </dev/null || { missing=; refuse 'apt-get install failed'; }
	fi
fi
missing=$(missing_packages)
[ -z "$missing" ] || refuse 'installed, but still not found'
