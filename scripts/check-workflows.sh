#!/usr/bin/env bash
# The workflows of .github, by actionlint: from the Go module proxy where it is not installed. What they run must exist.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { printf 'check-workflows: %s\n' "$*" >&2; exit 1; }
if command -v actionlint > /dev/null; then
  actionlint
elif command -v go > /dev/null; then
  go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.7
else
  echo "SKIPPED: workflows of GitHub: neither actionlint nor go"
fi
while read -r script; do
  [ -x "$script" ] || die "a workflow runs $script, which is not there"
done < <(grep -ohE '(^|[ ])(scripts|guest)/[a-z-]+\.sh' .github/workflows/*.yml | tr -d ' ' | sort -u)
while read -r target; do
  grep -q "^$target:" Makefile || die "a workflow makes $target, which is no target of the Makefile"
done < <(grep -ohE 'run: make [a-z-]+' .github/workflows/*.yml | sed 's/.* //' | sort -u)
echo "check-workflows: $(find .github/workflows -name '*.yml' | wc -l) workflows"
