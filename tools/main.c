/* SPDX-License-Identifier: MIT */
/* tools/main.c - hoist: finds the command that was asked for, and runs it.
 * The contract is in tools/tool.h. */
#include "config.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <hoist/hub.h>

#include "cli/format.h"
#include "cli/interrupt.h"
#include "cli/nearest.h"
#include "tools/args.h"

#define N_COMMANDS (sizeof commands / sizeof commands[0])

/* In the order of `hoist --help`. */
static const struct command commands[] = {
	{"doctor", "[PATH]", "what works here, what does not, and the remedy",
	 "Checks what fast loading needs: io_uring, direct reads and the file system at\n"
	 "PATH (default: the current folder), locked memory, huge pages, NUMA, and each\n"
	 "driver and device.  Each 'no' comes with its remedy.  Exit status 0 whatever\n"
	 "the answers are.",
	 OPTION_JSON, 0, 1, cmd_doctor},
	{"devices", "", "the devices that hoist can load to",
	 "Lists the CPU and every accelerator, and says why an API has none.", OPTION_JSON, 0, 0,
	 cmd_devices},
	{"ls", "PATH", "the tensors of a checkpoint",
	 "Lists name, dtype, shape, bytes, file and offset of every tensor, and the metadata.\n"
	 "PATH is a file (safetensors, GGUF, .npy, .npz, .max, PyTorch's zip checkpoints), an\n"
	 "index of safetensors or PyTorch, or a folder with one of these.  In all commands, PATH\n"
	 "may be hf://ORG/NAME[@REVISION], a model in Hugging Face's cache, which only digest\n"
	 "--keep changes.",
	 OPTION_TENSOR | OPTION_TREE | OPTION_JSON | OPTION_OPEN, 1, 1, cmd_ls},
	{"load", "PATH", "load a checkpoint, and say how fast and which way",
	 "Loads the tensors of PATH to a device, then says how many bytes took how long, and what\n"
	 "set the pace; -v, also which way each byte went, and why.",
	 OPTIONS_LOADING | OPTION_TENSOR | OPTION_CONVERT | OPTION_LOAD | OPTION_LOAD_ONLY |
		 OPTION_CACHE | OPTION_VERIFY | OPTION_VERBOSE | OPTION_JSON,
	 1, 1, cmd_load},
	{"explain", "PATH", "what a load would read from where, and whether it fits",
	 "Says what `hoist load` with these options would do, without reading a tensor: the bytes\n"
	 "and the free memory of each device, which bytes are read directly, through the page\n"
	 "cache or mapped, and why, and which of them the page cache has.  The answer comes from\n"
	 "the load's own code.  --run then loads, and says where the time went.",
	 OPTIONS_LOADING | OPTION_TENSOR | OPTION_CONVERT | OPTION_LOAD | OPTION_RUN | OPTION_JSON,
	 1, 1, cmd_explain},
	{"cat", "PATH TENSOR", "the raw bytes of a tensor on standard output",
	 "Loads one tensor, or a slice of it, and writes the bytes, read back from the device.",
	 OPTIONS_LOADING | OPTION_CONVERT | OPTION_FORCE, 2, 2, cmd_cat},
	{"digest", "PATH", "an XXH3-128 digest of every tensor",
	 "Loads the tensors of PATH and digests the bytes read back from the device, one\n"
	 "line per tensor, in the order of `hoist ls`.  Equal lines are equal bytes.\n"
	 "--keep writes digests of the files' bytes to FILE.xxh3 beside each file, where loads\n"
	 "with --check-digests, and refits from Python, find them until the file changes.",
	 OPTIONS_LOADING | OPTION_TENSOR | OPTION_CONVERT | OPTION_KEEP | OPTION_JSON, 1, 1,
	 cmd_digest},
	{"cp", "SRC DST", "copy a checkpoint: join, split, pick, convert, rename",
	 "Copies the tensors of SRC, with their metadata, to DST, which appears whole or not at\n"
	 "all: joins shards, splits into shards, picks, slices, converts and renames tensors, and\n"
	 "changes the format.  DST is a file or a folder (a model.safetensors is written there);\n"
	 "a folder whose name ends with / is made.  From a folder to a folder, config, tokenizer\n"
	 "and the like come along.  DST may be SRC if nothing of SRC is lost.  A file that is\n"
	 "there is replaced; a link is replaced itself, not what it points to.",
	 OPTION_TENSOR | OPTION_CONVERT | OPTION_COPY | OPTION_ENGINE | OPTION_IO_FILES |
		 OPTION_BUDGET | OPTION_OPEN | OPTION_VERBOSE | OPTION_JSON,
	 2, 2, cmd_cp},
	{"cache", "add|list|drop [PATH]", "keep checkpoints in memory, for processes that restart",
	 "add PATH: loads a checkpoint into memory that every process can map, copied on write,\n"
	 "and gives it to a small process in the background that keeps it: `hoist load --cache`\n"
	 "and hoist_cache_attach() then have it in milliseconds.\n"
	 "list: what is cached.  drop PATH, or --all: gives the memory back.",
	 OPTION_ENGINE | OPTION_IO_FILES | OPTION_BUDGET | OPTION_OPEN | OPTION_REPLACE |
		 OPTION_NODE | OPTION_PAGES | OPTION_ALL | OPTION_JSON,
	 1, 2, cmd_cache},
	{"group", "status GROUP",
	 "list the ranks of a group of several machines, and how far each is",
	 "Asks a rank of the group (tcp://HOST:PORT/NAME, dir:FOLDER/NAME) which ranks load now:\n"
	 "whether each has files of the checkpoint, which part it has, and the bytes from storage, from the\n"
	 "others and to them.  The group's secret is in the environment, as for `load --group`.",
	 OPTION_JSON, 2, 2, cmd_group},
	{"bench", "[WHAT [FILE]]", "measure hoist beside others",
	 "Without WHAT: lists what can be measured.\n"
	 "alloc: the allocator's speed, memory and calls, beside malloc of glibc, jemalloc,\n"
	 "mimalloc and tcmalloc where these are installed.  Device memory is an emulated\n"
	 "device's unless --device says otherwise.  It takes some minutes: let nothing else run.\n"
	 "copy: copies in host memory beside memcpy and loops by hand, and what it costs to make\n"
	 "views and buffers.\n"
	 "replay FILE: does again what a resource recorded as CSV, on --device.\n"
	 "io FILE: reads of each size and depth, by either engine, direct, through an empty and\n"
	 "a full page cache; FILE is dropped from it.  About a minute.\n"
	 "load FILE: whole loads of a checkpoint by either engine, cold and hot, to --device\n"
	 "(several: cpu,cuda:0); with --save saves, too.",
	 OPTION_DEVICE | OPTION_WORK | OPTION_RUNS | OPTION_QUICK | OPTION_BARS | OPTION_SVG |
		 OPTION_SAVE | OPTION_TO | OPTION_OPEN | OPTION_JSON,
	 0, 2, cmd_bench},
	{"emulate", "COMMAND [ARG]...", "run a command with emulated GPUs",
	 "Runs COMMAND, which finds stand-ins for the drivers of CUDA and HIP by the vendors' "
	 "names:\n"
	 "libcuda.so.1 and libamdhip64.so.  What programs do with memory, streams, events and "
	 "pools\n"
	 "works without a GPU, late as on a device and more strictly; kernels do not run.  "
	 "COMMAND's\n"
	 "own options stand behind its name, or behind --.  Ends with COMMAND's exit status; 126 "
	 "if\n"
	 "it cannot be run, 127 if there is none.",
	 OPTION_EMULATE, 1, 1, cmd_emulate},
	{"completion", "bash|zsh|fish", "completion of this command line for a shell",
	 "Prints the completion of hoist's commands, options and values for a shell.  `make "
	 "install`\n"
	 "puts it where the shells look.  Otherwise: source <(hoist completion bash).",
	 0, 1, 1, cmd_completion},
};

