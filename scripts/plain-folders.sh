#!/usr/bin/env bash
# Fails, in the name of a script, unless each folder may be one to install into: they go into units, pkg-config files and cmake packages,
# which quote in ways of their own.
#
#   plain-folders.sh SCRIPT FOLDER...
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
script=$1
shift
for folder; do
  if ! [[ "$folder" =~ ^/[A-Za-z0-9._/+~-]*$ ]]; then
    printf '%s: %s: PREFIX and the other folders are absolute, of letters, digits and ._/+~-\n' "$script" "$folder" >&2
    exit 1
  fi
done
