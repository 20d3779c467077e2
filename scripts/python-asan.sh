#!/usr/bin/env bash
# Tests the Python extension under the address and undefined behaviour sanitizers, over a
# libstepvan.so with the address sanitizer. So the sanitizer sees what both do to memory, also to
# the memory of tensors. Objects come from malloc, one by one, so that it also sees objects that were
# freed too early. The script builds into build/asan; what is installed stays as it is. It leaves out
# test_package.py and test_archive.py, which are about what is installed, and test_steady.py, which measures
# the memory of processes. The tests of resharding, of signatures and caches, and of copies to devices make no calls of
# the extension that others do not make.
#
#   short  tests without processes of their own, and what was leaked from csrc
#   long   those, and the others, whose processes are not searched for leaks: that takes each many seconds
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh gcc=gcc,libc6-dev g++=g++ make /usr/bin/python3-config=python3-dev
make -s .cache/venv/ready
to=$PWD/build/asan
python=$PWD/.cache/venv/bin/python
warnings=(-Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-field-initializers)

left_out=(--ignore=tests/test_package.py --ignore=tests/test_archive.py --ignore=tests/test_steady.py)
left_out+=(--ignore=tests/test_signatures.py --ignore=tests/test_particles_cache.py --ignore=tests/test_replay_transfer.py)
for test in python/tests/test_resharding_*.py; do
	left_out+=(--ignore="${test#python/}")
done

build() {
	rm -rf "$to"
	make -s capi CAPI_DIR="$to/stepvan" CAPI_FLAGS=-asan
	cp -r python/src/stepvan python/src/fserver_lib python/src/fserver "$to"
	gcc -shared -fPIC -std=c11 -O1 -g -fno-omit-frame-pointer -fvisibility=hidden "${warnings[@]}" \
		-fsanitize=address,undefined -fno-sanitize-recover=undefined \
		-I "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')" -I capi python/csrc/*.c \
		-ldl -pthread -o "$to/stepvan/_core.abi3.so"
}

# tested OPTIONS ARGUMENT...: runs pytest, with more OPTIONS of the address sanitizer. The sanitizer's
# runtime is loaded first, together with the runtime of C++, whose exceptions it must find. Reports go to
# files, because pytest takes what processes print.
tested() {
	local options=$1
	shift
	local preload
	preload="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)"
	(
		cd python
		env PYTHONPATH="$to" PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 LD_PRELOAD="$preload" \
			ASAN_OPTIONS="abort_on_error=1:exitcode=0:log_path=$to/report:$options" UBSAN_OPTIONS="print_stacktrace=1:log_path=$to/report" \
			"$python" -c 'import sys, pytest, stepvan; assert stepvan.__file__.startswith(sys.argv.pop(1)); sys.exit(pytest.main())' \
			"$to" -o addopts="" -q --durations=5 -p no:cacheprovider --timeout=120 "${left_out[@]}" "$@"
	)
}

# shown: prints the reports. A leak is one of csrc when it or what it called took the memory; those of Python code
# that it ran, and the interpreter's own, are not. Fails when there is something to show.
shown() {
	local reports=("$to"/report.*)
	[[ -e ${reports[0]} ]] || return 0
	! awk '
		function finish() { if (leak && ours) { printf "%s\n", text; found = 1 } leak = 0 }
		/^(Direct|Indirect) leak of/ { finish(); leak = 1; ours = 0; python = 0; text = "" }
		/^SUMMARY:.* leaked in/ { finish(); next }
		/LeakSanitizer: detected memory leaks/ || /^=+$/ || /^$/ { next }
		leak && /_PyEval_EvalFrameDefault/ { python = 1 }
		leak && /[ \/]csrc\/[a-z]+\.c:/ && !python { ours = 1 }
		leak { text = text $0 "\n"; next }
		{ print; found = 1 }
		END { finish(); exit !found }
	' "${reports[@]}"
}

build
status=0
# The slower way to walk the stack passes the functions of Python, which have no frame pointers.
tested detect_leaks=1:fast_unwind_on_malloc=0:malloc_context_size=16 -m "not processes" || status=1
if [[ ${1-short} == long ]]; then
	tested detect_leaks=0 -m processes || status=1
fi
shown || status=1
exit $status
