/* SPDX-License-Identifier: MIT */
/* device/driver-memory.inc.h - memory, for both drivers; part of driver-ops.inc.h. */

static int driver_mem_info(struct hoist__dev *dev, uint64_t *free_bytes, uint64_t *total_bytes)
{
	size_t available = 0;
	size_t total = 0;
	int err = RUN_RELAXED(dev, "asking how much memory is free",
			      CALL(MemGetInfo)(&available, &total));
	if (err < 0)
		return err;
	*free_bytes = available;
	*total_bytes = total;
	return 0;
}

static int driver_mem_alloc(struct hoist__dev *dev, size_t bytes, uintptr_t *ret)
{
	NATIVE(device_ptr) address = 0;
	int err = RUN_RELAXED(dev, "allocating device memory", CALL(Malloc)(&address, bytes));
	if (err < 0)
		return hoist__driver_fail_alloc(dev, err, bytes);
	*ret = (uintptr_t)address;
	return 0;
}

static int driver_managed_alloc(struct hoist__dev *dev, size_t bytes, uintptr_t *ret)
{
	NATIVE(device_ptr) address = 0;
	RESULT result = VALUE(SUCCESS);
	if (CALL(MallocManaged) == NULL)
		return hoist__driver_fail_lacks(dev, "managed memory");
	int err = RUN_RELAXED(dev, "allocating managed memory",
			      result = CALL(MallocManaged)(&address, bytes, VALUE(ATTACH_GLOBAL)));
	if (result == VALUE(ERROR_NOT_SUPPORTED))
		return hoist__driver_fail_refuses(dev, (int)result, "managed memory");
	if (err < 0)
		return hoist__driver_fail_alloc(dev, err, bytes);
	*ret = (uintptr_t)address;
	return 0;
}

static int driver_mem_free(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	(void)bytes;
	return RELEASE(dev, "freeing device memory", CALL(Free)((NATIVE(device_ptr))address));
}

static int driver_host_register(struct hoist__dev *dev, void *address, size_t bytes, bool read_only)
{
	static const char what[] = "registration of memory that is mapped for reading only";
	const unsigned flags = VALUE(HOST_REGISTER_PORTABLE) | VALUE(HOST_REGISTER_MAPPED) |
			       (read_only ? VALUE(HOST_REGISTER_READ_ONLY) : 0);
	RESULT result = VALUE(SUCCESS);
	if (read_only && VALUE(HOST_REGISTER_READ_ONLY) == 0)
		return hoist__driver_fail_lacks(dev, what);
	int err =
		RUN_RELAXED(dev, HOST_REGISTER, result = CALL(HostRegister)(address, bytes, flags));
	if (read_only && result == VALUE(ERROR_NOT_SUPPORTED))
		return hoist__driver_fail_refuses(dev, (int)result, what);
	return err < 0 ? hoist__driver_fail_register(err, bytes) : 0;
}

static int driver_host_unregister(struct hoist__dev *dev, void *address, size_t bytes)
{
	(void)bytes;
	return RELEASE(dev, "unregistering host memory", CALL(HostUnregister)(address));
}

static int driver_host_address(struct hoist__dev *dev, void *address, uintptr_t *ret)
{
	NATIVE(device_ptr) seen = 0;
	int err = RUN(dev, "asking for the device's address of host memory",
		      CALL(HostGetDevicePointer)(&seen, address, 0));
	if (err == 0)
		*ret = (uintptr_t)seen;
	return err;
}
