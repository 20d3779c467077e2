#!/usr/bin/env bash
# Compares packages layout and reshard with torch and megatron-core themselves, and package bus with msgspec. They are
# installed into .cache, in CPython 3.12.
#
#   scripts/oracle.sh [record|install|refit|bus|replay]
#
# It makes the recordings anew, which must be the bytes in layout/testdata and bus/testdata. Then it compares thousands
# of further cases, and runs refits over the wheel: Megatron-core's own, and between two jobs of torchrun, also over the
# tensor bus. With refit it does only that, and with bus only what needs msgspec. With replay it only runs the pipeline
# of UniLab, whose source comes from its repository. With record it writes the recordings instead, and with install it
# only installs.
#
# ORACLE_PYTHON names the interpreter. ORACLE_SEED is the seed of the further cases. ORACLE_UNILAB is where the
# repository of UniLab is, if not at GitHub.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$PWD/.cache/tools
env=$PWD/.cache/oracle/env
bus=$PWD/.cache/oracle/bus
logs=$PWD/.cache/oracle/logs
live=$PWD/.cache/oracle/live
anew=$PWD/.cache/oracle/anew
wheel=$PWD/.cache/oracle/wheel
requirements=scripts/oracle/requirements.txt
seed=${ORACLE_SEED:-1}

# How many further cases. Those between processes take a second each.
layouts=5000
commands=5000
gloo=200
rosters=5000

# uv brings an interpreter where it is missing, and knows its hash.
uv='uv==0.13.9'
uv_hash=sha256:d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19 # of x86-64

# fits PYTHON: whether it is CPython 3.12 and can make environments.
fits() {
	"$1" -c 'import ensurepip, sys, venv; sys.exit(sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 12))' 2>/dev/null
}

