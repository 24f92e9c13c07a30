# SPDX-License-Identifier: GPL-2.0-or-later
"""For tests inside the VM: simdisk, dm, oracle, block (direct I/O and queue attributes), kernel_log, command, watchdog."""
