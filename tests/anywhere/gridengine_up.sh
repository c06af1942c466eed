#!/usr/bin/env bash
# Start a real Grid Engine on this machine: one host, one queue, stand-in GPUs (a number that jobs count down).
#
# Master and execution daemon are Debian's packages; all else is in one folder ($GRIDENGINE_FOLDER). Needs root on Debian
# or Ubuntu; gridengine_down.sh stops it. `source FOLDER/settings.sh` sets what qsub and its like need.
set -euo pipefail
FOLDER=${GRIDENGINE_FOLDER:-${TMPDIR:-/tmp}/babelmill-gridengine}
HERE=$(cd "$(dirname "$0")" && pwd)

fail() { echo "error: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "a Grid Engine of one's own needs root; leave its tests out: make test-all ARGS='--ignore tests/anywhere/test_schedulers.py'"
if ! [ -x /usr/sbin/sge_qmaster ] || ! [ -x /usr/sbin/sge_execd ]; then
  command -v apt-get >/dev/null || fail "Grid Engine is not installed and there is no apt-get"
  apt-get -qq update
  # No daemon of the packages may start: they are configured for the whole machine.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends \
    gridengine-master gridengine-exec gridengine-client >/dev/null
fi

umask 022
"$HERE/gridengine_down.sh"
rm -rf "$FOLDER"
mkdir -p "$FOLDER"/{spooldb,qmaster/job_scripts,execd,default/common}
for part in bin lib util utilbin; do ln -s "/var/lib/gridengine/$part" "$FOLDER/$part"; done
cat >"$FOLDER/settings.sh" <<END
export SGE_ROOT=$FOLDER SGE_CELL=default SGE_QMASTER_PORT=16444 SGE_EXECD_PORT=16445
END
source "$FOLDER/settings.sh"
cat >"$FOLDER/default/common/bootstrap" <<END
admin_user sgeadmin
default_domain none
ignore_fqdn false
spooling_method berkeleydb
spooling_lib libspoolb
spooling_params $FOLDER/spooldb
binary_path /usr/sbin
qmaster_spool_dir $FOLDER/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
END
echo localhost >"$FOLDER/default/common/act_qmaster"
echo "localhost $(hostname) $(awk '$1 == "127.0.0.1" { $1 = ""; print }' /etc/hosts | tr '\n' ' ' | sed 's/\<localhost\>//')" \
  >"$FOLDER/default/common/host_aliases"
sed "s#^execd_spool_dir.*#execd_spool_dir $FOLDER/execd#; s/^min_uid.*/min_uid 0/; s/^min_gid.*/min_gid 0/" \
  /usr/share/gridengine/default-configuration >"$FOLDER/configuration"
chown -R sgeadmin "$FOLDER"
su -s /bin/bash sgeadmin -c "source $FOLDER/settings.sh && cd /usr/lib/gridengine &&
  ./spoolinit berkeleydb libspoolb $FOLDER/spooldb init && ./spooldefaults configuration $FOLDER/configuration &&
  ./spooldefaults complexes /usr/share/gridengine/util/resources/centry && ./spooldefaults usersets /usr/share/gridengine/util/resources/usersets && ./spooldefaults managers root sgeadmin" >/dev/null

wait_for() {
  local end=$((SECONDS + 60))
  while [ $SECONDS -lt $end ]; do "$@" >/dev/null 2>&1 && return; sleep .2; done
  fail "Grid Engine did not start: $*; see $FOLDER/qmaster/messages"
}
/usr/sbin/sge_qmaster >/dev/null
wait_for qconf -sh
qconf -as localhost >/dev/null
qconf -ah localhost >/dev/null 2>&1 || true
{ qconf -sc; echo "gpu gpu INT <= YES JOB 0 0"; } >"$FOLDER/edited"
qconf -Mc "$FOLDER/edited" >/dev/null
cat >"$FOLDER/edited" <<END
pe_name smp
slots 99
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule \$pe_slots
control_slaves FALSE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
END
qconf -Ap "$FOLDER/edited" >/dev/null
/usr/sbin/sge_execd >/dev/null
wait_for qconf -se localhost
qconf -aattr exechost complex_values gpu=4 localhost >/dev/null
qconf -sq | sed 's/^qname.*/qname all.q/; s/^hostlist.*/hostlist localhost/; s/^load_thresholds.*/load_thresholds NONE/
  s/^pe_list.*/pe_list smp/; s/^slots .*/slots 32/; s/^notify.*/notify 00:00:10/' >"$FOLDER/edited"
qconf -Aq "$FOLDER/edited" >/dev/null
# Everything at once: scheduling every second, and after each job.
qconf -ssconf | sed 's/^schedule_interval.*/schedule_interval 0:0:1/; s/^flush_submit_sec.*/flush_submit_sec 1/
  s/^flush_finish_sec.*/flush_finish_sec 1/' >"$FOLDER/edited"
qconf -Msconf "$FOLDER/edited" >/dev/null
