/* The parts of a recipe's reader; recipe.c calls them in the order of docs/formats.md, section 4. */
#ifndef ASSAY_GATES_RECIPE_READ_H
#define ASSAY_GATES_RECIPE_READ_H

#include "recipe.h"

struct recipe_reader {
	struct recipe *r;
	struct yaml y;
	struct err *err;
};

/* base, legs; recipe_legs.c */
int recipe_read_base(struct recipe_reader *rd, const struct ynode *base);
int recipe_read_legs(struct recipe_reader *rd, const struct ynode *legs);
/* require: the contracts of `all` and of every leg; recipe_require.c */
int recipe_read_require(struct recipe_reader *rd, const struct ynode *require);
/* hypotheses, claims; recipe_hypotheses.c */
int recipe_read_hypotheses(struct recipe_reader *rd, const struct ynode *hypotheses);
int recipe_read_claims(struct recipe_reader *rd, const struct ynode *claims);

/* speed; recipe_speed.c */
int recipe_read_speed(struct recipe_reader *rd, const struct ynode *speed);

/* A name of a recipe or leg: letters, digits, - and _; it becomes a file name.  recipe.c */
int recipe_check_name(struct recipe_reader *rd, const char *name, struct mark at, const char *what);
/* One factor of a mapping into `arm`; `key_at` is the place of its name.  recipe_legs.c */
int recipe_read_factor(struct recipe_reader *rd, struct arm *arm, const char *name, struct mark key_at,
		       const struct ynode *value);
/* The index of a leg; an unknown name is an error at `at`, where `what` names it. */
int recipe_read_leg_name(struct recipe_reader *rd, const char *name, struct mark at, const char *what);
int recipe_unknown_factor(struct recipe_reader *rd, const char *name, struct mark at, const char *what);

#endif
