#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cli_fail(const struct err *err)
{
	fprintf(stderr, "assay-engine: %s\n", err->text);
	switch (err->kind) {
	case ERR_INPUT:
		return EXIT_USAGE;
	case ERR_CANNOT_RUN:
		return EXIT_CANNOT_RUN;
	default:
		return EXIT_FAILED;
	}
}

int cli_usage(const char *command, const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "assay-engine: ");
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, " (assay-engine %s%s--help)\n", command, *command ? " " : "");
	return EXIT_USAGE;
}

static struct cli_option *find(struct cli_option *options, const char *name, size_t n)
{
	for (struct cli_option *o = options; o->name; o++)
		if (strlen(o->name) == n && strncmp(o->name, name, n) == 0)
			return o;
	return NULL;
}

int cli_parse(struct cli_option *options, char **operands, int argc, char **argv, struct err *err)
{
	int n = 0;

	for (int i = 1; i < argc; i++) {
		const char *arg = argv[i], *value;
		struct cli_option *o;

		if (strcmp(arg, "--") == 0) {
			while (++i < argc)
				operands[n++] = argv[i];
			break;
		}
		if (strcmp(arg, "-h") == 0)
			arg = "--help";
		if (arg[0] != '-' || arg[1] == '\0') {
			operands[n++] = argv[i];
			continue;
		}
		value = strchr(arg, '=');
		o = arg[1] == '-' ? find(options, arg + 2, value ? (size_t)(value - arg - 2) : strlen(arg + 2)) : NULL;
		if (!o)
			return err_set(err, ERR_INPUT, "unknown option %s", arg);
		if (!o->takes_value && value)
			return err_set(err, ERR_INPUT, "option --%s takes no value", o->name);
		if (o->takes_value && value)
			value++;
		else if (o->takes_value && i + 1 < argc)
			value = argv[++i];
		else if (o->takes_value)
			return err_set(err, ERR_INPUT, "option --%s needs a value", o->name);
		o->given = true;
		o->value = value;
		if (o->each && o->each(value, o->ud, err))
			return -1;
	}
	return n;
}

int cli_number(int *out, const char *name, const char *text, int min, struct err *err)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (*text == '\0' || *end || isspace((unsigned char)*text) || (!errno && n < min))
		return err_set(err, ERR_INPUT, "%s: expected a whole number of at least %d, found \"%s\"", name, min, text);
	if (errno || n > INT_MAX)
		return err_set(err, ERR_INPUT, "%s: expected a whole number of %d to %d, found \"%s\"", name, min, INT_MAX,
			       text);
	*out = (int)n;
	return 0;
}

int cli_run_only(const struct arm *arm, enum factor f, const char *instead, struct err *err)
{
	if (arm->value[f] == ARM_UNSET)
		return 0;
	return err_set(err, ERR_INPUT, "--arm: %s is a factor of `assay-engine run` alone: %s", factor_name(f), instead);
}

int cli_arm(const char *value, void *ud, struct err *err)
{
	return arm_parse(ud, value, err);
}

int cli_at(const char *value, void *ud, struct err *err)
{
	return arm_at_parse(ud, value, err);
}
