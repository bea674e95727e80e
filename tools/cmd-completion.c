/* SPDX-License-Identifier: MIT */
/* tools/cmd-completion.c - hoist completion: the completion of hoist's command line for a shell,
 * from the tables of commands and options. The contract is in tools/tool.h. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/args.h"
#include "tools/options.h"

static bool takes(const struct command *command, const struct option_row *row)
{
	return ((command->options | OPTION_HELP) & row->bit) != 0;
}

static bool is_file(const struct option_row *row)
{
	return row->words != NULL && strcmp(row->words, "@") == 0;
}

/* The words of a first operand that is one of several, as "add|list|drop"; 0 bytes: it is not. */
static int first_words(const struct command *command)
{
	int n = (int)strcspn(command->operands, " ");
	bool words = memchr(command->operands, '|', (size_t)n) != NULL;
	return words ? n : 0;
}

static void print_words(const char *words, int n)
{
	for (int i = 0; i < n; i++)
		(void)putchar(words[i] == '|' ? ' ' : words[i]);
}

static void print_commands(void)
{
	const struct command *command;
	for (size_t c = 0; (command = tool_command(c)) != NULL; c++)
		(void)printf("%s%s", c > 0 ? " " : "", command->name);
	(void)fputs(" help", stdout);
}

/* --- bash --- */

/* bash breaks words at '=' and ':', so the words are taken from the line, and an answer begins
 * behind the last of these. */
static const char bash_begin[] =
	"# Completion of hoist for bash, made by `hoist completion bash`.\n"
	"_hoist() {\n"
	"\tlocal line=${COMP_LINE:0:COMP_POINT} words=() command before value list=\n"
	"\tread -ra words <<<\"$line\"\n"
	"\tvalue=${line##*[[:space:]]}\n"
	"\t[[ $value ]] || words+=('')\n"
	"\tlocal last=$((${#words[@]} - 1))\n"
	"\tcommand=${words[1]-} before=${words[last - 1]-}\n"
	"\tif [[ $value == --*=* ]]; then\n"
	"\t\tbefore=${value%%=*} value=${value#*=}\n"
	"\tfi\n"
	"\tif ((last <= 1)); then\n"
	"\t\tlist='";

static const char bash_end[] =
	"\t*)\n"
	"\t\tcase $value in\n"
	"\t\t-*) list=$options ;;\n"
	"\t\t*) ((last != 2)) || list=$first ;;\n"
	"\t\tesac\n"
	"\t\t;;\n"
	"\tesac\n"
	"\tCOMPREPLY=($(compgen -W \"$list\" -- \"$value\"))\n"
	"\t[[ $value != *:* ]] || COMPREPLY=(\"${COMPREPLY[@]#\"${value%:*}:\"}\")\n"
	"}\n"
	"complete -o default -o bashdefault -F _hoist hoist\n";

static void print_bash_command(const struct command *command)
{
	(void)printf("\t%s)\n\t\toptions='", command->name);
	for (size_t i = 0; i < n_option_rows; i++)
		if (takes(command, &option_rows[i]))
			(void)printf("--%s ", option_rows[i].name);
	(void)fputs("'\n", stdout);
	if (first_words(command) > 0) {
		(void)fputs("\t\tfirst='", stdout);
		print_words(command->operands, first_words(command));
		(void)fputs("'\n", stdout);
	}
	(void)fputs("\t\t;;\n", stdout);
}

static void print_bash_values(const struct command *command)
{
	for (size_t i = 0; i < n_option_rows; i++) {
		const struct option_row *row = &option_rows[i];
		if (!takes(command, row) || row->value == NULL)
			continue;
		(void)printf("\t%s--%s) list='%s' ;;\n", command->name, row->name,
			     row->words != NULL && !is_file(row) ? row->words : "");
	}
}

static void print_bash(void)
{
	const struct command *command;
	(void)fputs(bash_begin, stdout);
	print_commands();
	(void)fputs(" --help --version'\n"
		    "\t\tCOMPREPLY=($(compgen -W \"$list\" -- \"$value\"))\n"
		    "\t\treturn\n"
		    "\tfi\n"
		    "\tlocal options= first=\n"
		    "\tcase $command in\n",
		    stdout);
	for (size_t c = 0; (command = tool_command(c)) != NULL; c++)
		print_bash_command(command);
	(void)fputs("\thelp) first='", stdout);
	print_commands();
	(void)fputs("' ;;\n\tesac\n\tcase $command$before in\n", stdout);
	for (size_t c = 0; (command = tool_command(c)) != NULL; c++)
		print_bash_values(command);
	(void)fputs(bash_end, stdout);
}

/* --- zsh and fish --- */