# look prints the path of CPython 3.12 where there is one.
look() {
	local found
	for found in python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python3.12 "$tools"/cpython/*/bin/python3.12; do
		if fits "$found"; then
			echo "$found"
			return
		fi
	done
	return 1
}

# interpreter prints the path of CPython 3.12, and installs it where it is missing.
interpreter() {
	if [[ -n ${ORACLE_PYTHON:-} ]]; then
		fits "$ORACLE_PYTHON" || {
			echo "ORACLE_PYTHON is not CPython 3.12 with the modules venv and ensurepip (got $ORACLE_PYTHON)" >&2
			return 1
		}
		echo "$ORACLE_PYTHON"
		return
	fi
	look && return
	echo "CPython 3.12 is missing: installing it" >&2
	install_interpreter >&2 || true
	look && return
	cat >&2 <<-'END'
		CPython 3.12 is missing, which megatron-core needs, and it cannot be installed here. Install it with its module
		venv (pyenv install 3.12, or uv python install 3.12, or apt-get install python3.12-venv on Ubuntu 24.04), or
		name it in ORACLE_PYTHON.
	END
	return 1
}

# install_interpreter takes it from the distribution, or else from where uv has it.
install_interpreter() {
	if apt-cache show python3.12-venv >/dev/null 2>&1; then
		scripts/need.sh python3.12=python3.12,python3.12-venv
		return
	fi
	local folder=$tools/${uv/==/-}
	if [[ ! -x $folder/bin/uv ]]; then
		rm -rf "$folder"
		python3 -m pip install --quiet --no-input --root-user-action ignore --disable-pip-version-check --no-deps \
			--require-hashes --only-binary :all: --target "$folder" --requirement <(echo "$uv --hash=$uv_hash") || return 1
	fi
	timeout 600 "$folder/bin/uv" --no-config python install --no-bin --install-dir "$tools/cpython" 3.12
}

# prepare makes the environment again where the interpreter or the requirements have changed.
prepare() { make_environment "$env" "$requirements" "torch and megatron-core" "7 GB, takes some minutes"; }

# prepare_bus does the same for what package bus is compared with.
prepare_bus() { make_environment "$bus" scripts/oracle/requirements-bus.txt msgspec "some seconds"; }

# make_environment FOLDER REQUIREMENTS WHAT COST makes an environment.
make_environment() {
	local env=$1 requirements=$2
	if [[ $(uname -sm) != "Linux x86_64" ]]; then
		echo "the wheels in $requirements are for Linux on x86-64 (got $(uname -sm)): run this there" >&2
		return 1
	fi
	local python want
	python=$(interpreter)
	want=$("$python" --version && cat "$requirements")
	if [[ -e $env/ready && $(<"$env/ready") == "$want" ]]; then
		return
	fi
	echo "installing $3 for $python ($4)"
	"$python" -m venv --clear "$env"
	timeout 1800 "$env/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --require-hashes \
		--only-binary :all: --report "$env/wheels.json" --requirement "$requirements" || {
		echo "cannot install what $requirements names: it needs PyPI and room in .cache ($4)" >&2
		return 1
	}
	echo "$want" >"$env/ready"
}

# recorded NAME prints the folder of a recording that is committed.
recorded() {
	case $1 in
	commands) echo "$PWD/bus/testdata" ;;
	*) echo "$PWD/layout/testdata" ;;
	esac
}

# generate NAME FOLDER [ARGUMENT...] writes one recording. What gloo says of its connections goes to a log.
generate() {
	local name=$1 folder=$2 log=$logs/$1.log began=$SECONDS python=$env
	shift 2
	[[ $name != commands ]] || python=$bus
	mkdir -p "$folder" "$logs"
	# No accelerator is used, and no hash depends on the process.
	CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 \
		timeout --kill-after=20 1200 "$python/bin/python" "scripts/oracle/record_$name.py" \
		--output "$folder/$name.jsonl" "$@" >"$log" 2>&1 </dev/null || {
		tail -n 60 "$log"
		echo "record_$name.py has failed: the whole output is in $log" >&2
		return 1
	}
	echo "$name: $(head -n 1 "$folder/$name.jsonl" | grep -o '"seed":[0-9]*,"cases":[0-9]*') ($((SECONDS - began)) s)"
}

# compare NAME... holds recordings that are made anew against those that are committed.
compare() {
	local name status=0
	rm -rf "$anew"
	for name in "$@"; do
		generate "$name" "$anew"
		cmp "$anew/$name.jsonl" "$(recorded "$name")/$name.jsonl" || status=1
	done
	[[ $status == 0 ]] || echo "recordings differ from those that are committed: scripts/oracle.sh record writes them" >&2
	return "$status"
}

# compare_bus compares what package bus encodes with what msgspec does.
compare_bus() {
	compare commands
	rm -rf "$live"
	generate commands "$live" --seed "$seed" --cases "$commands" --bytes "$((1 << 30))"
	go test -count=1 -timeout 10m -v -run '^TestCommandsAreThoseOfMsgspec$' ./bus -args -recordings "$live"
}

# further compares cases that are not committed.
further() {
	local all=$((1 << 30))
	rm -rf "$live"
	generate layouts "$live" --seed "$seed" --cases "$layouts" --bytes "$all"
	generate rosters "$live" --seed "$seed" --cases "$rosters" --bytes "$all"
	generate gloo "$live" --seed "$seed" --cases "$gloo" --bytes "$all"
	go test -count=1 -timeout 10m -v -run '^(TestTorch|TestMegatron)$' ./layout ./reshard -args -recordings "$live"
}

# install_wheel makes the wheel, and puts it into the folder of that name.
install_wheel() {
	make -s wheel >/dev/null
	"$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target "$wheel" python/dist/*.whl
}

# refit runs Megatron-core's own refit between processes, over the service of the wheel.
refit() {
	local log=$logs/refit.log port
	mkdir -p "$logs"
	install_wheel
	port=$("$env/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$wheel \
		timeout --kill-after=20 300 "$env/bin/python" -m stepvan launch -n 3p --timeout 280s -- \
		"$env/bin/python" "$PWD/scripts/oracle/refit_megatron.py" "$port" >"$log" 2>&1 </dev/null || {
		tail -n 60 "$log"
		echo "refit_megatron.py has failed: the whole output is in $log" >&2
		return 1
	}
	grep -o 'rank .*same bytes' "$log" | sort
	torchrun_jobs "$wheel" refit_torchrun train:4 serve:3
	# The bus needs msgspec, whose environment has nothing else.
	torchrun_jobs "$wheel:$bus/lib/python3.12/site-packages" bus_torchrun train:4 serve:2
}

# torchrun_jobs WHEEL NAME SIDE:SIZE... runs a program between two jobs of torchrun.
torchrun_jobs() {
	local wheel=$1 name=$2 log=$logs/$2.log port side status=0 jobs=()
	shift 2
	port=$("$env/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	for side in "$@"; do
		CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$wheel \
			timeout --kill-after=20 300 "$env/bin/torchrun" --standalone --nproc_per_node "${side#*:}" \
			"$PWD/scripts/oracle/$name.py" "${side%:*}" "127.0.0.1:$port" >"$log.${side%:*}" 2>&1 </dev/null &
		jobs+=("$!")
	done
	for side in "${jobs[@]}"; do
		wait "$side" || status=1
	done
	if [[ $status != 0 ]]; then
		tail -n 60 "$log".*
		echo "$name.py has failed: the whole output is in $log.*" >&2
		return 1
	fi
	grep -ho 'peer .*both jobs' "$log".* | sort
}

# get_unilab FROM FOLDER COMMIT gets the Python files of a commit, without what they simulate.
get_unilab() {
	rm -rf "$2"
	timeout 600 git clone --quiet --filter=blob:none --no-checkout "$1" "$2" || return 1
	git -C "$2" sparse-checkout set --no-cone '/src/unilab/**/*.py' '/tests/ipc/*.py'
	timeout 600 git -C "$2" checkout --quiet "$3"
}

# replay runs the pipeline of UniLab over the backends of the wheel. The commit has its own backends.
replay() {
	local source=$PWD/.cache/oracle/unilab log=$logs/replay.log from=${ORACLE_UNILAB:-https://github.com/unilabsim/UniLab}
	local commit=09f8253e8e7eb840cc8b93e6d79259fcdc63d04e
	mkdir -p "$logs"
	if [[ ! -e $source/$commit ]]; then
		get_unilab "$from" "$source" "$commit" >"$log" 2>&1 || {
			tail -n 5 "$log"
			echo "cannot get UniLab from $from: name a clone of it in ORACLE_UNILAB" >&2
			return 1
		}
		touch "$source/$commit"
	fi
	install_wheel
	CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$wheel \
		timeout --kill-after=20 300 "$env/bin/python" scripts/oracle/replay_unilab.py "$source" >"$log" 2>&1 </dev/null || {
		tail -n 60 "$log"
		echo "replay_unilab.py has failed: the whole output is in $log" >&2
		return 1
	}
	grep '^replay: ' "$log"
}

case ${1:-} in
'')
	scripts/go.sh
	prepare_bus
	compare_bus
	prepare
	compare layouts gloo rosters
	further
	refit
	replay
	echo "layout and reshard agree with torch and megatron-core, bus with msgspec, and replay with UniLab"
	;;
record)
	prepare_bus
	prepare
	for name in commands layouts gloo rosters; do
		generate "$name" "$(recorded "$name")"
	done
	;;
install)
	prepare_bus
	prepare
	;;
bus)
	scripts/go.sh
	prepare_bus
	compare_bus
	;;
refit)
	scripts/go.sh
	prepare_bus
	prepare
	refit
	;;
replay)
	scripts/go.sh
	prepare
	replay
	;;
*)
	sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
