#!/usr/bin/env bash
# No cycles between the modules of a crate: of two modules with the same parent, at most one depends on the other, also by
# way of others. A module and its own children are one here, and so is the root of a crate with all of it.
#
#   check-cycles.sh [CRATE...]     folders with a src; all crates by default
#
# Reads paths that begin with crate::, super:: or a child, in and outside of `use`, and follows names that a module
# re-exports to where they are defined. Reads no tests, no macros, and no glob re-exports.
set -euo pipefail
cd "$(dirname "$0")/.."

cycles() { # CRATE: one line for each cycle
  local files
  mapfile -t files < <(find "$1/src" -name '*.rs' ! -name tests.rs ! -path '*/src/bin/*' | LC_ALL=C sort)
  awk -v crate="$1" '
    function module_of(file) {
      sub(/^.*\/src\//, "", file); sub(/\.rs$/, "", file); sub(/(^|\/)(lib|main|mod)$/, "", file); gsub(/\//, "::", file)
      return file
    }
    function parent_of(module) { return module ~ /::/ ? substr(module, 1, match(module, /::[^:]*$/) - 1) : "" }
    function child(module, name) { return module == "" ? name : module "::" name }
    function is_inside(module, outer) { return outer == "" || module == outer || index(module, outer "::") == 1 }

    # One path of a use declaration: a dependency, and a name in this module.
    function note_use(module, path,    name) {
      name = path
      if (path ~ / as /) { sub(/^.* as /, "", name); sub(/ as .*$/, "", path) }
      sub(/::self$/, "", path); sub(/^.*::/, "", name)
      paths[module] = paths[module] " " path
      if (name != "_" && name != path) names[module, name] = path
    }
    # Expands the first pair of braces, until there is none left.
    function note_tree(module, tree,    open, depth, i, c, start, inner, before, after) {
      open = index(tree, "{")
      if (!open) { note_use(module, tree); return }
      before = substr(tree, 1, open - 1); depth = 1; start = open + 1
      for (i = open + 1; depth; i++) {
        c = substr(tree, i, 1)
        if (c == "{") depth++
        if (c == "}") depth--
        if ((c == "," && depth == 1) || !depth) {
          inner = substr(tree, start, i - start); gsub(/^ +| +$/, "", inner)
          if (inner != "") note_tree(module, before inner)
          start = i + 1
        }
      }
    }
    function read_module(module, text,    use, path) {
      while (match(text, /(^|[^A-Za-z0-9_])use [^;]*;/)) {
        use = substr(text, RSTART, RLENGTH - 1); text = substr(text, 1, RSTART) " " substr(text, RSTART + RLENGTH)
        sub(/^.?use /, "", use); gsub(/ *:: */, "::", use)
        note_tree(module, use)
      }
      while (match(text, /(^|[^$A-Za-z0-9_])(crate|super)(::[A-Za-z_][A-Za-z0-9_]*)+/)) {
        path = substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH)
        sub(/^[^a-z]/, "", path)
        paths[module] = paths[module] " " path
      }
    }

    # The module that defines what a path in a module leads to. "?": another crate.
    function resolve(module, path, depth,    parts, n, i) {
      n = split(path, parts, "::"); i = 1
      if (parts[1] == "crate") { module = ""; i = 2 }
      else if (parts[1] == "self") i = 2
      else if (parts[1] == "super") while (parts[i] == "super") { module = parent_of(module); i++ }
      else if (!(child(module, parts[1]) in texts)) return "?"
      for (; i <= n; i++) {
        if (child(module, parts[i]) in texts) module = child(module, parts[i])
        else if (depth < 9 && (module, parts[i]) in names) return resolve(module, names[module, parts[i]], depth + 1)
        else break
      }
      return module
    }
    # Both modules, or those that they are in, where they have the same parent.
    function note_edge(from, to,    above, a, b) {
      if (to == "?" || is_inside(from, to) || is_inside(to, from)) return
      for (above = parent_of(from); !is_inside(to, above);) above = parent_of(above)
      a = substr(from, above == "" ? 1 : length(above) + 3); b = substr(to, above == "" ? 1 : length(above) + 3)
      sub(/::.*/, "", a); sub(/::.*/, "", b)
      edges[child(above, a)] = edges[child(above, a)] " " child(above, b)
    }
    function visit(module, trail,    next_ones, n, i, cycle) {
      if (index(trail " ", " " module " ")) {
        cycle = substr(trail " ", index(trail " ", " " module " ") + 1) module
        gsub(/ /, " -> ", cycle); print crate ": " cycle
        return
      }
      if (done[module]) return
      n = split(edges[module], next_ones, " ")
      for (i = 1; i <= n; i++) if (!seen[module, next_ones[i]]++) visit(next_ones[i], trail " " module)
      done[module] = 1
    }

    FNR == 1 {
      module = module_of(FILENAME); in_tests = 0
      if (!(module in texts)) order[++count] = module
      texts[module] = texts[module] ""
    }
    /^#\[cfg\(test\)\]/ { in_tests = 1 }
    !in_tests { gsub(/"([^"\\]|\\.)*"/, "\"\""); sub(/\/\/.*/, ""); texts[module] = texts[module] " " $0 }
    END {
      for (i = 1; i <= count; i++) { gsub(/[ \t]+/, " ", texts[order[i]]); read_module(order[i], texts[order[i]]) }
      for (i = 1; i <= count; i++) {
        n = split(paths[order[i]], found, " ")
        for (j = 1; j <= n; j++) note_edge(order[i], resolve(order[i], found[j], 0))
      }
      for (i = 1; i <= count; i++) visit(order[i], "")
    }' "${files[@]}"
}

# What it must find, and what it must not.
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
mkdir -p "$made/src/b"
printf 'mod a;\nmod b;\nmod c;\npub use c::{\n    C,\n};\n' > "$made/src/lib.rs"
printf 'use crate::b;\n' > "$made/src/a.rs"
printf 'mod d;\npub struct B;\n' > "$made/src/b.rs"
printf 'use super::B; // crate::a\nfn f() -> crate::C {}\n' > "$made/src/b/d.rs"
printf 'pub struct C;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n' > "$made/src/c.rs"
[ -z "$(cycles "$made")" ] || { printf 'check-cycles: finds a cycle where there is none: %s\n' "$(cycles "$made")" >&2; exit 1; }
printf 'use crate::{\n    a::{self as _},\n};\n' >> "$made/src/c.rs"
sed -i '/cfg(test)/,/^}/d' "$made/src/c.rs"
[ "$(cycles "$made")" = "$made: a -> b -> c -> a" ] || { printf 'check-cycles: does not find a cycle: %s\n' "$(cycles "$made")" >&2; exit 1; }

[ $# -gt 0 ] || set -- crates/* demo benches firmware-demo/rust
found=$(for crate; do cycles "$crate"; done)
[ -z "$found" ] || { printf 'modules that depend on each other:\n%s\n' "$found" >&2; exit 1; }
