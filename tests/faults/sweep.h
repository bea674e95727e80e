/* SPDX-License-Identifier: MIT */
/* tests/faults/sweep.h - the parts that the files of the failure sweep share.
 *
 *   sweep.c            each scenario, each call of it, one after the other
 *   sweep-run.c        one scenario in a process: a call fails, and the process is judged
 *   sweep-arm.c        makes that call fail, and says where it came from
 *   sweep-process.c    that process, seen from its parent
 *   sweep-calls.c      system calls: how each may fail; the filter, and its answers
 *   sweep-memory.c     malloc and its kin, which fail, and are counted
 *   sweep-devices.c    the devices of scenarios that keep them open
 *   sweep-count.c      what a process holds
 *   sweep-model.c      the checkpoints, and what their bytes are to be
 *   sweep-files.c      those of other formats
 *   sweep-kept.c       this program and the stand-in drivers, as they were when it began
 *   sweep-load.c, -group.c, -copy.c, -save.c, -share.c, -cache.c   scenarios of make check-faults
 *   ../lib/ROOM/... failures.c                           scenarios of make check
 *
 * A parent that opens nothing of hoist's answers for the kernel (seccomp's notifications), and a
 * child, with all its threads and what it starts, asks.
 */
#ifndef HOIST_TESTS_FAULT_SWEEP_H
#define HOIST_TESTS_FAULT_SWEEP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <hoist/hoist.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SWEEP_SANITIZED 1
#else
#define SWEEP_SANITIZED 0
#endif

/* --- what fails --- */

/* SWEEP_MEMORY: allocations of the whole process, which a sanitizer does not leave to us.
 * SWEEP_OWN: those of hoist's own (--wrap), so that libc's and the stand-ins' are left alone.
 * SWEEP_ASYNC: a copy that is accepted and fails later. */
enum sweep_kind { SWEEP_CALLS, SWEEP_MEMORY, SWEEP_DRIVER, SWEEP_ASYNC, SWEEP_OWN, SWEEP_N_KINDS };

/* Bits of a set of kinds: in a process that goes on, and in a new process for each fault. */
#define SWEEP_WARM(kind) (1u << (kind))
#define SWEEP_COLD(kind) (1u << (SWEEP_N_KINDS + (kind)))

#define SWEEP_MOST_TRACE 24

/* --- what a process holds (sweep-count.c) --- */

#define SWEEP_COUNTS(X)                                                                            \
	X(descriptors)                                                                             \
	X(threads)                                                                                 \
	X(mapped_files_kib)                                                                        \
	X(anonymous_kib)                                                                           \
	X(locked_kib)                                                                              \
	X(blocks)                                                                                  \
	X(names) /* in the folder */                                                               \
	X(driver_allocations)                                                                      \
	X(driver_bytes)                                                                            \
	X(driver_registrations)                                                                    \
	X(driver_streams)                                                                          \
	X(driver_events)                                                                           \
	X(driver_pools)                                                                            \
	X(driver_imports)                                                                          \
	X(driver_misuses)                                                                          \
	X(budget_bytes)                                                                            \
	X(children)

struct sweep_counts {
#define X(name) long name;
	SWEEP_COUNTS(X)
#undef X
};

void sweep_count(struct sweep_counts *ret);

/* Counts descriptors, threads and mappings of another process.  false: that has ended. */
bool sweep_count_other(pid_t pid, struct sweep_counts *ret);

/* Takes children that have ended; an end that is not allowed is an error.  true: others live. */
bool sweep_reap(void);

/* Room of a thread's stack. */
#define SWEEP_STACK_KIB 768

/* Is there more of anything?  Says of what. */
bool sweep_counts_more(const struct sweep_counts *now, const struct sweep_counts *idle, char *text,
		       size_t room);

/* The budget of all scenarios. */
extern hoist_budget *sweep_budget;

/* --- what all processes see --- */

/* Between the parent, the child and what that starts. */
struct sweep_shared {
	atomic_bool armed;  /* system calls */
	atomic_int memory;  /* SWEEP_MEMORY or SWEEP_OWN, whose allocations are counted; 0: none */
	atomic_long bytes;  /* that hoist's own asked for since then */
	atomic_bool struck; /* an allocation failed, or a driver call in a process that has ended */
	atomic_long at;	    /* the call that fails, from 1 */
	atomic_uint way;    /* of those that the call has */
	atomic_long seen;   /* calls while armed */
	atomic_int nr;	    /* the system call that failed; -1: none did */
	atomic_int err;	    /* as what; 0: no bytes */
	atomic_uint n_ways;
	atomic_int unknown; /* a system call that no table has; -1: none */
	bool few_pages;	    /* populating a range gives its first pages alone */
	atomic_bool traces; /* signals may be sent before an answer is */
	atomic_int n_trace;
	void *trace[SWEEP_MOST_TRACE];