const struct command *tool_command(size_t index)
{
	return index < N_COMMANDS ? &commands[index] : NULL;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	}
	return NULL;
}

static void help(FILE *out)
{
	(void)fputs("usage: hoist COMMAND [options] ...\n\n"
		    "Moves model weights from storage to where they run.\n\n",
		    out);
	for (size_t i = 0; i < N_COMMANDS; i++) {
		char left[32];
		(void)snprintf(left, sizeof left, "%s %s", commands[i].name, commands[i].operands);
		(void)fprintf(out, "  %-27s %s\n", left, commands[i].summary);
	}
	(void)fputs(
		"\n"
		"  hoist COMMAND --help    more about a command\n"
		"  hoist --version\n\n"
		"HOIST_EMULATE=cuda:2 in the environment gives hoist two emulated CUDA devices;\n"
		"`hoist emulate` gives them to other programs.\n",
		out);
}

static void print_nearest(const char *name)
{
	struct nearest nearest = {.typed = name, .bytes = strlen(name)};
	for (size_t i = 0; i < N_COMMANDS; i++)
		nearest_try(&nearest, commands[i].name);
	if (nearest.word != NULL)
		(void)fprintf(stderr, " (did you mean %s?)", nearest.word);
}

static int no_command(const char *name)
{
	(void)fputs("hoist: ", stderr);
	if (name == NULL)
		(void)fputs("no command was given", stderr);
	else if (name[0] == '-')
		(void)fputs("there is no option ", stderr);
	else
		(void)fputs("there is no command ", stderr);
	if (name != NULL)
		print_escaped(stderr, name);
	if (name != NULL && name[0] != '-')
		print_nearest(name);
	(void)fputs("; see `hoist --help`\n", stderr);
	return STATUS_USAGE;
}

