# shellcheck shell=bash
# Debian packages without root, sourced by the make scripts. apt verifies each against the archive's signed lists.

# apt_private DIR [SUITE...]: package lists of our own in DIR, of the system's sources, or of other Debian suites: what the
# last one has is taken from there, and nothing counts as installed. Sets apt_conf, to be given to apt-get and apt-cache.
apt_private() {
  local dir=$1 suite mirror='' keys=/usr/share/keyrings/debian-archive-keyring.gpg
  shift
  mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$dir/none"
  apt_conf=$dir/conf
  {
    echo "Dir::State::lists \"$dir/lists\"; Dir::Cache \"$dir/cache\";"
    echo 'Acquire::Languages "none"; APT::Sandbox::User "root";'
    echo '#clear APT::Update::Pre-Invoke; #clear APT::Update::Post-Invoke; #clear APT::Update::Post-Invoke-Success;'
  } > "$apt_conf"
  if [ $# -gt 0 ]; then
    # shellcheck disable=SC2016 # for apt
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
    [ -n "$mirror" ] || { echo "apt has no source of Debian packages" >&2; return 1; }
    [ -f "$keys" ] || { echo "$keys is missing (Debian package debian-archive-keyring)" >&2; return 1; }
    for suite; do echo "deb [signed-by=$keys arch=amd64] $mirror $suite main"; done > "$dir/sources.list"
    : > "$dir/status"
    {
      echo "Dir::Etc::sourcelist \"$dir/sources.list\"; Dir::Etc::sourceparts \"-\"; Dir::Etc::preferencesparts \"$dir/none\";"
      echo "Dir::State \"$dir\"; Dir::State::status \"$dir/status\"; APT::Default-Release \"${!#}\";"
    } >> "$apt_conf"
  fi
  apt-get -c "$apt_conf" -qq update
}
