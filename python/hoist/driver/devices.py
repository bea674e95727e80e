# SPDX-License-Identifier: MIT
"""Devices, their specs, and virtual devices, as max.driver names them."""

import atexit
import dataclasses

from .. import _hoist, errors

# Streams that wait for a flag would keep the interpreter from ending.
atexit.register(_hoist.Flag._abandon_all)


class _Kind(type):
    """CPU and Accelerator are kinds of Device: calling one opens a device of the kind."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, _hoist.Device) and instance.is_host == cls._is_host


class CPU(metaclass=_Kind):
    """The CPU: `CPU()` is the device, and `isinstance(device, CPU)` asks for its kind.

    Parameters
    ----------
    id : int
        Has no effect.
    """

    _is_host = True

    def __new__(cls, id=-1):  # pylint: disable=redefined-builtin
        del id
        return _hoist.Device("cpu")


class Accelerator(metaclass=_Kind):
    """An accelerator: `Accelerator()` is the device; `isinstance(device, Accelerator)` asks for its kind.

    Parameters
    ----------
    id : int
        Counted from 0; -1 is the first one.
    device_memory_limit : int
        The most bytes that hoist takes there; -1: 99 % of what is free.  The limit of the first call
        for a device holds.

    Raises
    ------
    ValueError
        There is no such device.
    """

    _is_host = False

    def __new__(cls, id=-1, device_memory_limit=-1):  # pylint: disable=redefined-builtin
        n = accelerator_count()
        index = 0 if id == -1 else id
        if not 0 <= index < n:
            raise errors.InvalidError(
                "no supported \"gpu\" device is available" if n == 0 else
                f"there is no accelerator {id}: this machine has {n}, counted from 0")
        return _hoist.Device._open(f"gpu:{index}", max(0, device_memory_limit))


def accelerator_count():
    """The number of accelerators; of virtual ones in virtual mode."""
    return _hoist.accelerator_count()


def enable_all_peer_access():
    """Enables access from each accelerator to the memory of each other one.

    Raises RuntimeError if a pair cannot; the pairs before stay enabled.
    """
    devices = [Accelerator(i) for i in range(accelerator_count())]
    for device in devices:
        for peer in devices:
            if not device.can_access(peer):
                raise RuntimeError(f"{device.spec} cannot access the memory of {peer.spec}: the driver "
                                   "does not allow it between the two")


def accelerator_api():
    """The API of the first accelerator: "cuda" or "hip"; "cpu" if there is none."""
    return _hoist.accelerator_api()


def accelerator_architecture_name():
    """The architecture of the first accelerator: "sm_90".  Raises ValueError if there is none."""
    return (Accelerator() if accelerator_count() > 0 else CPU()).architecture_name


@dataclasses.dataclass(frozen=True)
class DeviceSpec:
    """The name of a device, whether the device exists or not.

    Parameters
    ----------
    id : int
    device_type : {"cpu", "gpu"}

    Raises
    ------
    ValueError
        The id of a gpu is negative.
    """

    id: int
    device_type: str = "cpu"

    def __post_init__(self):
        if self.device_type == "gpu" and self.id < 0:
            raise ValueError(f"the id of a gpu is 0 or more, not {self.id}")

    @staticmethod
    def cpu(id=-1):  # pylint: disable=redefined-builtin
        """The CPU's spec.

        Parameters
        ----------
        id : int

        Returns
        -------
        DeviceSpec
        """
        return DeviceSpec(id, "cpu")

    @staticmethod
    def accelerator(id=0):  # pylint: disable=redefined-builtin
        """An accelerator's spec.

        Parameters
        ----------
        id : int

        Returns
        -------
        DeviceSpec
        """
        return DeviceSpec(id, "gpu")


def load_devices(device_specs):
    """Opens devices, in their order.

    Parameters
    ----------
    device_specs : iterable of DeviceSpec

    Returns
    -------
    list of hoist.Device

    Raises
    ------
    ValueError
        A device does not exist.
    """
    ret = []
    for spec in device_specs:
        if spec.device_type == "cpu":
            ret.append(CPU(spec.id))
            continue
        n = accelerator_count()
        if spec.id >= n:
            found = "no devices were found" if n == 0 else f"only found {n} devices"
            raise ValueError(f"there is no device {spec.id}: {found}")
        ret.append(Accelerator(spec.id))
    return ret


def scan_available_devices():
    """The specs of the accelerators; of the CPU if there are none."""
    n = accelerator_count()
    return [DeviceSpec.accelerator(i) for i in range(n)] if n else [DeviceSpec.cpu()]


def devices_exist(devices):
    """Whether all devices exist.  The CPU exists, whatever its id.

    Parameters
    ----------
    devices : iterable of DeviceSpec

    Returns
    -------
    bool
    """
    available = scan_available_devices()
    return all(spec.device_type == "cpu" or spec in available for spec in devices)


def calculate_virtual_device_count(*device_spec_lists):
    """The number of devices that lists of specs need: the highest id and 1; at least 1.

    Parameters
    ----------
    *device_spec_lists : iterables of DeviceSpec

    Returns
    -------
    int
    """
    return max([1, *(1 + spec.id for specs in device_spec_lists for spec in specs
                     if spec.device_type != "cpu")])


def calculate_virtual_device_count_from_cli(*device_inputs):
    """The number of devices that values of a command line need; at least 1.

    Parameters
    ----------
    *device_inputs : str or list of int
        A list of ids, or a text: "gpu", "gpu:all" (the last accelerator of this machine), "gpu:0,3".
        Any other text needs no device.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        An id is no integer.
    """
    words = [value for value in device_inputs if isinstance(value, str)]
    lists = [value for value in device_inputs if not isinstance(value, str)]
    return max([_hoist.virtual_count_of(words), *(1 + max(ids) for ids in lists if ids)])


_virtual = {"api": "", "architecture": "", "count": 0}


def set_virtual_device_api(api):
    """Sets the API of virtual devices, before `hoist.driver.set_virtual_device_count()`.

    Parameters
    ----------
    api : {"cuda", "hip"}
    """
    _virtual["api"] = api


def get_virtual_device_api():
    """The API that was set; "" if none was."""
    return _virtual["api"]


def set_virtual_device_target_arch(arch):
    """Sets the architecture of virtual devices, before `hoist.driver.set_virtual_device_count()`.

    Parameters
    ----------
    arch : str
        "sm_80", "gfx942".
    """
    _virtual["architecture"] = arch


def get_virtual_device_target_arch():
    """The architecture that was set; "" if none was."""
    return _virtual["architecture"]


def set_virtual_device_count(count):
    """Makes accelerators appear that the machine does not have.

    Their memory is host memory, copies are real, kernels do not run.

    Parameters
    ----------
    count : int
        0: no more.

    Raises
    ------
    hoist.Error
        The real driver is in use already.
    """
    _hoist.virtual_set(_virtual["api"] or "cuda", _virtual["architecture"] or None, count)
    _virtual["count"] = count


def get_virtual_device_count():
    """The number of virtual devices; 0: there are none."""
    return _virtual["count"]


def is_virtual_device_mode():
    """Whether there are virtual devices."""
    return _virtual["count"] > 0
