# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Completion of the command larder for bash: the command itself says what may follow (larder complete WORD...).

_larder()
{
	local current=${COMP_WORDS[COMP_CWORD]} line
	local -a lines

	COMPREPLY=()
	mapfile -t lines < <("${COMP_WORDS[0]}" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
	for line in "${lines[@]}"; do
		if [ "$line" = :files ]; then
			compopt -o filenames 2> /dev/null
			mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current")
		else
			COMPREPLY+=("${line%%$'\t'*}")
		fi
	done
}

complete -F _larder larder
