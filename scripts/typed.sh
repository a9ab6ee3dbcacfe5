#!/usr/bin/env bash
# What a section of a page types: its blocks of shell.
#
#   typed.sh PAGE SECTION     SECTION: the heading of second level, without its marks
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
awk -v title="## $2" '/^## / { here = $0 == title } /^```/ { inside = here && $0 == "```sh"; next } inside' "$1"
