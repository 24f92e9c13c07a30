# SPDX-License-Identifier: GPL-2.0-or-later
# Completion of the command larder for fish: the command itself says what may follow (larder complete WORD...).

function __larder_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    for line in ($before[1] complete $before[2..-1] "$current" 2>/dev/null)
        if test "$line" = :files
            __fish_complete_path "$current"
        else
            echo $line
        end
    end
end

complete -c larder -f -a '(__larder_complete)'
