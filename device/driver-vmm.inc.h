/* SPDX-License-Identifier: MIT */
/* device/driver-vmm.inc.h - virtual memory of both drivers, where a driver has it; part of
 * driver-ops.inc.h. */

static struct NATIVE(memory_props) native_props(const struct hoist__dev *dev,
						const struct hoist__vmm_props *props)
{
	return (struct NATIVE(memory_props)){
		.type = VALUE(ALLOCATION_PINNED),
		.location = {VALUE(LOCATION_DEVICE), DEVICE_ID(dev)},
		.rdma = props->rdma,
	};
}

static int driver_vmm_granularity(struct hoist__dev *dev, const struct hoist__vmm_props *props,
				  size_t *ret)
{
	const struct NATIVE(memory_props) native = native_props(dev, props);
	const NATIVE(granularity) which =
		props->recommended ? VALUE(GRANULARITY_RECOMMENDED) : VALUE(GRANULARITY_MINIMUM);
	size_t granularity = 0;
	RESULT result = VALUE(SUCCESS);
	int err = RUN(dev, "asking for the granularity of virtual memory",
		      result = CALL(MemGetAllocationGranularity)(&granularity, &native, which));
	if (result == VALUE(ERROR_NOT_SUPPORTED))
		return hoist__driver_fail_lacks(dev, "virtual memory");
	if (err == 0)
		*ret = granularity;
	return err;
}

static int driver_vmm_reserve(struct hoist__dev *dev, size_t bytes, size_t align, uintptr_t hint,
			      uintptr_t *ret)
{
	NATIVE(device_ptr) address = 0;
	int err = RUN_RELAXED(
		dev, "reserving addresses",
		CALL(MemAddressReserve)(&address, bytes, align, (NATIVE(device_ptr))hint, 0));
	if (err < 0)
		return hoist__fail_in(err, "%zu bytes of addresses", bytes);
	*ret = (uintptr_t)address;
	return 0;
}

static int driver_vmm_unreserve(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	return RELEASE(dev, "giving addresses back",
		       CALL(MemAddressFree)((NATIVE(device_ptr))address, bytes));
}

static int driver_vmm_create(struct hoist__dev *dev, const struct hoist__vmm_props *props,
			     size_t bytes, uint64_t *ret)
{
	const struct NATIVE(memory_props) native = native_props(dev, props);
	NATIVE(memory) handle = 0;
	int err = RUN_RELAXED(dev, "making memory without an address",
			      CALL(MemCreate)(&handle, bytes, &native, 0));
	if (err < 0)
		return hoist__driver_fail_alloc(dev, err, bytes);
	*ret = (uint64_t)(uintptr_t)handle;
	return 0;
}

static int driver_vmm_release(struct hoist__dev *dev, uint64_t handle)
{
	return RELEASE(dev, "releasing memory",
		       CALL(MemRelease)((NATIVE(memory))(uintptr_t)handle));
}

static int driver_vmm_map(struct hoist__dev *dev, uintptr_t address, size_t bytes, uint64_t handle)
{
	return RUN_RELAXED(dev, "mapping memory",
			   CALL(MemMap)((NATIVE(device_ptr))address, bytes, 0,
					(NATIVE(memory))(uintptr_t)handle, 0));
}

static int driver_vmm_unmap(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	return RELEASE(dev, "unmapping memory", CALL(MemUnmap)((NATIVE(device_ptr))address, bytes));
}

static int driver_vmm_set_access(struct hoist__dev *dev, uintptr_t address, size_t bytes,
				 const struct hoist__dev *accessor, enum hoist__vmm_access access)
{
	static const NATIVE(access_flags) flags[] = {
		[HOIST__VMM_NONE] = VALUE(ACCESS_NONE),
		[HOIST__VMM_READ] = VALUE(ACCESS_READ),
		[HOIST__VMM_READ_WRITE] = VALUE(ACCESS_READ_WRITE),
	};
	const struct NATIVE(access) native = {
		.location = {VALUE(LOCATION_DEVICE), DEVICE_ID(accessor)},
		.flags = flags[access],
	};
	return RUN_RELAXED(dev, "setting the access to memory",
			   CALL(MemSetAccess)((NATIVE(device_ptr))address, bytes, &native, 1));
}
