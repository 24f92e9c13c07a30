# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's side of the VM tests: kernels, builds, machines, suites, verdicts."""
