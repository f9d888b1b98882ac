/* The verdict for readers other than a terminal: a page, a CI panel, a pull request, a benchmark chart.
 *
 * All of them read the verdict document and the run directory (findings); nothing is judged here.  Each returns the
 * whole text as a string that the caller frees, UTF-8, and sets *size where it is asked for. */
#ifndef ASSAY_GATES_PAGE_H
#define ASSAY_GATES_PAGE_H

#include "evidence.h"
#include "verdict.h"

/* Debian's libjs-chart.js. */
#define CHART_JS "/usr/share/javascript/chart.js/chart.min.js"

struct findings {
	struct evidence evidence;        /* rows compared; everything else that the judge found is in the verdict */
	json_t *verdict;                 /* owned */
};

/* A run directory and its verdict.json; one that was not judged yet is judged in memory.  {0} is valid to release. */
int findings_load(struct findings *f, const char *run_dir, struct err *err);
void findings_release(struct findings *f);
const json_t *findings_leg(const struct findings *f, int leg);   /* its part of the verdict, borrowed; NULL: none */

/* One self-contained page.  `chart_js`: the text of Chart.js, NULL: tables stand for charts and the page says so. */
char *show_html(const struct findings *f, const char *chart_js, size_t *size);
/* The document inside the page, a new reference.  docs/formats.md, section 10. */
json_t *page_data(const struct findings *f);
/* JUnit XML: a suite per leg, a case per prompt and per contract line, and one for the verdict. */
char *show_junit(const struct findings *f, size_t *size);
/* For a pull request: under 60 lines. */
char *show_markdown(const struct findings *f, size_t *size);
/* "::error title=...::..." lines; `recipe`: the file they belong to. */
char *show_github(const struct findings *f, const char *recipe);

/* ---- arrays of a page: little endian, base64; new references ---- */

/* Numbers from 0 up, two in three bytes, 12 bits each: 0 is 0, 4095 not measured, else 2^((v - 1) / 157 - 20), which is
 * right to 0.23 % between 1e-6 and 64. */
json_t *page_logarithms(const double *x, size_t n);
json_t *page_integers(const int32_t *x, size_t n);
/* `each`: bytes of one, 1 to 4. */
json_t *page_indices(const uint32_t *x, size_t n, int each);

/* ---- text ---- */

/* Whatever a model or a user wrote, on one line: control characters, direction marks and invisible characters as
 * \u{202e}; bytes that are no UTF-8 as U+FFFD.  The caller frees. */
char *text_plain(const char *s);
/* text_plain, cut to `most` characters with an ellipsis. */
char *text_short(const char *s, int most);
/* text_plain with & < > " ' escaped. */
char *text_xml(const char *s);

#endif
