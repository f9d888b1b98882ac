/* Text for people on a terminal: tables, wrapping, colour, and token text that can do no harm.
 *
 * Whatever a model says is shown with its control characters, escapes, direction marks and invisible characters
 * spelt out, and in plain ASCII where the locale is not UTF-8. */
#ifndef ASSAY_GATES_TERM_H
#define ASSAY_GATES_TERM_H

#include <stdbool.h>
#include <stdio.h>

struct term {
	FILE *out;               /* borrowed */
	bool color, utf8;
	int width;               /* columns; lines are broken to fit */
	int lines;               /* printed so far */
};

enum tint { TINT_NONE, TINT_GOOD, TINT_BAD, TINT_WARN, TINT_DIM, TINT_BOLD };

/* A terminal's width and colour (NO_COLOR turns it off); 110 columns and none for a file or pipe.  The locale's
 * character set must have been set (setlocale). */
void term_open(struct term *t, FILE *out);

/* Safe to print (term_say and table_add do it to all of theirs); the caller frees.  `quote`: in double quotes.  At most `columns` wide (0: any), cut with an ellipsis. */
char *term_text(const struct term *t, const char *text, bool quote, int columns);
int term_columns(const char *s);      /* of what term_text returned */

/* One line of text, broken at spaces to the width; later lines are indented by `hang`. */
void term_say(struct term *t, enum tint tint, int hang, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void term_blank(struct term *t);
enum tint term_tint_of(const char *verdict);   /* of a verdict, adjudication or status by its name */

/* A table: cells are added row by row; columns are as wide as their widest cell.  A row that does not fit is
 * broken between cells. */
struct cell { char *text; enum tint tint; bool right; };
struct table { const struct term *term; int columns; struct cell *cells; int n_cells; };   /* {&term, N} is empty */

void table_add(struct table *t, enum tint tint, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void table_add_right(struct table *t, enum tint tint, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int table_rows(const struct table *t);
/* Rows [first, last), each after `indent`. */
void table_print(const struct table *t, struct term *term, int first, int last, const char *indent);
void table_release(struct table *t);

#endif
