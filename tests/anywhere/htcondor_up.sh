#!/usr/bin/env bash
# Start a real HTCondor on this machine: one host, whose cores, memory and GPUs are numbers that jobs count down.
#
# Programs and libraries are those of Debian 13, unpacked into one folder ($HTCONDOR_FOLDER) and installed nowhere, so any
# Debian or Ubuntu on x86-64 will do. HTCondor refuses jobs of root: all runs as the user `daemon`, with the powers of root over
# files. `source FOLDER/settings.sh` sets what condor_submit and its like need. htcondor_down.sh stops it. Needs root.
set -euo pipefail
FOLDER=${HTCONDOR_FOLDER:-${TMPDIR:-/tmp}/babelmill-htcondor}
HERE=$(cd "$(dirname "$0")" && pwd)

POWERS=+dac_override,+dac_read_search,+fowner,+chown
as_daemon() { setpriv --reuid daemon --regid daemon --clear-groups --inh-caps $POWERS --ambient-caps $POWERS "$@"; }
fail() { echo "error: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "an HTCondor of one's own needs root; leave its tests out: make test-anywhere ARGS='-k \"not htcondor\"'"
if ! command -v mmdebstrap >/dev/null || ! command -v patchelf >/dev/null; then
  command -v apt-get >/dev/null || fail "mmdebstrap or patchelf is not installed and there is no apt-get"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends \
    mmdebstrap patchelf >/dev/null
fi

umask 022
mkdir -p "$FOLDER"
[ -O "$FOLDER" ] && [ ! -L "$FOLDER" ] || fail "$FOLDER is not a folder of root; remove it, or set HTCONDOR_FOLDER"
"$HERE/htcondor_down.sh"
rm -rf "$FOLDER/local"
mkdir -p "$FOLDER"/local/{log,lock,run,spool,execute}
ROOT=$FOLDER/root
LIBRARIES=$ROOT/usr/lib/x86_64-linux-gnu
if [ ! -e "$FOLDER/unpacked" ]; then
  rm -rf "$ROOT"
  mmdebstrap --quiet --variant=extract --include=htcondor trixie "$ROOT"
  # They need a newer C library than this machine has, and its loader is in our folder.
  for file in "$ROOT"/usr/bin/condor_* "$ROOT"/usr/sbin/condor_* "$ROOT"/usr/libexec/condor/condor_*; do
    patchelf --set-interpreter "$LIBRARIES/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$LIBRARIES:$ROOT/usr/lib" "$file" 2>/dev/null || true
  done
  touch "$FOLDER/unpacked"
fi
cat >"$FOLDER/condor_config" <<END
RELEASE_DIR = $ROOT/usr
LOCAL_DIR = $FOLDER/local
LOCAL_CONFIG_DIR =
LIB = \$(RELEASE_DIR)/lib/condor
LIBEXEC = \$(RELEASE_DIR)/libexec/condor
SHARE = \$(RELEASE_DIR)/share/condor
RUN = \$(LOCAL_DIR)/run
DAEMON_LIST = MASTER COLLECTOR NEGOTIATOR SCHEDD STARTD
CONDOR_HOST = 127.0.0.1
NETWORK_INTERFACE = 127.0.0.1
SHARED_PORT_PORT = 16450
COLLECTOR_HOST = 127.0.0.1:16450
UID_DOMAIN = babelmill.test
FILESYSTEM_DOMAIN = babelmill.test
SEC_DEFAULT_AUTHENTICATION_METHODS = FS
# Other users of this machine may look, but start nothing: their jobs would have the powers of ours.
OURS = daemon@babelmill.test/127.0.0.1, condor@family/127.0.0.1
ALLOW_READ = *
ALLOW_WRITE = \$(OURS)
ALLOW_DAEMON = \$(OURS)
ALLOW_NEGOTIATOR = \$(OURS)
ALLOW_ADMINISTRATOR = \$(OURS)
# Stand-ins: more than this machine has.
NUM_CPUS = 32
MEMORY = 200000
MACHINE_RESOURCE_GPUs = 4
use FEATURE : PartitionableSlot
START = True
RUNBENCHMARKS = False
# Everything at once.
NEGOTIATOR_INTERVAL = 1
NEGOTIATOR_CYCLE_DELAY = 1
NEGOTIATOR_MIN_INTERVAL = 1
SCHEDD_INTERVAL = 1
SCHEDD_MIN_INTERVAL = 1
UPDATE_INTERVAL = 5
END
cat >"$FOLDER/settings.sh" <<END
export CONDOR_CONFIG=$FOLDER/condor_config PATH=$ROOT/usr/bin:\$PATH
END
chown -R daemon "$FOLDER/local"
source "$FOLDER/settings.sh"
as_daemon "$ROOT/usr/sbin/condor_master"
end=$((SECONDS + 60))
until [ "$(condor_status -af Name 2>/dev/null)" ]; do
  [ $SECONDS -lt $end ] || fail "HTCondor did not start; see $FOLDER/local/log"
  sleep .2
done
