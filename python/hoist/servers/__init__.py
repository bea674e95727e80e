# SPDX-License-Identifier: MIT
"""What hoist's plug-ins for inference servers have in common: their settings, and the ways that they read."""
