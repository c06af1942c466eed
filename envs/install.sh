#!/bin/sh
# Install what the lock files list into the environment of a Python: `sh envs/install.sh .venv/bin/python lock.txt lock-tools.txt`.
#
# pip checks every file against the hashes of the lock files. Which build of PyTorch it takes depends on the indexes that
# pip knows: a CPU build if one of them has it, else that of PyPI, which is for CUDA on Linux. A build of the same version
# that is installed already stays.
set -eu
python=$1
shift
locks=$(dirname "$0")
unset PYTHONDONTWRITEBYTECODE
run_pip() { "$python" -m pip --disable-pip-version-check "$@"; }
install() { run_pip install --quiet --no-compile --no-deps "$@"; }
lines_of() { sed -n "/^$1==/,/[^\\\\]\$/p" "$2"; } # of one package, in a lock file
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The pip that comes with older Pythons takes twice as long.
lines_of pip "$locks/lock-tools.txt" | install --require-hashes -r /dev/stdin
for file in "$@"; do
  install --require-hashes -r "$locks/$file" &
  waiting="${waiting-} $!"
done
torch=$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' "$locks/lock-torch.txt")
if ! run_pip show torch 2>/dev/null | grep -qE "^Version: ${torch#*==}(\+|\$)"; then
  # With the hashes, pip would choose a file by where its hash is written. So it chooses without them.
  run_pip download --quiet --no-deps --dest "$folder" "$torch"
fi
for process in $waiting; do wait "$process"; done

for file in "$folder"/torch*; do
  [ -e "$file" ] || continue
  hash=$(run_pip hash "$file" | grep -oE 'sha256:[0-9a-f]{64}')
  if ! grep -q "$hash" "$locks/lock-torch.txt"; then
    echo "error: $(basename "$file") has no hash in $locks/lock-torch.txt; if you want this build of PyTorch, install it" \
      "yourself ($python -m pip install $torch --index-url ...), and run this again" >&2
    exit 1
  fi
  install "$file"
done
if run_pip check | grep -E '^torch .* requires (nvidia|cuda|triton)' >/dev/null; then # a CUDA build without its libraries
  sed "/^torch==/,/[^\\\\]\$/d" "$locks/lock-torch.txt" | install --require-hashes -r /dev/stdin
fi
# Python compiles a module when it is first imported. To compile all modules would take three times as long, so compile
# those of the first run, on two cores; otherwise its stages would do that, one after the other.
for module in snakemake.cli transformers.modeling_utils; do
  "$python" -c "import $module" 2>/dev/null &
done
wait
