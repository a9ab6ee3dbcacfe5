#!/usr/bin/env bash
# Fails unless each folder may be one to install into: their names go into units, pkg-config files and cmake packages, which quote in
# ways of their own.
#
#   plain-folders.sh FOLDER...
set -euo pipefail
for folder; do
  if ! [[ "$folder" =~ ^/[A-Za-z0-9._/+~-]*$ ]]; then
    printf 'install: %s: PREFIX and the other folders are absolute, of letters, digits and ._/+~-\n' "$folder" >&2
    exit 1
  fi
done
