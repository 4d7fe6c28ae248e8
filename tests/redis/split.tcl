# Cuts a unit of Redis's suite into its outermost commands, each a unit of its own behind the procedures of the whole: an error outside of a
# test ends the unit, and so only one of them.
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