/* Refuses words behind `hoist --version`, `hoist --help` or `hoist help COMMAND`. */
static int too_many(const char *word)
{
	(void)fputs("hoist: one argument too many: ", stderr);
	print_escaped(stderr, word);
	(void)fputs("; see `hoist --help`\n", stderr);
	return STATUS_USAGE;
}

static int help_on(const char *name)
{
	const struct command *command = find_command(name);
	if (command == NULL)
		return no_command(name);
	args_help(stdout, command);
	return STATUS_OK;
}

/* Replaces the operand that names a checkpoint by the path where its files are. */
static int find_model(const struct command *command, struct args *args, char *path, size_t bytes)
{
	bool second = command->run == cmd_cache || command->run == cmd_bench;
	const char **operand = &args->operands[second ? 1 : 0];
	bool opens = (command->options & OPTION_OPEN) != 0 || command->run == cmd_doctor;
	if (!opens || *operand == NULL || args->help)
		return STATUS_OK;
	int err = hoist_hub_find(*operand, path, bytes);
	if (err < 0)
		return fail_call(err);
	*operand = path;
	return STATUS_OK;
}

static int run_command(const struct command *command, int argc, char **argv)
{
	struct args args;
	char path[PATH_MAX];
	int status = args_parse(command, argc, argv, &args);
	if (status != STATUS_OK)
		return status;
	if (args.help)
		args_help(stdout, command);
	else
		status = find_model(command, &args, path, sizeof path);
	if (status == STATUS_OK && !args.help)
		status = command->run(&args);
	args_free(&args);
	return status;
}

static int dispatch(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	if (name == NULL)
		return no_command(NULL);
	bool helps = strcmp(name, "help") == 0;
	bool version = strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0;
	bool flag = version || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
	int most = helps ? 3 : 2;
	if ((helps || flag) && argc > most)
		return too_many(argv[most]);
	if (helps && argc == 3)
		return help_on(argv[2]);
	if (version) {
		(void)printf("hoist %s\n", hoist_version());
		return STATUS_OK;
	}
	if (helps || flag) {
		help(stdout);
		return STATUS_OK;
	}
	const struct command *command = find_command(name);
	return command != NULL ? run_command(command, argc - 1, argv + 1) : no_command(name);
}

int main(int argc, char **argv)
{
	(void)signal(SIGPIPE, SIG_IGN); /* the write fails instead */
	int status = dispatch(argc, argv);
	status = output_finish(status);
	if (status == STATUS_FAILED)
		interrupt_die();
	return status;
}
