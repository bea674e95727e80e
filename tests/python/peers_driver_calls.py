# SPDX-License-Identifier: MIT
"""Calls that peers_driver.py makes on hoist.driver and max.driver, as expressions of Python.

Their names: `d` is the module, `B` its Buffer, `T` its DType, `b` a float32 buffer of shape (2, 3, 4).
"""

# Without random arguments.
CALLS = """
B(T.float32, (-1, 3))
B(T.float32, 5)
B("float32", (2,))
B(T.float32, [2.0])
B(T.float32, (1 << 50,))
B(T.float32, (1 << 64,))
B(T.float32, (1,) * 70).rank
B(np.zeros((2, 3)), d.CPU())
B(shape=np.zeros((2, 3)), device=d.CPU())
B(np.zeros((2, 3)))
B.zeros(3, T.int32)
B.scalar("x", T.int32)
B.scalar(3, T.bool).item()
B.scalar(0.7, T.bool).item()
B.scalar(1e39, T.float32).item()
B.scalar(1e39, T.bfloat16).item()
b[:, :, :2].view(T.float64)
b[:, :, ::-1].view(T.int32)
b[:, :, :2].view(T.int32, (12,))
b[1:, :, :].view(T.int32, (12,))
b[0:0, :, :].view(T.int32)
B.scalar(2, T.float4_e2m1fn).item()
B.from_dlpack(np.zeros(2, "c8"))
B.from_dlpack(np.zeros(2, ">f4"))
B.from_dlpack(np.array(["a"]))
B.from_dlpack(3)
B.from_dlpack(None)
B.from_dlpack(b) is b
B.from_dlpack(b, copy=True) is b
B.from_dlpack(b, copy=False) is b
B.from_numpy([1, 2])
B.from_numpy(np.float32(3))
B.zeros((2,), T.bfloat16).to_numpy()
B.zeros((2,), T.bool).to_numpy()
np.from_dlpack(B.zeros((2,), T.bfloat16))
np.from_dlpack(B.zeros((2,), T.bool))
b[...]
b[..., 0]
b[0, ..., 0]
b[None]
b[0, None]
B.from_numpy(np.array(True))
b["a"]
b[1.0, 0, 0]
b[10**30, 0, 0]
b[:10**30, 0, 0]
b[-10**30::2, 0, 0]
b[np.array([0, 1])]
b.__setitem__((0, 0, 0), "x")
b.__setitem__((0, 0, 0), None)
b.__setitem__((0, 0, 0), 1j)
b.__setitem__(slice(None), 0)
b.__setitem__(Ellipsis, 0)
b.__setitem__("a", 0)
b[0, 0, 0].__setitem__(1, 5)
b[0, 0, 0].view(T.int8)
b[0, 0, 0].view(T.int8, (4,))
b.view(T.float32, 24)
b.view(T.float32, (-1,))
b.to([])
b.to(5)
b.to(d.CPU().default_queue)
b.copy(d.CPU().default_queue)
b.copy(3)
b.inplace_copy_from(3)
d.batch_inplace_copy([b], [3])
d.batch_inplace_copy([b], [b])
d.copy_pinned_to_destinations(b, [B(T.float32, (24,)), b])
d.copy_pinned_to_destinations(b, [B(T.float32, (23,))])
len(b)
list(b)
bool(b)
float(b[0, 0, 1])
b[0, 0, 1].__index__()
b == b
b == b[:, :, :]
hash(b) == hash(b)
repr(b.dtype)
str(b.dtype)
b._aligned(3)
b._aligned(4)
b.__dlpack__(stream=1) is None
b.__dlpack__(copy=True) is None
b.__dlpack__(dl_device=(2, 0))
b.__dlpack__(foo=3)
b.__dlpack__(3)
b.stream == d.CPU().default_queue
isinstance(b, d.DLPackArray)
memoryview(b).nbytes
pickle.loads(pickle.dumps(b)).shape
np.asarray(b).dtype.str
str(d.CPU())
str(d.CPU(5))
d.CPU(5) == d.CPU()
d.CPU() == 3
hash(d.CPU(5)) == hash(d.CPU())
d.CPU() is d.CPU()
isinstance(d.CPU(), d.CPU)
isinstance(d.CPU(), d.Accelerator)
isinstance(d.CPU(), d.Device)
[d.CPU().id, d.CPU().label, d.CPU().api, d.CPU().is_host, d.CPU().is_compatible]
d.CPU().is_host_unified
d.CPU().max_single_alloc_size
sorted(set(d.CPU().stats) & {"free_memory", "total_memory"})
d.CPU().stats["total_memory"]
d.CPU().architecture_name
d.CPU().can_access(d.CPU())
d.CPU().can_access(3)
d.CPU().synchronize()
d.Device()
d.Device.cpu(7) == d.CPU()
d.Accelerator()
d.Accelerator(3)
d.CPU().default_queue == d.CPU().default_queue
d.CPU().default_queue.native_stream_handle
d.CPU().default_queue.device == d.CPU()
d.CPU().default_queue.synchronize()
d.CPU().default_queue.wait_for(3)
[(e.synchronize(), e.is_ready()) for e in [d.CPU().default_queue.record_event()]]
d.CPU().default_queue.record_event(d.DeviceEvent(d.CPU()))
d.DeviceQueue(d.CPU()) == d.CPU().default_queue
d.DeviceQueue(d.CPU()).device == d.CPU()
d.DeviceQueue(3)
d.DeviceEvent(d.CPU()).is_ready()
d.DeviceEvent(d.CPU()).synchronize()
d.CompletionFlag(d.CPU()).load()
d.accelerator_count()
d.accelerator_api()
d.accelerator_architecture_name()
d.enable_all_peer_access()
d.scan_available_devices() == [d.DeviceSpec.cpu()]
d.DeviceSpec(-1, "gpu")
d.DeviceSpec.accelerator() == d.DeviceSpec(0, "gpu")
d.load_devices([]) == []
d.load_devices([d.DeviceSpec.cpu()])[0] == d.CPU()
d.load_devices([d.DeviceSpec(3, "gpu")])
d.is_virtual_device_mode()
[d.get_virtual_device_api(), d.get_virtual_device_target_arch(), d.get_virtual_device_count()]
[u.name for u in d.Usage]
[u.value for u in d.Usage]
d.Usage.STAGING in (d.Usage.STAGING | d.Usage.UNTRACKED)
d.Usage.STAGING == 1
issubclass(d.HostHazardError, RuntimeError)
d.load_max_buffer("/none/none")
B.mmap("/none/none", T.int8, 3)
B.mmap("/none", T.bfloat16, 3)
""".strip().splitlines()

# Of each type: the same name in both packages.
DTYPES = """
[T.{0}.value, T.{0}.name, str(T.{0}), repr(T.{0})]
T.{0} == "{0}"
[T.{0}.size_in_bytes, T.{0}.align]
[T.{0}.is_integral(), T.{0}.is_signed_integral(), T.{0}.is_unsigned_integral(), T.{0}.is_float()]
[T.{0}.is_float8(), T.{0}.is_half()]
T.{0}.size_in_bits
""".strip().splitlines()
