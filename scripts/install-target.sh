#!/usr/bin/env bash
# Build coalesce-target, coalesce-bench and coalesce-sim, and install or remove them: the programs, their manual pages and
# completions, a systemd template for a disk with its socket, the file by which management software finds a vhost-user backend, and a
# dashboard, alerts and an example for Prometheus over the metrics.
#
#   install-target.sh build|install|uninstall
#
#   PREFIX=DIR [/usr/local]   UNITDIR=DIR [PREFIX/lib/systemd/system]
#   DESTDIR=DIR               put everything below this, as packagers do
#   PROFILE=dev               a debug build [release]; test: the programs of the tests
#
# Where root has no Rust toolchain: build as yourself, then install as root.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
die() { printf 'install-target: %s\n' "$*" >&2; exit 1; }

prefix=${PREFIX-/usr/local}
unitdir=${UNITDIR:-$prefix/lib/systemd/system}
scripts/plain-folders.sh install-target "$prefix" "$unitdir"
root=${DESTDIR:-}
unitdir=$root$unitdir
share=$root$prefix/share
profile=${PROFILE:-release}
case $profile in dev | test) built=debug ;; *) built=$profile ;; esac
built=${CARGO_TARGET_DIR:-target}/$built
packages=(coalesce-target coalesce-load coalesce-sim)
programs=(coalesce-target coalesce-bench coalesce-sim)

build() {
  if [ "$profile" = test ]; then scripts/built.sh "${programs[@]}"; return; fi
  # For this machine, whatever the user builds for otherwise: that would be elsewhere.
  env -u CARGO_BUILD_TARGET cargo build --locked --quiet --profile "$profile" "${packages[@]/#/--package=}"
}

install() {
  local program
  if command -v cargo > /dev/null; then build; fi
  command install -d "$root$prefix/bin" "$share"/man/man1 "$share"/bash-completion/completions "$share"/zsh/site-functions \
    "$share"/fish/vendor_completions.d "$share"/qemu/vhost-user "$share"/coalesce-target "$unitdir"
  for program in "${programs[@]}"; do
    [ -x "$built/$program" ] || die "$program is not built, and there is no cargo to build it with"
    command install -m 755 "$built/$program" "$root$prefix/bin"
    "$built/$program" man "$share/man/man1"
    "$built/$program" completions bash > "$share/bash-completion/completions/$program"
    "$built/$program" completions zsh > "$share/zsh/site-functions/_$program"
    "$built/$program" completions fish > "$share/fish/vendor_completions.d/$program.fish"
  done
  sed "s|@prefix@|$prefix|" packaging/50-coalesce-target.json.in > "$share/qemu/vhost-user/50-coalesce-target.json"
  command install -m 644 packaging/{grafana-dashboard.json,prometheus.yml,prometheus-rules.yml} "$share/coalesce-target"
  sed "s|@prefix@|$prefix|" packaging/coalesce-target@.service.in > "$unitdir/coalesce-target@.service"
  command install -m 644 packaging/coalesce-target@.socket "$unitdir"
}

uninstall() {
  local program
  for program in "${programs[@]}"; do
    rm -f "$root$prefix/bin/$program" "$share/man/man1/$program.1" "$share/man/man1/$program"-*.1 \
      "$share/bash-completion/completions/$program" "$share/zsh/site-functions/_$program" \
      "$share/fish/vendor_completions.d/$program.fish"
  done
  rm -f "$share/qemu/vhost-user/50-coalesce-target.json" "$share"/coalesce-target/{grafana-dashboard.json,prometheus.yml,prometheus-rules.yml} \
    "$unitdir"/coalesce-target@.{service,socket}
}

case ${1:-} in
  build | install | uninstall) "$1" ;;
  *) die "build, install or uninstall?" ;;
esac
