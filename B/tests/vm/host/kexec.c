// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * kexec KERNEL INITRAMFS COMMAND_LINE: loads them.  kexec: goes there at once, without a word to anybody.
 *
 * As kexec-tools do, whose package would have a say in how the machine that it is installed on reboots.
 */
#include <fcntl.h>
#include <linux/reboot.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int kernel, initramfs;

	if (argc == 1) {
		syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_KEXEC, NULL);
	} else if (argc == 4) {
		kernel = open(argv[1], O_RDONLY);
		initramfs = open(argv[2], O_RDONLY);
		if (kernel >= 0 && initramfs >= 0 &&
		    !syscall(SYS_kexec_file_load, kernel, initramfs, strlen(argv[3]) + 1, argv[3], 0ul))
			return 0;
	}
	perror("kexec");
	return 1;
}
