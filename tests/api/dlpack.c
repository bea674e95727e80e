/* SPDX-License-Identifier: MIT */
/* A program that has DLPack's own header: it passes those structs to hoist as they are.  Built
 * with hoist's header first here, and in all other ways by dlpack.sh. */
#ifdef DLPACK_FIRST
#include DLPACK_HEADER
#endif
#include <hoist/dlpack.h>
#ifndef DLPACK_FIRST
#include DLPACK_HEADER
#endif

#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
#define SAME(condition) static_assert(condition, "the two are not the same in memory")
#else
#define SAME(condition) _Static_assert(condition, "the two are not the same in memory")
#endif
#define AT(ours, a, theirs, b) SAME(offsetof(ours, a) == offsetof(theirs, b))

SAME(sizeof(hoist_dl_tensor) == sizeof(DLTensor));
AT(hoist_dl_tensor, data, DLTensor, data);
AT(hoist_dl_tensor, device, DLTensor, device);
AT(hoist_dl_tensor, rank, DLTensor, ndim);
AT(hoist_dl_tensor, dtype, DLTensor, dtype);
AT(hoist_dl_tensor, shape, DLTensor, shape);
AT(hoist_dl_tensor, strides, DLTensor, strides);
AT(hoist_dl_tensor, byte_offset, DLTensor, byte_offset);
SAME(sizeof(hoist_dl_device) == sizeof(DLDevice));
AT(hoist_dl_device, id, DLDevice, device_id);
AT(hoist_dl_dtype, bits, DLDataType, bits);
AT(hoist_dl_dtype, lanes, DLDataType, lanes);
SAME(sizeof(hoist_dl_legacy) == sizeof(DLManagedTensor));
AT(hoist_dl_legacy, context, DLManagedTensor, manager_ctx);
AT(hoist_dl_legacy, deleter, DLManagedTensor, deleter);
SAME((int)HOIST_DL_CPU == (int)kDLCPU && (int)HOIST_DL_CUDA == (int)kDLCUDA);

#ifdef DLPACK_MAJOR_VERSION /* 1.0 on; the table is newer */
SAME(HOIST_DLPACK_MAJOR == DLPACK_MAJOR_VERSION);
SAME(sizeof(hoist_dl_managed) == sizeof(DLManagedTensorVersioned));
AT(hoist_dl_managed, major, DLManagedTensorVersioned, version);
AT(hoist_dl_managed, context, DLManagedTensorVersioned, manager_ctx);
AT(hoist_dl_managed, deleter, DLManagedTensorVersioned, deleter);
AT(hoist_dl_managed, flags, DLManagedTensorVersioned, flags);
AT(hoist_dl_managed, tensor, DLManagedTensorVersioned, dl_tensor);
SAME(HOIST_DL_READ_ONLY == DLPACK_FLAG_BITMASK_READ_ONLY);
#endif

#ifdef HAVE_TABLE
SAME(sizeof(hoist_dl_exchange) == sizeof(DLPackExchangeAPI));
AT(hoist_dl_exchange, previous, DLPackExchangeAPI, header.prev_api);
AT(hoist_dl_exchange, allocate, DLPackExchangeAPI, managed_tensor_allocator);
AT(hoist_dl_exchange, to_managed, DLPackExchangeAPI, managed_tensor_from_py_object_no_sync);
AT(hoist_dl_exchange, from_managed, DLPackExchangeAPI, managed_tensor_to_py_object_no_sync);
AT(hoist_dl_exchange, to_tensor, DLPackExchangeAPI, dltensor_from_py_object_no_sync);
AT(hoist_dl_exchange, current_stream, DLPackExchangeAPI, current_work_stream);

static int use_table(hoist_buffer *buffer)
{
	const DLPackExchangeAPI *table = hoist_dlpack_exchange_api();
	DLManagedTensorVersioned *tensor;
	DLTensor seen;
	void *again;
	if (table->header.version.major != 1 || table->header.prev_api != NULL)
		return -1;
	if (table->header.version.minor < 2) /* which brought the table, and forbade NULL strides */
		return -1;
	if (table->dltensor_from_py_object_no_sync(buffer, &seen) != 0 || seen.ndim != 2)
		return -1;
	if (table->managed_tensor_allocator(&seen, &tensor, NULL, NULL) != 0)
		return -1;
	if (table->managed_tensor_to_py_object_no_sync(tensor, &again) != 0)
		return -1;
	hoist_buffer_unref((hoist_buffer *)again);
	return 0;
}
#else
static int use_table(hoist_buffer *buffer)
{
	return buffer != NULL ? 0 : -1;
}
#endif

#ifdef DLPACK_MAJOR_VERSION
static int use_versioned(hoist_buffer *buffer)
{
	DLManagedTensorVersioned *tensor;
	hoist_buffer *back;
	if (hoist_buffer_to_dlpack(buffer, NULL, &tensor) < 0)
		return -1;
	if (tensor->version.major != 1 || tensor->dl_tensor.ndim != 2 || tensor->flags != 0 ||
	    tensor->dl_tensor.shape[1] != 3 || tensor->dl_tensor.device.device_type != kDLCPU)
		return -1;
	if (hoist_buffer_from_dlpack(tensor, NULL, 0, &back) < 0)
		return -1;
	hoist_buffer_unref(back);
	return 0;
}
#else
static int use_versioned(hoist_buffer *buffer)
{
	return buffer != NULL ? 0 : -1;
}
#endif

/* proves: S5.01 S5.03 S5.08 */
int main(void)
{
	const int64_t shape[] = {2, 3};
	hoist_device *cpu;
	hoist_buffer *buffer;
	DLManagedTensor *legacy;
	if (hoist_device_open("cpu", &cpu) < 0 ||
	    hoist_buffer_create(cpu, HOIST_F32, 2, shape, HOIST_BUFFER_ZERO, &buffer) < 0)
		return 1;
	int err = use_versioned(buffer);
	if (err == 0)
		err = use_table(buffer);
	if (err == 0)
		err = hoist_buffer_to_dlpack_legacy(buffer, NULL, &legacy);
	if (err == 0) {
		err = legacy->dl_tensor.dtype.bits == 32 ? 0 : -1;
		legacy->deleter(legacy);
	}
	hoist_buffer_unref(buffer);
	hoist_device_unref(cpu);
	if (err != 0)
		(void)printf("failed: %s\n", hoist_error());
	return err == 0 ? 0 : 1;
}
