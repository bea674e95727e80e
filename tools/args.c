/* SPDX-License-Identifier: MIT */
/* tools/args.c - the command line: the values of options, and --help.
 * The contract is in tools/args.h. */
#include "config.h"

#include "tools/args.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli/format.h"
#include "cli/nearest.h"
#include "tools/options.h"

/* getopt_long() returns FIRST_VALUE + i for row i: no letter is that large. */
#define FIRST_VALUE 256

/* Ends a message that usage_begin() began. */
static int usage_error(const struct command *command)
{
	(void)fprintf(stderr, "; see `hoist %s --help`\n", command->name);
	return STATUS_USAGE;
}

/* Prints "hoist load: "; the caller prints the reason next. */
static void usage_begin(const struct command *command)
{
	(void)fprintf(stderr, "hoist %s: ", command->name);
}

static int usage_value(const struct command *command, const char *option, const char *value,
		       const char *expected)
{
	usage_begin(command);
	(void)fprintf(stderr, "--%s ", option);
	print_escaped(stderr, value);
	(void)fprintf(stderr, ": it must be %s", expected);
	return usage_error(command);
}

int args_refuse(const struct args *args, const char *before, const char *what, const char *after)
{
	usage_begin(args->command);
	(void)fputs(before, stderr);
	print_escaped(stderr, what);
	(void)fputs(after, stderr);
	return usage_error(args->command);
}

bool args_given(const struct args *args, unsigned options)
{
	for (size_t i = 0; i < n_option_rows; i++)
		if (args->given[i] && (options & option_rows[i].bit) != 0)
			return true;
	return false;
}

int args_only(const struct args *args, const char *what, unsigned options)
{
	for (size_t i = 0; i < n_option_rows; i++) {
		if (!args->given[i] || (options & option_rows[i].bit) != 0)
			continue;
		usage_begin(args->command);
		(void)fprintf(stderr, "%s takes no --%s", what, option_rows[i].name);
		return usage_error(args->command);
	}
	return STATUS_OK;
}

/* The index of @value in a NULL-terminated list of words, or -1. */
static int word_index(const char *const *words, const char *value)
{
	for (int i = 0; words[i] != NULL; i++) {
		if (strcmp(words[i], value) == 0)
			return i;
	}
	return -1;
}

static int take_engine(struct args *args, const char *value)
{
	static const char *const words[] = {"auto", "uring", "threads", NULL};
	static const enum hoist_engine engines[] = {HOIST_ENGINE_AUTO, HOIST_ENGINE_URING,
						    HOIST_ENGINE_THREADS};
	int i = word_index(words, value);
	if (i < 0)
		return usage_value(args->command, "engine", value, "auto, uring or threads");
	args->engine = engines[i];
	return STATUS_OK;
}

static int take_io(struct args *args, const char *value, bool maps)
{
	static const char *const words[] = {
		[HOIST_IO_AUTO] = "auto",	  [HOIST_IO_DIRECT] = "direct",
		[HOIST_IO_CACHED] = "cached",	  [HOIST_IO_MAP] = "map",
		[HOIST_IO_ADAPTIVE] = "adaptive", NULL};
	int i = word_index(words, value);
	if (i < 0 || (i >= HOIST_IO_MAP && !maps))
		return usage_value(args->command, "io", value,
				   maps ? "auto, direct, cached, map or adaptive"
					: "auto, direct or cached: nothing is mapped");
	args->io = (enum hoist_io)i;
	return STATUS_OK;
}

static int take_budget(struct args *args, const char *value)
{
	size_t bytes = 0;
	int err = args_bytes(value, &bytes);
	if (err == 0 && bytes > 0) {
		args->budget = bytes;
		return STATUS_OK;
	}
	return usage_value(args->command, "budget", value,
			   err == -EOVERFLOW ? "fewer bytes than 2^63"
					     : "a number of bytes above 0, as 64M or 1G");
}

static int take_runs(struct args *args, const char *value)
{
	char *end = NULL;
	long runs = strtol(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end != '\0' || runs < 1 || runs > 99)
		return usage_value(args->command, "runs", value, "a number from 1 to 99");
	args->runs = (unsigned)runs;
	return STATUS_OK;
}

static int take_node(struct args *args, const char *value)
{
	char *end = NULL;
	long node = strtol(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end != '\0' || node > 1023)
		return usage_value(args->command, "node", value, "a number from 0 to 1023");
	args->node = (int)node;
	return STATUS_OK;
}

static int take_pages(struct args *args, const char *value)
{
	static const char *const words[] = {"huge", "small", "hugetlb", NULL};
	static const int pages[] = {HOIST_PAGES_DEFAULT, HOIST_PAGES_SMALL, HOIST_PAGES_HUGETLB};
	int i = word_index(words, value);
	if (i < 0)
		return usage_value(args->command, "pages", value, "huge, small or hugetlb");
	args->pages = pages[i];
	return STATUS_OK;
}

