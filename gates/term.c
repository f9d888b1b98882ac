#include <langinfo.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>
#include "contract/err.h"
#include "contract/utf8.h"
#include "term.h"

#define PIPE_WIDTH 110

void term_open(struct term *t, FILE *out)
{
	struct winsize w;
	int fd = fileno(out);
	const char *no_color = getenv("NO_COLOR");
	bool terminal = fd >= 0 && isatty(fd);

	*t = (struct term){.out = out, .width = PIPE_WIDTH};
	t->color = terminal && !(no_color && *no_color);
	t->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	if (terminal && ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
		t->width = w.ws_col;
}

/* ---- text ---- */

/* The character at *s, moved past it; 0xfffd for a byte that starts none. */
static uint32_t next_code(const char **s)
{
	uint32_t code = 0xfffd;
	size_t n = utf8_read(*s, strnlen(*s, 4), &code);

	*s += n ? n : 1;
	return code;
}

/* One character as it may be shown; its bytes in `to`, the columns returned. */
static int show_code(const struct term *t, uint32_t c, bool quote, char to[16], int *bytes)
{
	static const char short_forms[][2] = {{'\n', 'n'}, {'\t', 't'}, {'\r', 'r'}};

	for (size_t i = 0; i < sizeof(short_forms) / sizeof(short_forms[0]); i++)
		if (c == (uint32_t)short_forms[i][0])
			return *bytes = snprintf(to, 16, "\\%c", short_forms[i][1]);
	if (quote && (c == '"' || c == '\\'))
		return *bytes = snprintf(to, 16, "\\%c", (int)c);
	if (c < 0x80 && !unicode_is_hidden(c))
		return *bytes = snprintf(to, 16, "%c", (int)c);
	int columns = t->utf8 && !unicode_is_hidden(c) && iswprint((wint_t)c) ? wcwidth((wchar_t)c) : -1;

	if (columns >= 0) {
		*bytes = (int)utf8_put(to, c);
		return columns;
	}
	return *bytes = snprintf(to, 16, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%06x", (unsigned)c);
}

char *term_text(const struct term *t, const char *text, bool quote, int columns)
{
	size_t room = 12 * strlen(text) + 16, n = 0, fits = 0;
	char *to = xmalloc(room), shown[16];
	const char *more = t->utf8 ? "\xe2\x80\xa6" : "...";
	int limit = columns ? columns - 2 * quote : 0, more_columns = t->utf8 ? 1 : 3, width = 0;

	if (quote)
		to[n++] = '"';
	fits = n;
	while (*text) {
		int bytes, wide = show_code(t, next_code(&text), quote, shown, &bytes);

		if (limit && width + wide > limit) {
			n = fits;
			n += (size_t)snprintf(to + n, room - n, "%s", more);
			break;
		}
		memcpy(to + n, shown, (size_t)bytes);
		n += (size_t)bytes;
		width += wide;
		if (!limit || width <= limit - more_columns)
			fits = n;
	}
	if (quote)
		to[n++] = '"';
	to[n] = '\0';
	return to;
}

int term_columns(const char *s)
{
	int columns = 0;

	while (*s) {
		uint32_t c = next_code(&s);
		int wide = c < 0x80 ? 1 : wcwidth((wchar_t)c);

		columns += wide < 0 ? 1 : wide;
	}
	return columns;
}

/* ---- colour ---- */

enum tint term_tint_of(const char *word)
{
	static const struct { const char *word; enum tint tint; } tints[] = {
		{"STRICT PASS", TINT_GOOD}, {"DECIDED", TINT_GOOD}, {"EQUIVALENT", TINT_GOOD}, {"survives", TINT_GOOD},
		{"DIVERGENCE", TINT_BAD}, {"ERROR", TINT_BAD}, {"EXCESS", TINT_BAD}, {"SYSTEMATIC", TINT_BAD},
		{"VOID", TINT_WARN}, {"SHORT", TINT_WARN}, {"NOT MEASURED", TINT_WARN}, {"UNDECIDED", TINT_WARN},
		{"UNDETERMINED", TINT_WARN}, {"SUSPICIOUS", TINT_WARN}, {"INCONCLUSIVE", TINT_WARN},
		{"eliminated", TINT_DIM}, {"untested", TINT_DIM},
	};

	for (size_t i = 0; i < sizeof(tints) / sizeof(tints[0]); i++)
		if (strcmp(word, tints[i].word) == 0)
			return tints[i].tint;
	return TINT_NONE;
}

static const char *tint_code(const struct term *t, enum tint tint)
{
	static const char *const codes[] = {"", "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[1m"};

	return t->color ? codes[tint] : "";
}

static const char *tint_end(const struct term *t, enum tint tint)
{
	return t->color && tint ? "\x1b[0m" : "";
}

/* ---- lines ---- */

/* Everything that is shown goes through here; what is safe already is not changed. */
static char *printed(const struct term *t, const char *fmt, va_list ap)
{
	char *raw, *clean;

	if (vasprintf(&raw, fmt, ap) < 0)
		BUG("vasprintf");
	clean = term_text(t, raw, false, 0);
	free(raw);
	return clean;
}

void term_blank(struct term *t)
{
	fputc('\n', t->out);
	t->lines++;
}

void term_say(struct term *t, enum tint tint, int hang, const char *fmt, ...)
{
	char *text, *word, *next;
	va_list ap;
	int column = 0;
	bool begins = true;      /* the word is the first of its line */

	va_start(ap, fmt);
	text = printed(t, fmt, ap);
	va_end(ap);
	fputs(tint_code(t, tint), t->out);
	for (word = text; word; word = next) {
		size_t length = strcspn(word, " ");

		next = word[length] ? word + length + 1 : NULL;
		word[length] = '\0';
		int wide = term_columns(word);

		if (!begins && column + 1 + wide > t->width) {
			fprintf(t->out, "\n%*s", hang, "");
			t->lines++;
			column = hang;
		} else if (!begins) {
			fputc(' ', t->out);
			column++;
		}
		begins = false;
		fputs(word, t->out);
		column += wide;
	}
	fprintf(t->out, "%s\n", tint_end(t, tint));
	t->lines++;
	free(text);
}

/* ---- tables ---- */

static void add_cell(struct table *t, enum tint tint, bool right, const char *fmt, va_list ap)
{
	struct cell c = {.text = printed(t->term, fmt, ap), .tint = tint, .right = right};

	t->cells = xrealloc(t->cells, (size_t)t->n_cells + 1, sizeof(*t->cells));
	t->cells[t->n_cells++] = c;
}

void table_add(struct table *t, enum tint tint, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_cell(t, tint, false, fmt, ap);
	va_end(ap);
}

void table_add_right(struct table *t, enum tint tint, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_cell(t, tint, true, fmt, ap);
	va_end(ap);
}

int table_rows(const struct table *t)
{
	return t->n_cells / t->columns;
}

static void print_row(const struct table *t, struct term *term, const struct cell *row, const int *widths,
		      const char *indent)
{
	int column = (int)strlen(indent), pad = 0, last = t->columns - 1;

	while (last > 0 && !row[last].text[0])
		last--;
	fputs(indent, term->out);
	for (int i = 0; i <= last; i++) {
		int wide = term_columns(row[i].text), slack = widths[i] - wide;
		int before = pad + (row[i].right ? slack : 0);

		/* By the column's width, so that all rows break in the same place. */
		if (column + pad + widths[i] > term->width && column > (int)strlen(indent) && wide) {
			fprintf(term->out, "\n%s    ", indent);
			term->lines++;
			column = (int)strlen(indent) + 4;
			before = 0;
		}
		fprintf(term->out, "%*s%s%s%s", before, "", tint_code(term, row[i].tint), row[i].text,
			tint_end(term, row[i].tint));
		column += before + wide;
		pad = 2 + (row[i].right ? 0 : slack);
	}
	fputc('\n', term->out);
	term->lines++;
}

void table_print(const struct table *t, struct term *term, int first, int last, const char *indent)
{
	int *widths = xcalloc((size_t)t->columns, sizeof(*widths));

	for (int i = 0; i < t->n_cells; i++) {
		int wide = term_columns(t->cells[i].text);

		if (wide > widths[i % t->columns])
			widths[i % t->columns] = wide;
	}
	for (int row = first; row < last; row++)
		print_row(t, term, t->cells + row * t->columns, widths, indent);
	free(widths);
}

void table_release(struct table *t)
{
	for (int i = 0; i < t->n_cells; i++)
		free(t->cells[i].text);
	free(t->cells);
	*t = (struct table){0};
}
