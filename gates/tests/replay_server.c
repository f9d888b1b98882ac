/* A completions server that replays a golden, in the shape of a known server, and misbehaves on request.
 *
 *   replay_server GOLDEN PROFILE TOKENIZER SHAPE [TRICK [CERTIFICATE HOST]]
 *
 * It listens on a free port of 127.0.0.1, prints the port as its first line, serves one connection at a time, and ends when its stdin does.
 * With CERTIFICATE it speaks TLS, with a key and a self-signed certificate of its own for HOST (a name, or an address), which it writes there.
 * SHAPE: content (llama-server), classic (texts), ids (vLLM's token_id:N), prompt (ids, and prompt_logprobs).
 * TRICK: one of the words of `tricks` below. */
#include <arpa/inet.h>
#include <jansson.h>
#include <math.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "contract/golden.h"
#include "contract/json.h"
#include "contract/tokenizer.h"

#define MODEL "replayed"
#define HEAD_BYTES 65536
#define MORE_IDS 100         /* listed behind the golden's 20 where more than those are asked */

enum trick { HONEST, WRONG_JSON, CUT, STATUS_500, NO_LOGPROBS, FEWER, ENDLESS, OTHER_MODEL, NO_SUCH_MODEL, SLOW, MORE, BOS, ABOVE_ZERO, GARBAGE,
	     KEY_BACK, TWICE, WOBBLE, NARROW, MUTE, DRIP, REDIRECT, N_TRICKS };
static const char *const tricks[N_TRICKS] = {"honest", "wrong-json", "cut", "status-500", "no-logprobs", "fewer", "endless", "other-model",
	"no-such-model", "slow", "more", "bos", "above-zero", "garbage", "key-back", "twice", "wobble", "narrow", "mute", "drip", "redirect"};

static struct golden golden;
static const struct golden_profile *profile;
static struct tokenizer *tokenizer;
static const char *shape;
static enum trick trick;

/* ---- what was recorded ---- */

/* The prompt whose ids, or ids and first answers, were sent: *step says after how many answers.  The last answer may be another than was
 * recorded, as it may be in mode forced. */
static const struct golden_row *find_ids(const json_t *ids, int *step)
{
	int n = (int)json_array_size(ids);

	for (int i = 0; i < profile->n_rows; i++) {
		const struct golden_row *row = &profile->rows[i];
		const struct golden_prompt *p = &golden.prompts[row->prompt];
		bool same = n >= p->n && n - p->n <= row->n;

		for (int t = 0; same && t < n - (n > p->n); t++)
			same = json_integer_value(json_array_get(ids, (size_t)t)) == (t < p->n ? p->ids[t] : row->ids[t - p->n]);
		if (same) {
			*step = n - p->n;
			return row;
		}
	}
	return NULL;
}

static const struct golden_row *find_text(const char *text)
{
	for (int i = 0; i < profile->n_rows; i++)
		if (strcmp(golden.prompts[profile->rows[i].prompt].text, text) == 0)
			return &profile->rows[i];
	return NULL;
}

static char *text_of(int32_t id)
{
	struct err err = {0};
	size_t size;

	return tokenizer_decode(tokenizer, &id, 1, false, &size, &err);
}

static json_t *name_of(int32_t id)
{
	char *text = strcmp(shape, "classic") == 0 ? text_of(id) : xasprintf("token_id:%d", id);
	json_t *name = json_string(text);

	free(text);
	return name;
}

/* ---- the shapes ---- */

static int n_served;

static double told(double logprob)
{
	if (trick == WOBBLE)
		return logprob - 1e-3 * n_served;
	return trick == ABOVE_ZERO ? 0.5 : logprob;
}

static json_t *content_item(int32_t id, double logprob)
{
	char *text = text_of(id);
	json_t *item = json_pack("{s:i, s:s, s:f}", "id", id, "token", text, "logprob", told(logprob));

	free(text);
	return item;
}

static double value_of(const struct golden_step *s, int32_t id)
{
	for (int i = 0; i < s->n_top; i++)
		if (s->top[i].id == id)
			return s->top[i].value;
	return -30;
}

