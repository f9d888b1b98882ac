/* speed: which legs are timed against each other, and how often. */
#include <stdio.h>
#include <string.h>

#include "recipe_read.h"
#include "speed.h"

static int read_leg(struct recipe_reader *rd, const struct ynode *name, int *leg)
{
	if (yaml_want_string(&rd->y, name, "pairs", rd->err))
		return -1;
	*leg = recipe_read_leg_name(rd, name->text, name->at, "speed");
	return *leg < 0 ? -1 : 0;
}

static int read_pair(struct recipe_reader *rd, const struct ynode *item)
{
	struct recipe *r = rd->r;
	struct speed_pair *p = &r->speed[r->n_speed];

	if (yaml_want_list(&rd->y, item, "pairs", rd->err))
		return -1;
	if (item->n != 2)
		return yaml_error(&rd->y, item->at, rd->err, "pairs: a pair is two legs, not %d", item->n);
	if (read_leg(rd, &item->items[0], &p->a) || read_leg(rd, &item->items[1], &p->b))
		return -1;
	if (p->a == p->b)
		return yaml_error(&rd->y, item->at, rd->err, "pairs: `%s` against itself", item->items[0].text);
	for (int i = 0; i < r->n_speed; i++)
		if ((r->speed[i].a == p->a && r->speed[i].b == p->b) || (r->speed[i].a == p->b && r->speed[i].b == p->a))
			return yaml_error(&rd->y, item->at, rd->err, "pairs: `%s` and `%s` are there twice", item->items[0].text,
					  item->items[1].text);
	r->n_speed++;
	return 0;
}

int recipe_read_speed(struct recipe_reader *rd, const struct ynode *speed)
{
	static const char *const known[] = {"pairs", "runs"};
	struct recipe *r = rd->r;
	const struct ynode *pairs, *runs;
	int64_t n = SPEED_RUNS;

	if (yaml_want_keys(&rd->y, speed, "speed", known, 2, rd->err))
		return -1;
	pairs = yaml_get(speed, "pairs");
	runs = yaml_get(speed, "runs");
	if (!pairs)
		return yaml_error(&rd->y, speed->at, rd->err, "speed: missing key `pairs`");
	if (yaml_want_list(&rd->y, pairs, "pairs", rd->err)
	    || (runs && yaml_want_int(&rd->y, runs, "runs", SPEED_RUNS_LEAST, SPEED_RUNS_MOST, &n, rd->err)))
		return -1;
	if (pairs->n == 0)
		return yaml_error(&rd->y, pairs->at, rd->err, "pairs: none in it");
	r->speed_runs = (int)n;
	r->speed = xcalloc((size_t)pairs->n, sizeof(*r->speed));
	for (int i = 0; i < pairs->n; i++)
		if (read_pair(rd, &pairs->items[i]))
			return -1;
	return 0;
}
