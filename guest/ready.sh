#!/usr/bin/env bash
# Can this machine run the guest? Exit status 0; or 1, and one line that says what is missing.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin # modprobe
missing=()
[ "$(uname -m)" = x86_64 ] || missing+=("an x86-64 machine")
for tool in apt-get cpio dpkg-deb jq ld modprobe qemu-storage-daemon qemu-system-x86_64 readelf xz; do
  command -v "$tool" > /dev/null || missing+=("$tool")
done
[ ${#missing[@]} -gt 0 ] || exit 0
printf '%s, ' "${missing[@]}" | sed 's/, $/ missing (guest\/packages.sh installs what Debian and Ubuntu have)\n/'
exit 1
