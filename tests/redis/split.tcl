# Cuts a unit of Redis's suite into its outermost commands. Each becomes a separate unit, preceded by the procedures of the
# whole unit. An error outside of a test ends its unit, so after the cut it ends only one part.
#
#   tclsh split.tcl UNIT.tcl PART    writes PART-1.tcl, PART-2.tcl, …
lassign $argv unit part
set file [open $unit]
set lines [split [read $file] "\n"]
close $file
set preamble ""
set command ""
set count 0
foreach line $lines {
    append command $line "\n"
    if {![info complete $command]} continue
    set text [string trim $command]
    if {[regexp {^(proc|source|set)\s} $text]} {
        append preamble $command
    } elseif {$text ne "" && [string index $text 0] ne "#"} {
        set out [open "$part-[incr count].tcl" w]
        puts $out "$preamble$command"
        close $out
    }
    set command ""
}
