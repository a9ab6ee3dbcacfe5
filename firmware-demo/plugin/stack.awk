# The stack that functions take at most, with all that they call, of "objdump --disassemble --no-show-raw-insn --demangle" for
# Arm: lines of bytes and name. A function that jumps to another at its end has given its own back. "?" stands for a
# number that cannot be known: a call by a pointer, a recursion, a stack pointer that is computed.

BEGIN { FS = "\t" }

/^[0-9a-f]+ <.*>:$/ {
  match($0, /^0*[0-9a-f]+ /)
  at = substr($0, 1, RLENGTH - 1)
  sub(/^0+/, "", at)
  name[at] = substr($0, RLENGTH + 2, length($0) - RLENGTH - 3)
  next
}
NF < 3 { next }

# Registers and numbers.
{ inside = $3; sub(/^[^{]*\{/, "", inside); sub(/\}.*/, "", inside); number = $3; sub(/.*#-?/, "", number); number += 0 }
$2 ~ /^push/ || $2 ~ /^stm(db|fd)/ && $3 ~ /^sp!/ { frame[at] += 4 * split(inside, _, ",") }
$2 ~ /^vpush/ {
  n = split(inside, ends, /-/)
  frame[at] += (inside ~ /^d/ ? 8 : 4) * (n == 2 ? substr(ends[2], 2) - substr(ends[1], 2) + 1 : split(inside, _, ","))
}
$2 ~ /^str/ && $3 ~ /\[sp, #-[0-9]+\]!/ || $2 ~ /^sub/ && $3 ~ /^sp, (sp, )?#/ { frame[at] += number }
$2 ~ /^(mov|bic|bfc|and|ldr)/ && $3 ~ /^sp,/ && $3 !~ /^sp, (fp|r7)$/ || $2 ~ /^(sub|add)/ && $3 ~ /^sp, (sp, )?r[0-9]+$/ { unknown[at] = 1 }
$2 ~ /^blx?$/ && $3 !~ / </ || $2 ~ /^bx/ && $3 !~ /^lr/ { unknown[at] = 1 }
$2 ~ /^b(l|lx)?(eq|ne|cs|cc|hs|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)?(\.[nw])?$/ && $3 ~ / <.*>/ {
  to = $3
  sub(/ .*/, "", to)
  is_call = $2 ~ /^bl/ && $2 !~ /^bl[sote]/
  if (is_call) calls[at] = calls[at] " " to
  else if (to != at) ends_in[at] = ends_in[at] " " to # within itself as well: those have no name
}

# -1: not known.
function deepest(list, above,    targets, n, i, most, depth) {
  n = split(list, targets, " ")
  most = above
  for (i = 1; i <= n; i++) {
    if (!(targets[i] in name)) continue
    depth = needs(targets[i])
    if (depth < 0) return -1
    if (above + depth > most) most = above + depth
  }
  return most
}
function needs(f,    inner, last) {
  if (f in result) return result[f]
  result[f] = -1 # while it is not known: a recursion
  inner = deepest(calls[f], frame[f] + 0)
  last = deepest(ends_in[f], 0)
  if (!(f in unknown) && inner >= 0 && last >= 0) result[f] = inner > last ? inner : last
  return result[f]
}
END { for (f in name) print (needs(f) < 0 ? "?" : result[f]), name[f] }
