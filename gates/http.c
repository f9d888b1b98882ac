#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include "http.h"

#define CONNECT_S 10

struct taking { struct http_answer *a; size_t max; bool too_large; };

static size_t take(char *bytes, size_t one, size_t n, void *ud)
{
	struct taking *t = ud;
	struct http_answer *a = t->a;

	n *= one;
	if (n > t->max - a->size) {
		t->too_large = true;
		return 0;
	}
	a->bytes = xrealloc(a->bytes, a->size + n + 1, 1);
	memcpy(a->bytes + a->size, bytes, n);
	a->size += n;
	a->bytes[a->size] = '\0';
	return n;
}

int http_check_url(const char *url, char **authority, struct err *err)
{
	const char *host = strncmp(url, "http://", 7) == 0 ? url + 7 : strncmp(url, "https://", 8) == 0 ? url + 8 : NULL;
	size_t n = host ? strcspn(host, "/?#") : 0;

	*authority = NULL;
	if (n == 0)
		return err_set(err, ERR_INPUT, "%s: expected a URL that begins with http:// or https://", url);
	if (memchr(host, '@', n))
		return err_set(err, ERR_INPUT, "a URL with a name or password in it is refused: a key comes from an environment variable "
			       "(key_env)");
	*authority = xasprintf("%.*s", (int)n, host);
	return 0;
}

/* A key may travel in the clear only where nobody else can listen. */
static bool is_private(const char *url)
{
	static const char *const here[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};

	if (strncmp(url, "https://", 8) == 0)
		return true;
	for (int i = 0; i < 3; i++) {
		size_t n = strlen(here[i]);

		if (strncmp(url, here[i], n) == 0 && strchr(":/", url[n]))
			return true;
	}
	return false;
}

int http_open(struct http *h, double timeout_s, const char *key, struct err *err)
{
	struct curl_slist *headers;

	*h = (struct http){.timeout_s = timeout_s, .max_bytes = HTTP_MAX_BYTES};
	if (curl_global_init(CURL_GLOBAL_DEFAULT) || !(h->curl = curl_easy_init()))
		return err_set(err, ERR_FAILED, "libcurl cannot be started");
	headers = curl_slist_append(NULL, "Content-Type: application/json");
	if (key) {
		char *bearer = xasprintf("Authorization: Bearer %s", key);

		headers = curl_slist_append(headers, bearer);
		memset(bearer, 0, strlen(bearer));
		free(bearer);
		h->key = xstrdup(key);
	}
	h->headers = headers;
	return 0;
}

void http_release(struct http *h)
{
	curl_slist_free_all(h->headers);
	free(h->key);
	if (h->curl)
		curl_easy_cleanup(h->curl);
	*h = (struct http){0};
}

static void set_options(struct http *h, const char *url, const char *body, struct taking *t, char error[CURL_ERROR_SIZE])
{
	CURL *c = h->curl;

	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 1L);
	curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 2L);
	if (h->ca_file)
		curl_easy_setopt(c, CURLOPT_CAINFO, h->ca_file);
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(h->timeout_s * 1000));
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, h->headers);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
	if (body) {
		curl_easy_setopt(c, CURLOPT_POST, 1L);
		curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, body);
	} else {
		curl_easy_setopt(c, CURLOPT_HTTPGET, 1L);
	}
}

/* What a server says ends up in messages and files. */
static void strike_key(const char *key, struct http_answer *a)
{
	size_t n = key ? strlen(key) : 0;

	for (char *at = a->bytes; n && (at = memmem(at, (size_t)(a->bytes + a->size - at), key, n)); at += n)
		memset(at, '*', n);
}

int http_exchange(struct http *h, const char *url, const char *body, struct http_answer *a, struct err *err)
{
	struct taking t = {.a = a, .max = h->max_bytes};
	char error[CURL_ERROR_SIZE] = "";

	*a = (struct http_answer){.bytes = xcalloc(1, 1)};
	if (h->key && !is_private(url))
		return err_set(err, ERR_INPUT, "%s: a key is sent over https or to this machine only", url);
	set_options(h, url, body, &t, error);
	CURLcode code = curl_easy_perform(h->curl);

	curl_easy_setopt((CURL *)h->curl, CURLOPT_ERRORBUFFER, NULL);
	strike_key(h->key, a);
	if (code == CURLE_OK) {
		curl_easy_getinfo((CURL *)h->curl, CURLINFO_RESPONSE_CODE, &a->status);
		return 0;
	}
	if (t.too_large)
		return err_set(err, ERR_FAILED, "%s: the answer is longer than %zu bytes", url, h->max_bytes);
	if (code == CURLE_OPERATION_TIMEDOUT)
		return err_set(err, ERR_FAILED, "%s: no whole answer within %g s (%zu bytes came)", url, h->timeout_s, a->size);
	return err_set(err, ERR_FAILED, "%s: %s%s", url, error[0] ? error : curl_easy_strerror(code),
		       a->size ? " (the answer was cut)" : "");
}
