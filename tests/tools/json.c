/* SPDX-License-Identifier: MIT */
/* tools/json CHECK... < JSON - is stdin one JSON object that has what is asked for?
 *
 *   CHECK = TYPE:PATH, or =VALUE:PATH, or ?PATH (prints that value)
 *   TYPE  = s string, i integer, r number, b boolean, a array, o object, n integer or null
 *   PATH  = keys and indices with '.' between them; '*' is every element, and
 *           there must be at least one
 *
 * Exit status: 0; 1 with the check that failed on stderr. */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

static bool has_type(const json_t *value, char type)
{
	switch (type) {
	case 's':
		return json_is_string(value);
	case 'i':
		return json_is_integer(value);
	case 'r':
		return json_is_number(value);
	case 'b':
		return json_is_boolean(value);
	case 'a':
		return json_is_array(value);
	case 'o':
		return json_is_object(value);
	case 'n':
		return json_is_integer(value) || json_is_null(value);
	default:
		return false;
	}
}

static bool is_text(const json_t *value, const char *expected)
{
	if (json_is_string(value))
		return strcmp(json_string_value(value), expected) == 0;
	char *text = json_dumps(value, JSON_ENCODE_ANY);
	bool equal = text != NULL && strcmp(text, expected) == 0;
	free(text);
	return equal;
}

static bool print_value(const json_t *value)
{
	if (json_is_string(value))
		return puts(json_string_value(value)) >= 0;
	return json_dumpf(value, stdout, JSON_ENCODE_ANY) == 0 && putchar('\n') >= 0;
}

static bool check_value(const json_t *value, const char *check)
{
	if (check[0] == '?')
		return print_value(value);
	if (check[0] == '=')
		return is_text(value, check + 1);
	return has_type(value, check[0]);
}

/* Follows @path, which is taken apart, and checks what it leads to. */
static bool check_path(const json_t *value, char *path, const char *check)
{
	if (value == NULL)
		return false;
	if (path == NULL || *path == '\0')
		return check_value(value, check);
	char *rest = strchr(path, '.');
	if (rest != NULL)
		*rest++ = '\0';
	if (strcmp(path, "*") != 0)
		return check_path(json_is_array(value)
					  ? json_array_get(value, strtoul(path, NULL, 10))
					  : json_object_get(value, path),
				  rest, check);
	bool good = json_array_size(value) > 0;
	for (size_t i = 0; i < json_array_size(value) && good; i++) {
		char *copy = strdup(rest != NULL ? rest : "");
		good = copy != NULL && check_path(json_array_get(value, i), copy, check);
		free(copy);
	}
	return good;
}

static bool run_check(const json_t *root, const char *argument)
{
	char *check = strdup(argument);
	if (check == NULL)
		return false;
	char *path = check[0] == '?' ? check + 1 : strrchr(check, ':');
	if (path != NULL && check[0] != '?')
		*path++ = '\0';
	bool good = path != NULL && check_path(root, path, check);
	free(check);
	return good;
}

int main(int argc, char **argv)
{
	json_error_t error;
	json_t *root = json_loadf(stdin, 0, &error);
	int status = 0;
	if (!json_is_object(root)) {
		(void)fprintf(stderr, "tools/json: not one JSON object: %s (byte %d)\n", error.text,
			      error.position);
		status = 1;
	}
	for (int i = 1; i < argc && status == 0; i++) {
		if (!run_check(root, argv[i])) {
			(void)fprintf(stderr, "tools/json: %s does not hold\n", argv[i]);
			status = 1;
		}
	}
	json_decref(root);
	return status;
}
