// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the kernel would say of superblocks: reads pairs of a length in sectors (8 bytes, little-endian) and a superblock (4096 bytes) from stdin, prints for
 * each "0" or the field that kernel/format.c refuses.  test_command_damage.py compares that with what the command says.
 */
#include "pure_user.h"

#include "../../kernel/format.c"

int main(void)
{
	static union {
		struct larder_sb_head head;
		u8 bytes[LARDER_SB_SIZE];
	} sb;
	__le64 sectors;

	while (fread(&sectors, sizeof(sectors), 1, stdin) == 1 && fread(&sb, sizeof(sb), 1, stdin) == 1) {
		const char *why = "";
		int error = larder_check_sb(&sb.head, le64_to_cpu(sectors), &why);

		if (error)
			printf("%s\n", why);
		else
			puts("0");
	}
	return 0;
}