/* The k-th of the ids that the golden does not list, and what it is given. */
static struct top further(const struct golden_step *s, int k)
{
	int32_t id = 0;

	for (;; id++) {
		bool listed = false;

		for (int i = 0; i < s->n_top; i++)
			listed = listed || s->top[i].id == id;
		if (!listed && k-- == 0)
			return (struct top){id, -40 - 0.01 * id};
	}
}

static json_t *content_of(const struct golden_row *row, int from, int n, int more)
{
	json_t *content = json_array();

	for (int t = from; t < from + n; t++) {
		const struct golden_step *s = &row->steps[t];
		json_t *item = content_item(s->id, value_of(s, s->id)), *top = json_array();

		for (int i = 0; i < s->n_top; i++)
			json_array_append_new(top, content_item(s->top[trick == TWICE && i == 1 ? 0 : i].id, s->top[i].value));
		for (int k = 0; k < more; k++)
			json_array_append_new(top, content_item(further(s, k).id, further(s, k).value));
		if (more)       /* as the text of a byte is */
			json_object_set_new(json_array_get(top, json_array_size(top) - 1), "token", json_stringn("", 1));
		json_object_set_new(item, "top_logprobs", top);
		json_array_append_new(content, item);
	}
	return json_pack("{s:o}", "content", content);
}

