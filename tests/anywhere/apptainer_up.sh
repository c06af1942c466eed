#!/usr/bin/env bash
# Make in a folder what the tests need of Apptainer: `apptainer_up.sh FOLDER`.
#
#   FOLDER/bin/apptainer   the real one. Only Debian's "sid" has it as a package, so it has a root of its own in FOLDER/root
#   FOLDER/base            a Debian with Python, in place of an image from a registry
#
# Needs root on Debian or Ubuntu, and the right to make namespaces (a container needs --privileged).
set -euo pipefail
FOLDER=$1

fail() { echo "error: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "this needs root; leave these tests out: make test-anywhere ARGS='--ignore tests/anywhere/test_image.py'"
if ! command -v mmdebstrap >/dev/null; then
  command -v apt-get >/dev/null || fail "mmdebstrap is not installed and there is no apt-get"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends \
    mmdebstrap debian-archive-keyring >/dev/null
fi

mkdir -p "$FOLDER/bin"
make_root() { # FOLDER SUITE PACKAGES. (A mirror may be too old to be valid.)
  mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --include="$3" "$2" "$1"
  rm -r "${1:?}"/dev/*         # Apptainer cannot copy devices
  cp /etc/hosts "$1/etc/hosts" # Apptainer wants it
}
make_root "$FOLDER/root" sid apptainer,ca-certificates &
make_root "$FOLDER/base" bookworm python3-venv,ca-certificates
wait $!
# pip trusts in it whom this machine trusts.
cp /etc/ssl/certs/ca-certificates.crt "$FOLDER/base/etc/ssl/certs/ca-certificates.crt"
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$FOLDER/base/etc/pip.conf"

# It sees the folders of this machine under their usual names. Its user is root in a namespace alone, so that it works also
# where root may not do all.
cat >"$FOLDER/bin/apptainer" <<END
#!/usr/bin/env bash
export HERE=\$PWD ROOT=$FOLDER/root
exec unshare --mount --propagation private bash -euc '
mount --rbind "\$ROOT" "\$ROOT"
for folder in /*/; do
  case "\$folder" in /bin/ | /etc/ | /lib*/ | /sbin/ | /usr/ | /var/) continue ;; esac
  mkdir -p "\$ROOT\$folder"
  mount --rbind "\$folder" "\$ROOT\$folder"
done
cd "\$ROOT"
pivot_root . mnt
umount -l /mnt
cd "\$HERE"
exec unshare --map-users 0,0,65536 --map-groups 0,0,65536 /usr/bin/apptainer "\$@"' apptainer "\$@"
END
chmod +x "$FOLDER/bin/apptainer"