	/* Where the child is, for the parent. */
	atomic_ulong beats;
	atomic_long n;
	atomic_long total;	     /* calls of one run */
	atomic_bool ended;	     /* all calls have failed */
	struct sweep_counts idle;    /* of a process that did everything once, without a failure */
	struct sweep_counts trimmed; /* the same, when it has given back what it may keep */
	bool has_idle;
	char wrong[1024]; /* the first thing that was, of this run; "": none */

	atomic_long holder_blocks; /* of the cache's holder, since it was forked */

	/* Pairs of processes. */
	bool is_cold;
	struct sweep_counts side_idle[2];
	atomic_int arrived;
	atomic_int side_err[2];

	/* Figures. */
	atomic_long n_runs;
	atomic_long n_faults;
	atomic_long n_survived;
	atomic_long n_wrong;
};

extern struct sweep_shared *sweep;

/* --- scenarios --- */

struct sweep_scenario {
	const char *name;
	const char *api; /* whose driver's calls fail as well; NULL: none */
	/* 0: a scenario of make check-faults, for every kind that its api has.  Else a scenario of
	 * make check, where every call of these kinds fails. */
	unsigned kinds;
	long least; /* calls of each kind that make check finds; 0: 20 */
	long alike; /* calls from here on are more of the same: every third fails; 0: none are */
	int device; /* sweep_device of this scenario */
	/* Once, in the parent; false: this machine cannot run it.  NULL, here and below: nothing.
	 */
	bool (*set_up)(void);
	/* Once in each process, before anything fails. */
	void (*prepare)(void);
	/* Before each run, when nothing fails. */
	void (*begin)(void);
	/* 0, or what failed, with a text; whatever it made is gone. */
	int (*run)(void);
	/* After each run, when nothing fails: what lies in the folder is right. */
	void (*check)(int err);
	void (*finish)(void); /* at the end of each process */
	bool tries_again; /* in make check: runs once more after each failure, not every eighth */
	bool has_texts;	  /* it looks itself whether errors have one */
	bool varies;	  /* it ends early, by chance, and so does the number of its calls:
			   * in a process that goes on only */
};

/* Each ends with a name that is NULL. */
extern const struct sweep_scenario sweep_loads[];
extern const struct sweep_scenario sweep_groups[];
extern const struct sweep_scenario sweep_copies[];
extern const struct sweep_scenario sweep_saves[];
extern const struct sweep_scenario sweep_shares[];
extern const struct sweep_scenario sweep_caches[];
extern const struct sweep_scenario sweep_lib_buffer[];
extern const struct sweep_scenario sweep_lib_checkpoint[];
extern const struct sweep_scenario sweep_lib_copy[];
extern const struct sweep_scenario sweep_lib_device[];
extern const struct sweep_scenario sweep_lib_dlpack[];
extern const struct sweep_scenario sweep_lib_doctor[];
extern const struct sweep_scenario sweep_lib_element[];
extern const struct sweep_scenario sweep_lib_forecast[];
extern const struct sweep_scenario sweep_lib_ipc[];
extern const struct sweep_scenario sweep_lib_memory[];
extern const struct sweep_scenario sweep_lib_plan[];
extern const struct sweep_scenario sweep_lib_save[];
extern const struct sweep_scenario sweep_lib_transfer[];

/* Makes the call if none before it failed. */
#define STEP(err, call)                                                                            \
	do {                                                                                       \
		if ((err) == 0)                                                                    \
			(err) = (call);                                                            \
	} while (0)

/* Something is not as it must be: the run is reported, and the test fails. */
void sweep_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Is there a text, and of this failure?  sweep_forget_text() is called before it. */
void sweep_forget_text(void);
void sweep_check_text(int err);

/* glibc leaves a library mapped that it could not map as a whole: a stand-in driver's, whose size
 * sweep_keep_programs() measures. */
extern long sweep_driver_kib;
void sweep_allow_library(struct sweep_counts *counts);

/* Waits for what ends a little later; else it is wrong. */
void sweep_compare_with(const struct sweep_counts *idle, const char *when);

/* Set-up failed: ends the program. */
void sweep_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* If driver calls fail: forgets their failures.  Done after check(), if that does not do so. */
void sweep_reset_drivers(void);

/* --- the child, in itself (sweep-run.c) and from outside (sweep-process.c) --- */

struct sweep_job {
	const struct sweep_scenario *scenario;
	enum sweep_kind kind;
	bool cold;   /* one fault, in a process that did nothing before */
	long first;  /* call, from 1 */
	long stride; /* 0: such that there are @shots */
	long shots;
	unsigned random; /* where to begin, and which way, if there is a stride; 0: all ways */
	int way;	 /* this one alone; -1: all */
};

extern const char *const sweep_kinds[SWEEP_N_KINDS];

