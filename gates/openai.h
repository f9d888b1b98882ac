/* A completions server with log-probabilities, as llama-server, vLLM and others speak the OpenAI protocol.
 *
 * Three shapes of an answer are read:
 *   content   choices[].logprobs.content[] of {id, logprob, top_logprobs: [{id, logprob}]}: llama-server
 *   classic   choices[].logprobs of {tokens, token_logprobs, top_logprobs: [{TEXT: logprob}]}, where vLLM writes "token_id:N" for
 *             TEXT when asked; elsewhere TEXT is looked up in the model's vocabulary and must be one token of it
 *   prompt    choices[].prompt_logprobs: [null, {ID: {logprob, rank}}]: vLLM, for all positions of a prompt at once
 * What a server must not do without a word is an error: another model's name, other prompt tokens than were sent, more tokens than
 * asked, numbers that are not finite.  docs/foreign-engines.md. */
#ifndef ASSAY_GATES_OPENAI_H
#define ASSAY_GATES_OPENAI_H

#include "contract/golden.h"
#include "contract/tokenizer.h"
#include "http.h"

struct openai {
	struct http http;
	char *url;                           /* owned; no slash at its end */
	char *authority;                     /* owned; "127.0.0.1:8080" */
	const char *model;                   /* borrowed: the name that is asked for */
	const struct tokenizer *tokenizer;   /* borrowed; NULL: texts of tokens cannot be looked up */
	struct token_names *names;           /* owned; made when the first text is looked up */
	char *server, *version;              /* owned; what the server says of itself; NULL: nothing */
	const char *shape;                   /* of the last answer: "content", "classic", "token ids" */
	long status;                         /* HTTP, of the last answer; 0: none came */
	int32_t seek;                        /* the id whose place in a list is wanted, beyond the best 20 too; -1: none */
	bool narrow;                         /* the server gives no list of more than 20 */
};

struct openai_step {
	int32_t id;
	int n_top;                           /* 0: no log-probabilities */
	struct top top[TOP_MAX];             /* log-probabilities, best first, ties by lower id */
	bool has_given;                      /* openai_score alone */
	double given_logprob;
	int given_rank;                      /* from 1 */
};

struct openai_answer { int n; struct openai_step *steps; /* owned */ char *text; /* owned; NULL: not said */ };

/* key: NULL or the server's key.  openai_release in any case. */
int openai_open(struct openai *o, const char *url, const char *model, double timeout_s, const char *key, struct err *err);
void openai_release(struct openai *o);
/* Asks GET URL/models whether the server has the model; one without such a list is taken at its word. */
int openai_check_model(struct openai *o, struct err *err);
/* The greedy continuation of a prompt, at most max_tokens long (fewer is no error).  text NULL: the prompt is sent as ids; with a text
 * the server must count n_ids tokens in it. */
int openai_complete(struct openai *o, struct openai_answer *a, const int32_t *ids, int n_ids, const char *text, int max_tokens,
		    struct err *err);
/* The choice after ids, ids+given[0], ...: n_given steps, in one exchange if the server knows prompt_logprobs (then *at_once), else in
 * one exchange a position, and a second one with the whole vocabulary listed where the given id is not among the best 20.  Ends early
 * where the server does not list the given id even then: a->n < n_given. */
int openai_score(struct openai *o, struct openai_answer *a, const int32_t *ids, int n_ids, const int32_t *given, int n_given,
		 bool *at_once, struct err *err);
void openai_answer_release(struct openai_answer *a);

/* openai_answer.c: the shapes.  `doc` is a whole answer; `where` names it in messages; n_ids: prompt tokens that were sent; max_tokens as asked. */
int openai_read_answer(struct openai *o, struct openai_answer *a, const json_t *doc, const char *where, int n_ids, int max_tokens,
		       struct err *err);
/* prompt_logprobs from position n_ids on; 1: read, 0: the answer has none. */
int openai_read_prompt(struct openai_answer *a, const json_t *doc, const char *where, int n_ids, const int32_t *given, int n_given,
		       struct err *err);
void token_names_free(struct token_names *names);

#endif
