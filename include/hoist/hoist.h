/* SPDX-License-Identifier: MIT */
/* hoist/hoist.h - all of hoist's public interface. */
#ifndef HOIST_H
#define HOIST_H

#include <hoist/budget.h>
#include <hoist/buffer.h>
#include <hoist/cache.h>
#include <hoist/cai.h>
#include <hoist/checkpoint.h>
#include <hoist/copy.h>
#include <hoist/device.h>
#include <hoist/dlpack.h>
#include <hoist/doctor.h>
#include <hoist/dtype.h>
#include <hoist/element.h>
#include <hoist/error.h>
#include <hoist/ipc.h>
#include <hoist/layout.h>
#include <hoist/load.h>
#include <hoist/memory.h>
#include <hoist/mmap.h>
#include <hoist/number.h>
#include <hoist/save.h>
#include <hoist/stream.h>
#include <hoist/user.h>

#endif
