#!/usr/bin/env bash
# What docs/install.md types, from this checkout: the Debian packages are installed in a Debian of their own, and serve a load; the
# container of packaging/Containerfile is built, and serves a load from another. The base images are made of Debian's packages, so no
# registry of images is asked.
#
#   check-container.sh
#
# Long, as it compiles coalesce-target anew; a debug build. Needs root and Debian. scripts/test.sh does not call it.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
die() { printf 'check-container: %s\n' "$*" >&2; exit 1; }
say() { printf 'check-container: %s\n' "$*" >&2; }
[ "$(id -u)" = 0 ] || die "only root can do this"
guest/packages.sh build-essential dpkg-dev jq podman runc mmdebstrap
command -v cargo > /dev/null || die "no cargo"
work=$(mktemp -d)
# Storage of its own: images of the user are not touched.
podman() {
  command podman --root "$work/storage" --runroot "$work/run" --storage-driver vfs --cgroup-manager cgroupfs --runtime runc "$@"
}
# No more than this machine allows: the engine would raise its limits. Nor a network of its own.
memlock=$(ulimit -H -l)
[ "$memlock" = unlimited ] && memlock=-1 || memlock=$((memlock * 1024))
allowed=(--network none --ulimit nofile=1024 --ulimit nproc=1024)
# shellcheck disable=SC2317 # called by trap
end() {
  podman rm --all --force > "$work/null" 2>&1 || true
  rm -rf "$work"
}
trap end EXIT
step() { # MEANING COMMAND...
  say "$1"
  "${@:2}" > "$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; die "$1"; }
}

image() { # NAME PACKAGES [OPTION...]: of import
  mmdebstrap --quiet --variant=minbase --include="$2" bookworm "$work/$1.tar" &&
    podman import "${@:3}" "$work/$1.tar" "localhost/$1" && rm "$work/$1.tar"
}
# A container at all, before what takes long: a program that needs nothing.
mkdir "$work/root"
echo 'int main(void) { return 7; }' | cc -static -x c - -o "$work/root/program"
podman run --rm "${allowed[@]}" --rootfs "$work/root" /program > "$work/log" 2>&1 && status=0 || status=$?
[ "$status" = 7 ] || { cat "$work/log" >&2; die "no container runs here: it needs namespaces, mounts and cgroups"; }

step "Debian" image debian ca-certificates
# The toolchain and the sources of the dependencies are this machine's.
step "Debian with a compiler" image rust build-essential,ca-certificates,git --change 'ENV PATH=/rust/bin:/usr/bin:/bin' \
  --change 'ENV CARGO_HOME=/cargo'
cargo fetch --locked --quiet
mkdir "$work/checkout"
git ls-files -z --cached --others --exclude-standard | xargs -0 tar -c | tar -x -C "$work/checkout"
build() {
  podman build --pull=never --network none --build-arg RUST=localhost/rust --build-arg DEBIAN=localhost/debian \
    --build-arg PROFILE=dev --env CARGO_NET_OFFLINE=true --volume "$(rustc --print sysroot):/rust:ro" --volume "${CARGO_HOME:-$HOME/.cargo}:/cargo" \
    --file "$work/checkout/packaging/Containerfile" --tag coalesce-target "$work/checkout"
}
typed() { # SECTION SOCKET: of docs/install.md. A person takes a moment between two lines: here until the disk has its socket.
  scripts/typed.sh docs/install.md "$1" | sed "/ serve /a timeout 60 sh -c 'until [ -S $2 ]; do sleep 0.1; done'"
}
step "the packages" env PROFILE=dev scripts/deb.sh "$work/packages"
typed "Debian packages" /tmp/disk | sed -e '/^scripts\/deb.sh/d' -e 's/^apt-get install/& --yes/' > "$work/packages/typed"
step "the packages, installed" podman run --rm "${allowed[@]}" --security-opt seccomp=unconfined \
  --volume "$work/packages:/target/packages" localhost/debian bash -eu target/packages/typed
grep -qE '^ +all +1000 .* 0 +0$' "$work/log" || { cat "$work/log" >&2; die "the load says something else"; }
step "the container" build

mkdir "$work/disks"
typed "In a container" "$work/disks/db.sock" |
  sed -e "s#/run/disks:#$work/disks:#" -e "s#podman run#& ${allowed[*]}#" -e "s#memlock=-1#memlock=$memlock#" -e '/^podman build/d' > "$work/typed"
[ "$(grep -c 'podman run' "$work/typed")" = 2 ] || die "docs/install.md says something else"
export -f podman
export work
bash -eu "$work/typed" > "$work/output" 2>&1 || { cat "$work/output" >&2; die "what docs/install.md types fails"; }
grep -q '"total_ios": *1000\b' "$work/output" || { cat "$work/output" >&2; die "the load says something else"; }
podman stop coalesce-db > "$work/null"
[ "$(podman inspect --format '{{.State.ExitCode}}' coalesce-db)" = 0 ] || { podman logs coalesce-db >&2; die "it does not stop in order"; }
say "built, served a load, stopped; the image has $(podman image inspect --format '{{.Size}}' coalesce-target) bytes"
