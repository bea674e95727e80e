/* SPDX-License-Identifier: MIT */
/* Docstrings of CompletionFlag (flag.c), in numpydoc's form. */
#ifndef HOIST_PY_FLAG_DOC_H
#define HOIST_PY_FLAG_DOC_H

static const char flag_doc[] =
	"Flag(device)\n"
	"--\n\n"
	"A number of 64 bits, 0 at first, that a program sets and that streams wait for.\n\n"
	"Any thread may call every method.\n\n"
	"Parameters\n"
	"----------\n"
	"device : Device or str\n"
	"    The accelerator that can read the number.\n\n"
	"Raises\n"
	"------\n"
	"OutOfMemoryError, DeviceError\n"
	"    There is no pinned memory for the number.";

static const char signal_doc[] =
	"signal($self, value, /)\n"
	"--\n\n"
	"Sets the number: streams that wait for it, or for less, go on.\n\n"
	"Parameters\n"
	"----------\n"
	"value : int\n"
	"    From 0 to 2**64 - 1.\n\n"
	"Raises\n"
	"------\n"
	"OverflowError\n"
	"    The number does not fit.";

#endif
