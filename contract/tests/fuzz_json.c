/* libFuzzer: any bytes as JSON, golden, report.  `make fuzz`.
 *
 * Nothing may crash, leak or complain in two lines; and what is accepted as a golden or a report must be JSON to
 * another parser too, though its steps were read by our own. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "contract/golden.h"
#include "contract/json.h"
#include "contract/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int status, const char *bytes, size_t size, struct err *err)
{
	json_t *tree;

	BUG_ON((status != 0) != (err->kind == ERR_INPUT));
	BUG_ON(status != 0 && (err->text[0] == '\0' || strpbrk(err->text, "\n\r\033") != NULL));
	if (status == 0) {
		tree = json_loadb(bytes, size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
		if (tree == NULL)
			BUG("accepted what is not JSON");
		json_decref(tree);
	}
	*err = (struct err){ 0 };
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *bytes = (const char *)data;
	struct err err = { 0 };
	struct golden golden;
	struct report report;
	json_t *tree;

	for (int infinity = 0; infinity < 2; infinity++) {
		tree = json_read_bytes(bytes, size, "f", infinity, &err);
		json_decref(tree);
		BUG_ON((tree == NULL) != (err.kind == ERR_INPUT));
		err = (struct err){ 0 };
	}
	check(golden_load_bytes(&golden, bytes, size, "f", &err), bytes, size, &err);
	golden_release(&golden);
	check(report_load_bytes(&report, bytes, size, "f", &err), bytes, size, &err);
	report_release(&report);
	return 0;
}
