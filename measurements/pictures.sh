#!/usr/bin/env bash
# Takes the pictures of a page of make demo that docs/measuring.md shows: docs/page-wide.png, -narrow.png (400 pixels), -dark.png,
# and -printed.png. Needs chromium, pngquant and pdftoppm (poppler-utils).
#
#   pictures.sh REPORT.html
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
if [ $# != 1 ] || [ ! -f "$1" ]; then
  echo "pictures.sh: expected one page of make demo, such as report.html; --help explains it" >&2
  exit 2
fi
page=$(realpath "$1")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
browser() { chromium --headless --no-sandbox --disable-gpu --hide-scrollbars "$@" "file://$page" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }; }
browser --window-size=1200,960 --screenshot="$work/wide.png"
browser --window-size=400,1560 --screenshot="$work/narrow.png"
browser --window-size=1200,960 --blink-settings=preferredColorScheme=0 --screenshot="$work/dark.png"
browser --no-pdf-header-footer --print-to-pdf="$work/printed.pdf"
pdftoppm -r 72 -png -f 1 -l 1 -singlefile "$work/printed.pdf" "$work/printed"
for picture in wide narrow dark printed; do
  pngquant --force --output "docs/page-$picture.png" 32 "$work/$picture.png"
done
