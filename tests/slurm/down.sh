#!/usr/bin/env bash
# Stop what up.sh started, by its process ids, and remove its state and its links; the logs stay until the next start.
set -u
FOLDER=${SLURM_FOLDER:-${TMPDIR:-/tmp}/babelmill-slurm}

alive() { # by its process id, which may be another process's by now
  [ -s "$FOLDER/run/$1.pid" ] && [ "$(cat "/proc/$(cat "$FOLDER/run/$1.pid")/comm" 2>/dev/null)" = "${1%%.*}" ]
}
[ -d "$FOLDER/run" ] || exit 0

if alive slurmctld; then
  timeout 10 squeue -h -o %A | xargs -r timeout 10 scancel --full 2>/dev/null
  for _ in $(seq 100); do
    [ -z "$(timeout 5 squeue -h 2>/dev/null)" ] && break
    sleep .2
  done
fi
# Killed, not asked: their state is thrown away, so there is nothing for them to put in order.
for daemon in slurmd.n{1..4} slurmctld slurmdbd mariadbd munged; do
  alive "$daemon" && kill -9 "$(cat "$FOLDER/run/$daemon.pid")"
done
rm -rf "${FOLDER:?}"/{state,mysql,spool.n{1..4},run,dev}
for name in slurm gres cgroup slurmdbd; do
  [ "$(readlink "/etc/slurm/$name.conf")" = "$FOLDER/etc/$name.conf" ] && rm -f "/etc/slurm/$name.conf"
done
sed -i '/^127\.0\.1\.1[1-4] n[1-4]$/d' /etc/hosts 2>/dev/null || # a container's /etc/hosts cannot be replaced
  { kept=$(grep -v '^127\.0\.1\.1[1-4] n[1-4]$' /etc/hosts); printf '%s\n' "$kept" >/etc/hosts; }
echo "SLURM is down"