/* Prints @text within single quotes.  @escaped: characters that get a backslash, too. */
static void print_quoted(const char *text, const char *escaped, const char *quote)
{
	for (; *text != '\0'; text++) {
		if (*text == '\'')
			(void)fputs(quote, stdout);
		else if (strchr(escaped, *text) != NULL)
			(void)printf("\\%c", *text);
		else
			(void)putchar(*text);
	}
}

static void print_zsh_option(const struct option_row *row)
{
	(void)printf(" \\\n\t\t\t'*--%s%s[", row->name, row->value != NULL ? "=" : "");
	print_quoted(row->help, "[]\\", "'\\''");
	(void)putchar(']');
	if (row->value != NULL) {
		(void)putchar(':');
		print_quoted(row->value, ":\\", "'\\''");
		if (is_file(row))
			(void)fputs(":_files", stdout);
		else if (row->words != NULL) {
			(void)fputs(":(", stdout);
			print_quoted(row->words, ":", "'\\''");
			(void)putchar(')');
		} else {
			(void)fputs(": ", stdout);
		}
	}
	(void)putchar('\'');
}

static void print_zsh(void)
{
	const struct command *command;
	(void)fputs("#compdef hoist\n"
		    "# Completion of hoist for zsh, made by `hoist completion zsh`.\n"
		    "_hoist() {\n"
		    "\tlocal context state state_descr line\n"
		    "\ttypeset -A opt_args\n"
		    "\t_arguments -C '1:command:->command' '*::argument:->arguments'\n"
		    "\tcase $state in\n"
		    "\tcommand)\n"
		    "\t\tlocal -a commands=(",
		    stdout);
	for (size_t c = 0; (command = tool_command(c)) != NULL; c++) {
		(void)printf("\n\t\t\t'%s:", command->name);
		print_quoted(command->summary, "", "'\\''");
		(void)putchar('\'');
	}
	(void)fputs("\n\t\t)\n"
		    "\t\t_describe command commands\n"
		    "\t\t;;\n"
		    "\targuments)\n"
		    "\t\tcase $words[1] in\n",
		    stdout);
	for (size_t c = 0; (command = tool_command(c)) != NULL; c++) {
		(void)printf("\t\t%s)\n\t\t\t_arguments", command->name);
		for (size_t i = 0; i < n_option_rows; i++)
			if (takes(command, &option_rows[i]))
				print_zsh_option(&option_rows[i]);
		if (first_words(command) > 0) {
			(void)fputs(" \\\n\t\t\t'1:what:(", stdout);
			print_words(command->operands, first_words(command));
			(void)fputs(")'", stdout);
		}
		(void)fputs(" \\\n\t\t\t'*:file:_files'\n\t\t\t;;\n", stdout);
	}
	(void)fputs("\t\tesac\n\t\t;;\n\tesac\n}\n_hoist \"$@\"\n", stdout);
}

static void print_fish_command(const struct command *command)
{
	(void)printf("complete -c hoist -n __fish_use_subcommand -f -a %s -d '", command->name);
	print_quoted(command->summary, "\\", "\\'");
	(void)fputs("'\n", stdout);
	if (first_words(command) > 0) {
		(void)printf("complete -c hoist -n '__fish_seen_subcommand_from %s' -a '",
			     command->name);
		print_words(command->operands, first_words(command));
		(void)fputs("'\n", stdout);
	}
	for (size_t i = 0; i < n_option_rows; i++) {
		const struct option_row *row = &option_rows[i];
		if (!takes(command, row))
			continue;
		(void)printf("complete -c hoist -n '__fish_seen_subcommand_from %s' -l %s",
			     command->name, row->name);
		if (row->value != NULL)
			(void)fputs(is_file(row) ? " -r -F" : " -x", stdout);
		if (row->words != NULL && !is_file(row))
			(void)printf(" -a '%s'", row->words);
		(void)fputs(" -d '", stdout);
		print_quoted(row->help, "\\", "\\'");
		(void)fputs("'\n", stdout);
	}
}

static void print_fish(void)
{
	const struct command *command;
	(void)fputs("# Completion of hoist for fish, made by `hoist completion fish`.\n", stdout);
	for (size_t c = 0; (command = tool_command(c)) != NULL; c++)
		print_fish_command(command);
}

int cmd_completion(const struct args *args)
{
	static const struct {
		const char *name;
		void (*print)(void);
	} shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
	for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
		if (strcmp(args->operands[0], shells[i].name) == 0) {
			shells[i].print();
			return STATUS_OK;
		}
	return args_refuse(args, "there is no completion for ", args->operands[0],
			   ": bash, zsh and fish have one");
}
