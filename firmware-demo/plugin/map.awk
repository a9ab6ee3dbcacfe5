# The map for count.so, of the linker's map and of "nm --print-size". Names are mangled.

FNR == 1 { file++ }

# Of the linker's: SECTION 0xADDRESS 0xLENGTH OBJECT; a long name has a line for itself.
file == 1 && /^ \./ { section = $1 }
file == 1 && section ~ /^\.(text|vectors)/ && NF > 2 && $(NF - 2) ~ /^0x/ && $(NF - 1) ~ /^0x/ && $(NF - 1) != "0x0" {
  range = substr($(NF - 2), 3) " " substr($(NF - 1), 3)
  if ($NF ~ /\/lab\/[a-z]*\.o$/) other = other "lab " range " lab\n"
  if ($NF ~ /\/board\/[a-z0-9-]*\.o$|\/libgcc\.a\(/) other = other "board " range " board\n"
}

file == 2 && $3 ~ /^[tT]$/ {
  kind = ""
  if ($4 == "flash_interrupt") kind = "begin"
  if ($4 == "deadline_interrupt") kind = "board"
  if ($4 == "board_pend") kind = "end"
  if ($4 == "board_sleep") kind = "sleep"
  if ($4 == "vectors_replay") kind = "stop"
  # of libcoalesce, of the cores, and NVMe's own
  if ($4 ~ /^(coalesce_(vic|cint|budget|auto|hint|window)_|aggregation_)|^_ZN(8vic_core|9cint_core|11budget_core|8coalesce|8firmware6policy7machine|[0-9]+_\$LT\$(firmware\.\.policy\.\.Selected|cint_core))/) kind = "policy"
  if (kind != "") print kind, $1, $2, $4
}

END { printf "%s", other }