/* Does @job in a process of its own.  Returns: false if that did not end as it should. */
bool sweep_run(const struct sweep_job *job);

/* Something is wrong with what is being done for @job. */
void sweep_describe(const struct sweep_job *job, const char *what);

/* A child of the parent's that is there until the parent ends; 0: none. */
extern pid_t sweep_peer;

/* Does @job, and ends the process. */
void sweep_child(const struct sweep_job *job) __attribute__((noreturn));

/* --- the call that fails (sweep-arm.c) --- */

/* From the next call on, the @n-th of the job's kind fails, in the way @way. */
void sweep_arm(const struct sweep_job *job, long n, unsigned way);

/* Nothing fails any more.  Did anything? */
bool sweep_disarm(const struct sweep_job *job);

/* Between these, nothing fails, for the scenario's own work.  The first gives whether anything was
 * to fail, for the second. */
bool sweep_pause(void);
void sweep_resume(bool was);

/* A call that fails leaves its stack in sweep->trace; a crash prints its own. */
void sweep_catch_signals(void);

/* --- system calls (sweep-calls.c) --- */

/* From here on the kernel asks the owner of the descriptor that goes over @socket.
 * Returns: 0; -errno: it does not. */
int sweep_filter(int socket);

/* Answers one question. */
void sweep_answer(int listener, pid_t child);

const char *sweep_call_name(int nr);

/* --- memory (sweep-memory.c) --- */

/* While sweep->memory, allocation sweep->at fails, of all threads and processes.  Blocks that are
 * not free; 0 where that is not known. */
long sweep_memory_live(void);

/* From the next fork on, the child's are counted in sweep->holder_blocks. */
void sweep_memory_tell(void);

/* --- devices that stay open (sweep-devices.c) --- */

/* cpu, cuda:0, cuda:1 and hip:0; NULL: not open yet. */
extern hoist_device *sweep_devices[4];

/* The number of the scenario's own among them. */
extern int sweep_device;

/* Two scenarios of one program: with CUDA's stand-in and allocations, and with HIP's. */
#define SWEEP_BOTH(text, on_cuda, on_hip, ...)                                                     \
	{.name = text,                                                                             \
	 .api = "cuda",                                                                            \
	 .device = on_cuda,                                                                        \
	 .kinds = SWEEP_COLD(SWEEP_OWN) | SWEEP_WARM(SWEEP_DRIVER),                                \
	 __VA_ARGS__},                                                                             \
	{                                                                                          \
		.name = text "-hip", .api = "hip", .device = on_hip,                               \
		.kinds = SWEEP_WARM(SWEEP_DRIVER), __VA_ARGS__                                     \
	}

/* Opens those that are not open. */
int sweep_open_devices(void);

/* For prepare(): the same, which must not fail. */
void sweep_need_devices(void);

/* For check(): @err may come of an allocation or a driver call, the devices give back what they
 * keep, and neither driver holds anything or saw a misuse. */
void sweep_check_devices(int err);

/* The same, but @is_clean says whether the drivers hold too much. */
void sweep_check_devices_but(int err, bool (*is_clean)(hoist_device *const devices[]));

/* --- checkpoints (sweep-model.c) --- */

#define SWEEP_N_TENSORS 5
#define SWEEP_ROWS 100
#define SWEEP_COLUMNS 1000
#define SWEEP_MOST_BYTES 280000
#define SWEEP_HOT_BYTES ((size_t)10 << 20) /* of the two tensors of hot.safetensors */

static inline unsigned char sweep_hot_byte(size_t i)
{
	return (unsigned char)(i * 2654435761u >> 13);
}

extern const char *const sweep_names[SWEEP_N_TENSORS];
extern const hoist_dtype sweep_dtypes[SWEEP_N_TENSORS];
size_t sweep_bytes(size_t tensor);
int sweep_shape(size_t tensor, int64_t ret[2]); /* gives the rank */
void sweep_fill(size_t tensor, unsigned model, unsigned char *ret);

/* "<folder>/<name>"; lives as long as the program. */
const char *sweep_path(const char *name);

/* Makes the folder and the files; in the parent. */
void sweep_make_files(void);
void sweep_make_others(void);
void sweep_remove_files(void);

/* Copies this program and the stand-in drivers to the folder, and says in the environment that
 * they are there: what runs is then not replaced while it does. */
void sweep_keep_programs(void);

/* All bytes of @buffer are those of @tensor in @model.  Returns: 0; what reading gave. */
int sweep_compare(hoist_buffer *buffer, size_t tensor, unsigned model);

/* The same of any bytes; of model 0's where the dtype is another one. */
int sweep_compare_bytes(hoist_buffer *buffer, const void *want, size_t bytes);
int sweep_compare_gguf(hoist_buffer *buffer, size_t tensor);

#endif
