#!/usr/bin/env bash
# Build the plugin that counts the guest's instructions, and the guest's program that makes it write a line.
#
#   build.sh DIR PROGRAM     makes DIR/count.so, and PROGRAM
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
[ $# = 2 ] || { sed -n '4p' "$0" | cut -c3- >&2; exit 2; }
here=$(dirname "$0")
cc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$1/count.so" "$here/count.c"
as -o "$1/mark.o" "$here/mark.s"
ld -s -o "$2" "$1/mark.o"
