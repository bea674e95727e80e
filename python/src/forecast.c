/* SPDX-License-Identifier: MIT */
/* The extension's part of hoist.plan().  The contract is in python/src/module.h. */
#include "options.h"

#include <hoist/forecast.h>

/* ({...}, ...): a dict for each target. */
static PyObject *targets(const hoist_forecast *f)
{
	PyObject *list = PyList_New((Py_ssize_t)f->n_targets);
	for (size_t t = 0; t < f->n_targets && list != NULL; t++) {
		const hoist_forecast_target *target = &f->targets[t];
		PyObject *free_bytes = target->free_bytes == UINT64_MAX
					       ? Py_NewRef(Py_None)
					       : PyLong_FromUnsignedLongLong(target->free_bytes);
		PyObject *item =
			free_bytes == NULL
				? NULL
				: Py_BuildValue("{s:s,s:O,s:K,s:K,s:N}", "device", target->device,
						"emulated", target->emulated ? Py_True : Py_False,
						"n_tensors", (unsigned long long)target->n_tensors,
						"bytes", (unsigned long long)target->bytes,
						"free_bytes", free_bytes);
		if (item == NULL || PyList_SetItem(list, (Py_ssize_t)t, item) < 0)
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *facts(const hoist_forecast *f)
{
	char line[2048];
	(void)hoist_forecast_explain(f, line, sizeof line);
	PyObject *list = targets(f);
	PyObject *resident = list == NULL   ? NULL
			     : f->residency ? PyLong_FromUnsignedLongLong(f->resident_bytes)
					    : Py_NewRef(Py_None);
	if (resident == NULL) {
		Py_XDECREF(list);
		return NULL;
	}
#define U(field) #field, (unsigned long long)f->field
	return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:N,s:O,s:s,s:s,"
			     "s:N}",
			     U(bytes), U(n_tensors), U(n_files), U(direct_bytes), U(cached_bytes),
			     U(mapped_bytes), U(n_reads), U(straight_bytes), U(staged_bytes),
			     U(converted_bytes), U(slot_bytes), U(n_slots), U(budget_bytes),
			     "resident_bytes", resident, "fits", f->fits ? Py_True : Py_False,
			     "io_reason", f->io_reason, "line", line, "targets", list);
#undef U
}

/* Takes the arguments of Load.  Returns: the facts, as a dict. */
static PyObject *forecast(PyObject *self, PyObject *args, PyObject *keywords)
{
	struct load_options o = {0};
	hoist_checkpoint *checkpoint = NULL;
	hoist_forecast f = {.size = sizeof f};
	PyObject *ret = NULL;
	int err;
	(void)self;
	if (hoist_py_read_options(args, keywords, &o) == 0)
		checkpoint = hoist_py_use_checkpoint(o.checkpoint);
	if (checkpoint != NULL) {
		HOIST_PY_WAITING(err = hoist_load_forecast(checkpoint, &o.options, &f));
		hoist_py_leave_checkpoint(o.checkpoint);
		ret = err < 0 ? hoist_py_fail(err) : facts(&f);
	}
	hoist_py_drop_options(&o);
	return ret;
}

static PyMethodDef functions[] = {
	{"forecast", HOIST_PY_KEYWORDS(forecast), METH_VARARGS | METH_KEYWORDS, NULL},
	{NULL, NULL, 0, NULL},
};

int hoist_py_add_forecast(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}
