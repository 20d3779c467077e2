#!/usr/bin/env bash
# venv.sh PYTHON FOLDER REQUIREMENTS: makes an environment with the requirements. It sees what is installed
# beside PYTHON, torch above all. The script makes it again when what lies beside has changed: a numpy that
# came before torch may not work with it.
set -euo pipefail
python=$1 folder=$2 requirements=$3

# What lies beside, and the numpy that torch needs: those before 2.3 work with numpy 1 only.
beside=$("$python" - <<'END'
import re, sys
from importlib.metadata import PackageNotFoundError, version
print(sys.executable, sys.version.split()[0])
for name in "torch", "numpy":
    try:
        print(name, version(name))
    except PackageNotFoundError:
        print(name, "none")
try:
    if tuple(map(int, re.findall(r"\d+", version("torch"))[:2])) < (2, 3):
        print("needs numpy<2")
except PackageNotFoundError:
    pass
END
)
want=$(printf '%s\n' "$beside" && cat "$requirements")
if [[ -e $folder/ready && $(<"$folder/ready") == "$want" ]]; then
	exit 0
fi
also=()
if [[ $beside == *"needs numpy<2"* ]]; then
	also=("numpy<2")
fi
"$python" -m venv --clear --system-site-packages "$folder"
"$folder/bin/python" -m pip install -q --disable-pip-version-check -r "$requirements" "${also[@]}"
echo "$want" >"$folder/ready"
