/* One HTTP exchange at a time, over libcurl.
 *
 * The certificate of a TLS server is verified, redirections are not followed, and nothing is taken from the environment (no proxy,
 * no .netrc).  Every exchange has a time limit and every answer a size limit. */
#ifndef ASSAY_GATES_HTTP_H
#define ASSAY_GATES_HTTP_H

#include "contract/err.h"

#define HTTP_MAX_BYTES ((size_t)64 << 20)    /* of one answer; 512 steps with 20 log-probabilities have about 1 MB */

struct http {
	void *curl;                  /* owned */
	void *headers;               /* owned */
	char *key;                   /* owned; NULL: none */
	double timeout_s;            /* of one exchange */
	size_t max_bytes;
	const char *ca_file;         /* borrowed; certificates that are trusted, PEM; NULL: the system's */
};

struct http_answer {
	long status;
	char *bytes; size_t size;    /* owned; with a final NUL that is not counted */
};

/* `key` is sent as a bearer token, over TLS or to this machine only; NULL: none.  http_release in any case. */
int http_open(struct http *h, double timeout_s, const char *key, struct err *err);
void http_release(struct http *h);
/* POSTs `body` as JSON, or GETs where it is NULL.  An answer of any status is an answer: 0.  -1 (ERR_FAILED): none came, or not whole, in
 * time and within max_bytes; err names the URL.  A server that repeats the key has it
 * struck out.  The caller frees a->bytes. */
int http_exchange(struct http *h, const char *url, const char *body, struct http_answer *a, struct err *err);
/* "http://HOST:PORT/..." or https; the host and port in *authority (the caller frees).  ERR_INPUT for anything else, and for a
 * URL that carries a name and password. */
int http_check_url(const char *url, char **authority, struct err *err);

#endif
