#!/bin/sh
# Install Babelmill itself into the environment of a container, and take out what nobody needs there: `sh envs/finish.sh FOLDER`.
set -eu
"$1/bin/python" -m pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation --no-compile .
"$1/bin/python" -m pip check
"$1/bin/python" -m pip --quiet uninstall --yes pip
cd "$1"/lib/python3*/site-packages
find pandas pyarrow scipy sklearn sympy -type d -name tests -prune -exec rm -r {} +
rm -rf torch/test pulp/solverdir/cbc/osx pulp/solverdir/cbc/win
find torch/bin -type f ! -name torch_shm_manager -delete # programs that test PyTorch's C++ code
rm pyarrow/*flight* # a client for servers of tables
# A stage cannot write into the image, so it would compile what it imports each time. (Of the models, that is little.)
"$1/bin/python" -m compileall -qq -j 0 -x "transformers/models/(?!auto/)" . || true # some have files for a newer Python