/* args_load_take() cuts @value into parts, so a copy is kept for the message. */
static int take_load(struct args *args, const char *name, char *value)
{
	struct text whole;
	(void)snprintf(whole.chars, sizeof whole.chars, "%s", value != NULL ? value : "");
	const char *expected = args_load_take(&args->load, name, value);
	return expected != NULL ? usage_value(args->command, name, whole.chars, expected)
				: STATUS_OK;
}

static int take_copy(struct args *args, const char *name, char *value)
{
	const char *expected = args_copy_take(&args->copy, name, value);
	return expected != NULL ? usage_value(args->command, name, value, expected) : STATUS_OK;
}

static int take_emulate(struct args *args, const char *name, const char *value)
{
	const char *expected = args_emulate_take(&args->emulate, name, value);
	return expected != NULL ? usage_value(args->command, name, value, expected) : STATUS_OK;
}

/* The field that an option without a value sets; NULL: another kind of option. */
static bool *flag_of(struct args *args, unsigned option)
{
	switch (option) {
	case OPTION_VERIFY:
		return &args->verify;
	case OPTION_QUICK:
		return &args->quick;
	case OPTION_SAVE:
		return &args->save;
	case OPTION_ALL:
		return &args->all;
	case OPTION_CACHE:
		return &args->cache;
	case OPTION_REPLACE:
		return &args->replace;
	case OPTION_FORCE:
		return &args->force;
	case OPTION_RUN:
		return &args->run;
	case OPTION_KEEP:
		return &args->keep;
	case OPTION_BARS:
		return &args->bars;
	case OPTION_TREE:
		return &args->tree;
	case OPTION_VERBOSE:
		return &args->verbose;
	case OPTION_JSON:
		return &args->json;
	case OPTION_HELP:
		return &args->help;
	default:
		return NULL;
	}
}

static int take_option(struct args *args, size_t row, char *value)
{
	bool *flag = flag_of(args, option_rows[row].bit);
	args->given[row] = true;
	if (flag != NULL)
		*flag = true;
	switch (option_rows[row].bit) {
	case OPTION_DEVICE:
		args->device = value;
		args->has_device = true;
		break;
	case OPTION_TENSOR:
	case OPTION_WORK:
		if (strcmp(option_rows[row].name, "exclude") == 0)
			args->excludes[args->n_excludes++] = value;
		else
			args->patterns[args->n_patterns++] = value;
		break;
	case OPTION_OPEN:
		args->open_flags |= strcmp(option_rows[row].name, "follow-links") == 0
					    ? HOIST_OPEN_FOLLOW_LINKS
					    : HOIST_OPEN_SKIP_UNSUPPORTED;
		break;
	case OPTION_SVG:
		args->svg = value;
		break;
	case OPTION_TO:
		args->to = value;
		break;
	case OPTION_ENGINE:
		return take_engine(args, value);
	case OPTION_IO:
		return take_io(args, value, true);
	case OPTION_IO_FILES:
		return take_io(args, value, false);
	case OPTION_BUDGET:
		return take_budget(args, value);
	case OPTION_RUNS:
		return take_runs(args, value);
	case OPTION_NODE:
		return take_node(args, value);
	case OPTION_PAGES:
		return take_pages(args, value);
	case OPTION_LOAD:
	case OPTION_CONVERT:
	case OPTION_LOAD_ONLY:
		return take_load(args, option_rows[row].name, value);
	case OPTION_COPY:
		return take_copy(args, option_rows[row].name, value);
	case OPTION_EMULATE:
		return take_emulate(args, option_rows[row].name, value);
	default:
		break;
	}
	return STATUS_OK;
}

/* Prints the command's option that is nearest to @word, which begins with "--". */
static void print_nearest(const struct command *command, const char *word)
{
	struct nearest nearest = {.typed = word + 2, .bytes = strcspn(word + 2, "=")};
	for (size_t i = 0; i < n_option_rows; i++)
		if (((command->options | OPTION_HELP) & option_rows[i].bit) != 0)
			nearest_try(&nearest, option_rows[i].name);
	if (nearest.word != NULL)
		(void)fprintf(stderr, " (did you mean --%s?)", nearest.word);
}

/* Says why getopt_long() refused: it left a letter, FIRST_VALUE + a row, or 0 in optopt. */
static int refused(const struct command *command, int what, char **argv)
{
	usage_begin(command);
	if (what == ':') {
		(void)fprintf(stderr, "--%s needs a value", option_rows[optopt - FIRST_VALUE].name);
	} else if (optopt >= FIRST_VALUE) {
		(void)fprintf(stderr, "--%s takes no value",
			      option_rows[optopt - FIRST_VALUE].name);
	} else if (optopt != 0) {
		char letter[] = {'-', (char)optopt, '\0'};
		(void)fputs("there is no option ", stderr);
		print_escaped(stderr, letter);
	} else {
		(void)fputs("there is no option ", stderr);
		print_escaped(stderr, argv[optind - 1]);
		print_nearest(command, argv[optind - 1]);
	}
	return usage_error(command);
}