static json_t *classic_of(const struct golden_row *row, int from, int n, int more)
{
	json_t *tokens = json_array(), *values = json_array(), *tops = json_array();

	for (int t = from; t < from + n; t++) {
		const struct golden_step *s = &row->steps[t];
		json_t *top = json_object();

		json_array_append_new(tokens, name_of(s->id));
		json_array_append_new(values, json_real(told(value_of(s, s->id))));
		for (int i = 0; i < s->n_top + more; i++) {
			struct top one = i < s->n_top ? s->top[i] : further(s, i - s->n_top);
			json_t *name = name_of(one.id);

			json_object_set_new(top, json_string_value(name), json_real(told(one.value)));
			json_decref(name);
		}
		json_array_append_new(tops, top);
	}
	return json_pack("{s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops);
}

/* One entry a token of the prompt, as vLLM: null for the first. */
static json_t *prompt_of(const struct golden_row *row, int n_prompt, int step)
{
	json_t *list = json_array();

	for (int t = 0; t < n_prompt; t++)
		json_array_append_new(list, t ? json_pack("{s:{s:f, s:i}}", "0", "logprob", -1.0, "rank", 1) : json_null());
	for (int t = 0; t < step; t++) {
		json_t *map = json_object();

		for (int i = 0; i < row->steps[t].n_top; i++) {
			char key[16];

			snprintf(key, sizeof(key), "%d", row->steps[t].top[i].id);
			json_object_set_new(map, key, json_pack("{s:f, s:i, s:n}", "logprob", row->steps[t].top[i].value, "rank", i + 1,
								"decoded_token"));
		}
		json_array_append_new(list, map);
	}
	return list;
}

static json_t *answer_to(const json_t *request)
{
	const json_t *prompt = json_object_get(request, "prompt");
	int step = 0, n = (int)json_integer_value(json_object_get(request, "max_tokens"));
	const struct golden_row *row = json_is_string(prompt) ? find_text(json_string_value(prompt)) : find_ids(prompt, &step);

	if (!row)
		return NULL;
	int more = json_integer_value(json_object_get(request, "logprobs")) > TOP_MAX ? MORE_IDS : 0;

	if (more && trick == NARROW)
		return NULL;
	int left = row->n - step, n_prompt = golden.prompts[row->prompt].n;

	n += trick == MORE;
	n = n < left ? n : left;
	n -= trick == FEWER && n > 1;
	json_t *logprobs = trick == NO_LOGPROBS ? json_null() : strcmp(shape, "content") == 0 ? content_of(row, step, n, more) :
			   classic_of(row, step, n, more);
	json_t *choice = json_pack("{s:s, s:i, s:o, s:s}", "text", "", "index", 0, "logprobs", logprobs, "finish_reason", "length");

	if (strcmp(shape, "prompt") == 0 && json_object_get(request, "prompt_logprobs"))
		json_object_set_new(choice, "prompt_logprobs", prompt_of(row, n_prompt, step));
	return json_pack("{s:[o], s:s, s:s, s:{s:i, s:i}}", "choices", choice, "model", trick == OTHER_MODEL ? "another" : MODEL,
			 "system_fingerprint", "replay-1", "usage", "prompt_tokens", n_prompt + step + (trick == BOS), "completion_tokens", n);
}

/* ---- HTTP ---- */

static SSL_CTX *tls;         /* NULL: in the clear */
static SSL *session;

static void say(int fd, const char *bytes, size_t n)
{
	while (n > 0) {
		ssize_t wrote = session ? SSL_write(session, bytes, (int)n) : send(fd, bytes, n, MSG_NOSIGNAL);

		if (wrote <= 0)
			return;
		bytes += wrote;
		n -= (size_t)wrote;
	}
}

static void send_answer(int fd, int status, const char *body, size_t claimed)
{
	char *head = xasprintf("HTTP/1.1 %d Word\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", status,
			       claimed);

	say(fd, head, strlen(head));
	say(fd, body, strlen(body));
	free(head);
}

static void send_endless(int fd)
{
	static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"choices\":[";
	char block[65536];

	memset(block, ' ', sizeof(block));
	say(fd, head, sizeof(head) - 1);
	for (int i = 0; i < 1 << 14 && send(fd, block, sizeof(block), MSG_NOSIGNAL) > 0; i++)
		;
}

/* Never silent for long, and never done. */
static void send_drops(int fd)
{
	static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{";

	say(fd, head, sizeof(head) - 1);
	for (int i = 0; i < 100 && send(fd, " ", 1, MSG_NOSIGNAL) > 0; i++)
		usleep(50000);
}

/* To where a client would find what it asked for, were it to follow. */
static const char redirect[] = "HTTP/1.1 307 Over there\r\nLocation: /v1/models\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

static void send_completion(int fd, const json_t *request, const char *head)
{
	json_t *answer = request ? answer_to(request) : NULL;

	n_served++;
	char *text = answer ? json_dumps(answer, JSON_COMPACT) : xasprintf("{\"error\": {\"message\": \"no such prompt\"}}");
	const char *key = strstr(head, "Bearer ");

	if (trick == STATUS_500)
		send_answer(fd, 500, "{\"error\": {\"message\": \"the engine fell over\"}}", 46);
	else if (trick == KEY_BACK) {
		char *body = xasprintf("{\"error\": {\"message\": \"wrong key %.*s\"}}", key ? (int)strcspn(key + 7, "\r\n") : 0, key ? key + 7 : "");

		send_answer(fd, 401, body, strlen(body));
		free(body);
	} else if (trick == WRONG_JSON)
		send_answer(fd, 200, "{\"choices\": [}", 14);
	else if (trick == CUT)
		send_answer(fd, 200, "{\"choices\": [", 4096);
	else if (trick == ENDLESS)
		send_endless(fd);
	else if (trick == DRIP)
		send_drops(fd);
	else if (trick == REDIRECT)
		say(fd, redirect, sizeof(redirect) - 1);
	else if (trick == GARBAGE)
		say(fd, "no HTTP at all\r\n\r\n", 18);
	else
		send_answer(fd, answer ? 200 : 400, text, strlen(text));
	free(text);
	json_decref(answer);
}

/* Head and body of a request; the body's start, or NULL. */
static char *receive(int fd, char *head, size_t room)
{
	size_t n = 0, wanted = 0;
	char *body = NULL;

	while (n < room - 1 && (!body || n < wanted)) {
		ssize_t got = session ? SSL_read(session, head + n, (int)(room - 1 - n)) : recv(fd, head + n, room - 1 - n, 0);

		if (got <= 0)
			return NULL;
		n += (size_t)got;
		head[n] = '\0';
		body = strstr(head, "\r\n\r\n");
		if (body) {
			const char *length = strcasestr(head, "Content-Length:");

			body += 4;
			wanted = (size_t)(body - head) + (length ? strtoul(length + 15, NULL, 10) : 0);
		}
	}
	return body;
}

/* A client that does not trust the certificate breaks off here, before it has said a word. */
static bool greet(int fd)
{
	if (!tls)
		return true;
	session = SSL_new(tls);
	return session && SSL_set_fd(session, fd) == 1 && SSL_accept(session) == 1;
}

static void serve(int fd)
{
	static char head[HEAD_BYTES];

	if (trick == MUTE)
		sleep(5);
	char *body = trick != MUTE && greet(fd) ? receive(fd, head, sizeof(head)) : NULL;
	const char *models = trick == NO_SUCH_MODEL ? "{\"data\": [{\"id\": \"replayer\"}]}" :
			     "{\"data\": [{\"id\": \"" MODEL "\", \"owned_by\": \"replay\"}]}";

	if (body && strncmp(head, "GET ", 4) == 0) {
		send_answer(fd, 200, models, strlen(models));
	} else if (body) {
		json_t *request = json_loads(body, 0, NULL);

		if (trick == SLOW)
			sleep(5);
		send_completion(fd, request, head);
		json_decref(request);
	}
	if (session)
		SSL_shutdown(session);
	SSL_free(session);
	session = NULL;
	shutdown(fd, SHUT_WR);
	close(fd);
}

/* ---- TLS ---- */

/* A P-256 key, and a certificate that it signs itself, good for a day. */
static int open_tls(const char *path, const char *host)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = X509_new();
	char *names = xasprintf("%s:%s", host[0] >= '0' && host[0] <= '9' ? "IP" : "DNS", host);
	X509_EXTENSION *names_of = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, names);
	FILE *f = fopen(path, "we");

	tls = SSL_CTX_new(TLS_server_method());
	int failed = !key || !cert || !names_of || !f || !tls || !X509_set_version(cert, 2) || !ASN1_INTEGER_set(X509_get_serialNumber(cert), 1)
		     || !X509_gmtime_adj(X509_getm_notBefore(cert), -60) || !X509_gmtime_adj(X509_getm_notAfter(cert), 86400)
		     || !X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)"replay", -1, -1, 0)
		     || !X509_set_issuer_name(cert, X509_get_subject_name(cert)) || !X509_set_pubkey(cert, key) || !X509_add_ext(cert, names_of, -1)
		     || !X509_sign(cert, key, EVP_sha256()) || !PEM_write_X509(f, cert) || SSL_CTX_use_certificate(tls, cert) != 1
		     || SSL_CTX_use_PrivateKey(tls, key) != 1;

	if (f && fclose(f))
		failed = 1;
	X509_EXTENSION_free(names_of);
	X509_free(cert);
	EVP_PKEY_free(key);
	free(names);
	return failed ? -1 : 0;
}


