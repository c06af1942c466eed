#!/usr/bin/env bash
# Stop the Grid Engine that gridengine_up.sh started, with its jobs.
FOLDER=${GRIDENGINE_FOLDER:-${TMPDIR:-/tmp}/babelmill-gridengine}
for pid in $(pgrep '^sge_'); do
  grep -qz "^SGE_ROOT=$FOLDER\$" "/proc/$pid/environ" 2>/dev/null || continue
  [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = sge_shepherd ] && pkill -KILL -P "$pid"
  kill -KILL "$pid" 2>/dev/null
done
exit 0