/* Returns the name of the nth operand in the usage line: "PATH" for "[PATH]". */
static const char *operand_name(const struct command *command, int n, struct text *ret)
{
	const char *start = command->operands;
	while (n-- > 0 && strchr(start, ' ') != NULL)
		start = strchr(start, ' ') + 1;
	start += strspn(start, "[");
	(void)snprintf(ret->chars, sizeof ret->chars, "%.*s", (int)strcspn(start, "] "), start);
	return ret->chars;
}

static int take_operands(struct args *args, int n, char **operands)
{
	const struct command *command = args->command;
	struct text name;
	/* --help is answered whatever operands there are. */
	if (args->help)
		return STATUS_OK;
	if (n < command->min_operands) {
		usage_begin(command);
		(void)fprintf(stderr, "%s is missing", operand_name(command, n, &name));
		return usage_error(command);
	}
	if ((command->options & OPTION_EMULATE) != 0) {
		args->rest = operands;
		return STATUS_OK;
	}
	if (n > command->max_operands) {
		usage_begin(command);
		(void)fputs("one argument too many: ", stderr);
		print_escaped(stderr, operands[command->max_operands]);
		return usage_error(command);
	}
	for (int i = 0; i < n; i++) {
		if (operands[i][0] == '\0') {
			usage_begin(command);
			(void)fprintf(stderr, "%s is empty", operand_name(command, i, &name));
			return usage_error(command);
		}
		args->operands[i] = operands[i];
	}
	return STATUS_OK;
}

/* Fills getopt_long()'s own table with the rows that @command takes. */
static void long_options(const struct command *command, struct option ret[MOST_OPTION_ROWS + 1])
{
	size_t n = 0;
	for (size_t i = 0; i < n_option_rows; i++) {
		if (((command->options | OPTION_HELP) & option_rows[i].bit) == 0)
			continue;
		ret[n++] = (struct option){
			.name = option_rows[i].name,
			.has_arg = option_rows[i].value != NULL ? required_argument : no_argument,
			.val = FIRST_VALUE + (int)i,
		};
	}
	ret[n] = (struct option){0};
}

int args_parse(const struct command *command, int argc, char **argv, struct args *ret)
{
	struct args args = {.command = command, .device = "cpu", .node = -1};
	/* never more than there are words */
	size_t words = (size_t)argc;
	args.patterns = calloc(words, sizeof *args.patterns);
	args.excludes = calloc(words, sizeof *args.excludes);
	if (args.patterns == NULL || args.excludes == NULL || !args_load_make(&args.load, words) ||
	    !args_copy_make(&args.copy, words)) {
		args_free(&args);
		return fail_memory();
	}
	struct option table[MOST_OPTION_ROWS + 1];
	long_options(command, table);
	int status = STATUS_OK;
	/* refused() prints the messages of getopt_long() in the words of this command. */
	opterr = 0;
	/* The options behind another command's name are that command's. */
	const char *letters = (command->options & OPTION_EMULATE) != 0	 ? "+:h"
			      : (command->options & OPTION_VERBOSE) != 0 ? ":hv"
									 : ":h";
	while (status == STATUS_OK) {
		int what = getopt_long(argc, argv, letters, table, NULL);
		if (what == -1)
			break;
		if (what == 'h')
			args.help = true;
		else if (what == 'v')
			args.verbose = true;
		else if (what >= FIRST_VALUE)
			status = take_option(&args, (size_t)(what - FIRST_VALUE), optarg);
		else
			status = refused(command, what, argv);
	}
	if (status == STATUS_OK)
		status = take_operands(&args, argc - optind, argv + optind);
	if (status == STATUS_OK)
		*ret = args;
	else
		args_free(&args);
	return status;
}

void args_free(struct args *args)
{
	args_load_free(&args->load);
	args_copy_free(&args->copy);
	free(args->patterns);
	free(args->excludes);
	args->patterns = args->excludes = NULL;
}

void args_help(FILE *out, const struct command *command)
{
	(void)fprintf(out, "usage: hoist %s%s%s%s\n\n%s\n\noptions:\n", command->name,
		      command->options != 0 ? " [options]" : "",
		      command->operands[0] != '\0' ? " " : "", command->operands, command->details);
	for (size_t i = 0; i < n_option_rows; i++) {
		if (((command->options | OPTION_HELP) & option_rows[i].bit) == 0)
			continue;
		char left[32];
		(void)snprintf(left, sizeof left, "--%s %s", option_rows[i].name,
			       option_rows[i].value != NULL ? option_rows[i].value : "");
		(void)fprintf(out, "  %-20s %s\n", left, option_rows[i].help);
	}
}