static int listen_here(int *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 16) || getsockname(fd, (struct sockaddr *)&at, &size))
		return -1;
	*port = ntohs(at.sin_port);
	return fd;
}

int main(int argc, char **argv)
{
	struct err err = {0};
	int port, fd = argc > 4 ? listen_here(&port) : -1;

	if (fd < 0 || golden_load(&golden, argv[1], &err) || !(profile = golden_profile_find(&golden, argv[2]))
	    || !(tokenizer = tokenizer_load(argv[3], &err))) {
		fprintf(stderr, "replay_server: %s\n", err.text);
		return 2;
	}
	shape = argv[4];
	while (argc > 5 && trick < N_TRICKS && strcmp(argv[5], tricks[trick]))
		trick++;
	if (argc > 7 && open_tls(argv[6], argv[7])) {
		fprintf(stderr, "replay_server: no TLS\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	printf("%d\n", port);
	fflush(stdout);
	for (;;) {
		struct pollfd both[2] = {{.fd = fd, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};

		if (poll(both, 2, -1) < 0 || both[1].revents)
			break;
		int one = accept(fd, NULL, NULL);

		if (one >= 0)
			serve(one);
	}
	SSL_CTX_free(tls);
	tokenizer_free(tokenizer);
	golden_release(&golden);
	return 0;
}
